"""The scenes of the demo after the matrix: background jobs, a rescue, a missing worker, a failing handler.

Each scene prints its lines and returns the number of its jobs that are done. It raises DemoError if a job does not end
as it should.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dragoman.cli.broker_http import BrokerHttp
from dragoman.cli.ladder import follow_ladder
from dragoman.demo.broker import PATIENCE, DemoBroker
from dragoman.demo.matrix import payloads
from dragoman.demo.processes import DemoError
from dragoman.demo.workers import REVERSE, Languages
from dragoman.operations.schemas import JobView
from dragoman.sdk.errors import JobFailed, NotFound

Print = Callable[[str], None]

RESCUE = "rescue"
REPORT = "report"
INVOICE = "invoice"
SLOW = 60.0  # seconds that a job takes at the worker that is killed


def run_background_jobs(broker: DemoBroker, workers: list[str], count: int, show: Print) -> int:
    """Submit background jobs over HTTP, and read all results."""
    client = broker.http
    jobs = [
        (payload, client.enqueue(REVERSE + workers[number % len(workers)], payload))
        for number, payload in enumerate(payloads("background", count))
    ]
    show(f"{count} background jobs are accepted over HTTP, for workers of {len(workers)} dialects.")
    wrong = [job for payload, job in jobs if client.result(job, timeout=PATIENCE) != payload[::-1]]
    if wrong:
        raise DemoError(f"the result of background job {wrong[0]} is not its payload backwards")
    show(f"{count} results are right.")
    return count


def rescue_job(broker: DemoBroker, languages: Languages, retry_delay: float, show: Print) -> int:
    """Kill a worker in the middle of a job; a worker of another dialect does the job."""
    client = broker.http
    victim = languages.start(broker, "pingpong", RESCUE, "hold", SLOW)
    broker.wait_for_workers(RESCUE)
    job = client.enqueue(RESCUE, b"help", attempts=3, retry_first=retry_delay, retry_jitter=0)
    broker.wait_for_state(job, "running")
    ladder_lines(broker, job)  # from this request on its messages are recorded, if they were not before
    show(f"A PingPong worker in {languages.of('pingpong')} runs job {job[:12]}. A Majordomo worker joins.")
    broker.start_worker("majordomo", {RESCUE: "reverse"})
    broker.wait_for_workers(RESCUE)

    def kill() -> None:
        if victim.is_alive:
            victim.kill()
            show(f"The PingPong worker (process {victim.pid}) is killed in the middle of the job.")

    with ThreadPoolExecutor(1) as caller:
        waiting = caller.submit(client.result, job, timeout=PATIENCE)
        try:
            for line in follow_ladder(client, job, waits=kill):
                show(line)
        except NotFound:  # the broker records no messages
            kill()
        result = waiting.result()
    view = client.job(job)
    outcomes = [(each.outcome or "done") for each in view.attempts]
    if result != b"pleh" or outcomes != ["lost", "done"]:
        raise DemoError(f"job {job} was not rescued: its attempts ended {', '.join(outcomes)}")
    if not ladder_lines(broker, job):
        for line in attempt_lines(view):
            show(line)
    return 1


def ladder_lines(broker: DemoBroker, job: str) -> list[str]:
    """The conversation about a job as text; empty if the broker has not recorded it."""
    try:
        return BrokerHttp(broker.url("http")).text(f"/v1/jobs/{job}/ladder", format="text").splitlines()
    except NotFound:
        return []


def attempt_lines(job: JobView) -> list[str]:
    """A line for each attempt of an ended job: its worker, how it ended, and when."""
    lines = []
    for each in job.attempts:
        end = f"after {(each.ended - job.created).total_seconds():.2f} s" if each.ended is not None else ""
        reason = f": {each.reason}" if each.reason else ""
        lines.append(f"  attempt {each.number}  {each.outcome or 'done':<5} {end:<14} worker {each.worker}{reason}")
    return lines


def explain_waiting(broker: DemoBroker, show: Print) -> int:
    """Ask why a job waits whose service has no worker; then start one."""
    client = broker.http
    job = client.enqueue(REPORT, b"May")
    before = client.why(job)
    show(f"Before:  {before}")
    if "no worker" not in before:
        raise DemoError(f"the reason for which job {job} waits should name the missing worker")
    broker.start_worker("native", {REPORT: "reverse"})
    if client.result(job, timeout=PATIENCE) != b"yaM":
        raise DemoError(f"the result of job {job} is not its payload backwards")
    show(f"A worker of {REPORT!r} joins.")
    show(f"After:   {client.why(job)}")
    return 1


def retry_from_quarantine(broker: DemoBroker, retry_delay: float, show: Print) -> int:
    """Let a job fail until it is in quarantine; correct the handler, and retry the job."""
    client = broker.http
    broken = broker.start_worker("native", {INVOICE: "fail"})
    job = client.enqueue(INVOICE, b"Atlantis", attempts=3, retry_first=retry_delay, retry_jitter=0)
    try:
        client.result(job, timeout=PATIENCE)
    except JobFailed:
        pass
    view = client.job(job)
    show(client.why(job))
    show(f"  {broker.dashboard}job/{job}")
    if not view.quarantined or len(view.attempts) != 3:
        raise DemoError(f"job {job} should be in quarantine after three attempts")
    broken.stop()
    broker.start_worker("native", {INVOICE: "reverse"})
    show("A worker with a corrected handler joins, and the job is retried.")
    retried = client.retry(job)
    if client.result(retried, timeout=PATIENCE) != b"sitnaltA":
        raise DemoError(f"the result of job {retried} is not its payload backwards")
    show(f"Job {retried[:12]}: {client.why(retried)}")
    return 1
