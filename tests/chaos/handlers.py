"""The handler of all workers of a chaos campaign: it writes a line for each run, works for a while, and answers.

The payload is a text of three words: a name that no other job has, milliseconds, and `ok` or `fail`. Only a process
that received this very job can compute its result.
"""

import os
import time
from hashlib import blake2b


def result_of(name: str) -> bytes:
    return blake2b(name.encode(), key=b"chaos", digest_size=8).hexdigest().encode()


def run(payload: bytes) -> bytes:
    name, milliseconds, wanted = bytes(payload).decode().split()
    path = os.path.join(os.environ["CHAOS_RUNS"], str(os.getpid()))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{name}\n".encode())  # one write: lines of threads do not mix
    os.close(descriptor)
    time.sleep(int(milliseconds) / 1000.0)
    if wanted == "fail":
        raise ValueError("as I was told")
    return result_of(name)
