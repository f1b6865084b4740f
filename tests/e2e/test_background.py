"""Background jobs with real processes: they survive their client, their workers, and SIGKILL of the broker."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from pathlib import Path

import pytest
from native_worker import HandWorker

from dragoman import Client, JobFailed
from programs import HANDLERS, PATIENCE, Program, Programs, until

SCRIPT = """
import os, sys
from dragoman import Client
print(Client(sys.argv[1]).enqueue("echo", b"x"))
os._exit(9)
"""


class Setup:
    """A broker with a data folder, at an address that stays the same after a restart."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self._programs = programs
        self._data = folder / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.broker = self.start()

    def start(self) -> Program:
        self.broker = self._programs.dragoman("serve", self.url, "--data", self._data, "--strict")
        self.broker.prints(r"native +(tcp://\S+)")
        return self.broker

    def restart(self) -> None:
        self.broker.kill()
        self.start()

    def worker(self, folder: Path) -> Program:
        shutil.copy(HANDLERS, folder / "handlers.py")
        return self._programs.dragoman("worker", "handlers:upper", "--service", "upper", "--connect", self.url)


@pytest.fixture
def setup(programs: Programs, tmp_path: Path) -> Setup:
    return Setup(programs, tmp_path)


def test_a_job_outlives_its_client_and_the_broker(setup: Setup, tmp_path: Path) -> None:
    with Client(setup.url) as client:
        jobs = [client.enqueue("upper", b"job %d" % number) for number in range(20)]
        assert client.enqueue("upper", b"job 0", key="k") == (kept := client.enqueue("upper", b"job 0", key="k"))
    setup.restart()
    worker = setup.worker(tmp_path)
    with Client(setup.url) as client:
        for number, job in enumerate(jobs):
            assert client.result(job, timeout=PATIENCE) == b"JOB %d" % number
        assert client.enqueue("upper", b"job 0", key="k") == kept, "the key is remembered, too"
        setup.restart()
        assert client.result(jobs[7], timeout=PATIENCE) == b"JOB 7", "and so are outcomes"
        assert client.job(jobs[7]).outcome == "done"
    worker.terminate()
    assert worker.ends() == 0


def test_who_waits_for_a_result_waits_over_a_restart(setup: Setup) -> None:
    with Client(setup.url) as client:
        job = client.enqueue("echo", b"hello")
        told: list[bytes] = []
        waiting = threading.Thread(target=lambda: told.append(client.result(job, timeout=2 * PATIENCE)))
        waiting.start()
        setup.restart()
        worker = HandWorker(setup.url, "echo")
        waiting.join(2 * PATIENCE)
        assert told == [b"hello"]
        worker.stop()


def test_a_worker_that_went_on_delivers_to_the_broker_that_was_started_anew(setup: Setup) -> None:
    """R107: the same attempt, not another."""
    worker = HandWorker(setup.url, "echo", returns=True)
    with Client(setup.url) as client:
        job = client.enqueue("echo", b"hold")
        _, token = worker.held.get(timeout=PATIENCE)
        client.enqueue("nobody's")  # once this is on disk, so is to whom the other was given
        setup.restart()
        worker.stop()
        again = HandWorker(setup.url, "other")
        until(lambda: client.job(job).state == "running", "it is still taken to run")
        again.release(token, b"done after all")
        assert client.result(job, timeout=PATIENCE) == b"done after all"
        again.stop()


def test_what_a_worker_had_that_does_not_come_back_with_it_is_tried_again_at_once(setup: Setup) -> None:
    """R107, R9: the retry does not wait for the time in which another kind of worker might deliver."""
    worker = HandWorker(setup.url, "echo")
    with Client(setup.url) as client:
        job = client.enqueue("echo", b"hold")
        worker.held.get(timeout=PATIENCE)
        client.enqueue("nobody's")  # once this is on disk, so is to whom the other was given
        setup.restart()
        until(lambda: client.job(job).state != "running", "the attempt is known to be lost")
        (lost,) = client.job(job).attempts[:1]
        assert (lost.outcome, lost.reason) == ("lost", "the broker died while it ran")
        worker.stop()


def test_attempts_back_off_quarantine_and_retry(setup: Setup, tmp_path: Path) -> None:
    worker = HandWorker(setup.url, "echo")
    with Client(setup.url) as client:
        job = client.enqueue("echo", b"fail at it", attempts=3, retry_first=0.02, retry_cap=0.1, retry_jitter=0.0)
        with pytest.raises(JobFailed, match="at it"):
            client.result(job, timeout=PATIENCE)
        assert [number for number, _ in worker.attempts] == [1, 2, 3]
        setup.restart()
        view = client.job(job)
        assert (view.outcome, view.quarantined, len(view.attempts)) == ("failed", True, 3)
        worker.stop()
        worker = HandWorker(setup.url, "echo")
        again = client.retry(job)
        with pytest.raises(JobFailed, match="at it") as caught:
            client.result(again, timeout=PATIENCE)
        assert caught.value.remote_traceback == "Traceback: here"
        assert worker.seen[b"fail at it"] == 3
    worker.stop()


def test_a_delay_is_kept_and_what_waits_can_be_purged(setup: Setup) -> None:
    with Client(setup.url) as client:
        jobs = [client.enqueue("echo", b"%d" % number, delay=3600) for number in range(5)]
        soon = client.enqueue("echo", b"soon", delay=0.3)
        setup.restart()
        worker = HandWorker(setup.url, "echo")
        assert client.result(soon, timeout=PATIENCE) == b"soon"
        assert {client.job(job).state for job in jobs} == {"delayed"}
        assert client.purge("echo") == 5
        setup.restart()
        assert {client.job(job).outcome for job in jobs} == {"cancelled"}
        assert set(worker.seen) == {b"soon"}
        worker.stop()


def test_recurring_jobs_and_pauses_outlive_the_broker(setup: Setup) -> None:
    with Client(setup.url) as client:
        client.set_schedule("tick", "echo", b"tick", every=1)
        client.pause("echo", by="the test")
        setup.restart()
        until(lambda: client.schedules(), "what recurs is there again")
        worker = HandWorker(setup.url, "echo")
        until(lambda: client.jobs(service="echo", state="waiting"), "one waits")
        assert worker.seen[b"tick"] == 0
        client.resume("echo")
        until(lambda: worker.seen[b"tick"] >= 2, "they come again and again")
        assert client.delete_schedule("tick").runs >= 2
        worker.stop()


def test_a_program_may_enqueue_and_end_at_once(programs: Programs, setup: Setup) -> None:
    """A job is on disk when `enqueue` has returned; the program may end then."""
    program = programs.start(sys.executable, "-u", "-c", SCRIPT, setup.url)
    assert program.ends() == 9
    job = program.out.strip()
    setup.restart()
    with Client(setup.url) as client:
        assert client.job(job).state == "waiting"
