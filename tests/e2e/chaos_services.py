"""Module of a worker for tests that kill; a copy of this file is put beside them.

Every execution is a line of the file that EXECUTIONS names: job, attempt, and time. Only a process that received this
very job can compute its result.
"""

import os
import signal
import time
from hashlib import blake2b

from dragoman import Context, Worker

SECRET = b"nobody guesses this"

worker = Worker("tcp://127.0.0.1:1")


def result_of(job: str, payload: bytes) -> bytes:
    return blake2b(job.encode() + payload, key=SECRET, digest_size=16).hexdigest().encode()


def write_down(job: str, attempt: int, file: str) -> None:
    """Append a line in one write, so that lines of many processes do not mix."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"%s %d %.6f\n" % (job.encode(), attempt, time.monotonic()))
    os.close(descriptor)


@worker.service("tasks")
def work(payload, ctx: Context):
    """Run a job. `poison` kills the whole worker; a payload that starts with `until` waits for a file of that name;
    `slay` kills the process whose id is in the file of that name, and then its own worker."""
    write_down(ctx.job_id, ctx.attempt, os.environ["EXECUTIONS"])
    word, _, file = payload.partition(b" ")
    if word == b"slay":
        with open(file) as text:
            os.kill(int(text.read()), signal.SIGKILL)
    if word in (b"poison", b"slay"):
        os.kill(os.getsid(os.getppid()), signal.SIGKILL)  # tests start each worker in a session of its own
        signal.pause()
    if payload == b"fail":
        raise ValueError("as I was told")
    while word == b"until" and not os.path.exists(file):
        time.sleep(0.005)
    return result_of(ctx.job_id, payload)
