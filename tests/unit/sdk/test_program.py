"""Jobs that run programs, and their end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.dialects.sides import MAX_PAYLOAD, JobInfo, Outcome
from dragoman.sdk.handlers import MOST_MESSAGE
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.program_pool import ProgramPool
from programs import PATIENCE


class FakeOwner:
    def __init__(self, max_payload: int = MAX_PAYLOAD) -> None:
        self.max_payload = max_payload
        self.received: list[Any] = []

    def finished(self, job: RunningJob, result: Any) -> None:
        self.received.append(bytes(result))

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Any) -> None:
        self.received.append(failure.sentence)

    def returned(self, job: RunningJob) -> None:
        self.received.append("returned")

    def reported(self, job: RunningJob, payload: Any, is_part: bool) -> None: ...


async def run(command: str, payload: bytes = b"", job_owner: FakeOwner | None = None) -> list[Any]:
    """Run the command as one job, and return what its owner receives."""
    job_owner = job_owner or FakeOwner()
    job_runner = JobRunner({"x": ProgramPool(command)}, 0.1)
    job_runner.begin(RunningJob(job_owner, "A", payload, JobInfo("x", "", 1, PATIENCE)))
    async with asyncio.timeout(PATIENCE):
        while not job_owner.received:
            await asyncio.sleep(0.001)
    await job_runner.close()
    return job_owner.received


@pytest.mark.parametrize("launcher", ["", "setsid "])
def test_a_program_that_leaves_another_behind_ends_when_it_ends(launcher: str, tmp_path: Path) -> None:
    """R222. The other had its standard output: the job went on for as long as that ran, and ended *timed out* or
    *lost* with a result that was there."""
    needed = tmp_path / "needed"
    needed.touch()
    other = f'{launcher}sh -c "while [ -e {needed} ]; do sleep 0.05; done"'
    try:
        assert asyncio.run(run(f"sh -c '{other} & echo hi'")) == [b"hi\n"]
    finally:
        needed.unlink()


def test_large_payloads_and_results_pass_a_program_whole() -> None:
    payload = bytes(range(256)) * 20_000
    assert asyncio.run(run("cat", payload)) == [payload]


def test_a_program_that_does_not_read_its_input_has_a_result() -> None:
    assert asyncio.run(run("echo hi", bytes(1 << 20))) == [b"hi\n"]


def test_a_program_that_writes_too_much_is_ended() -> None:
    """R222. The worker collected all that it wrote, at 170 MB/s, until the kernel ended the worker."""
    received = asyncio.run(run("yes", job_owner=FakeOwner(max_payload=100_000)))
    assert received == [
        "ValueError: yes wrote more than 100000 bytes to standard output, over max_payload 100000, and was ended; let "
        "it write less, or set a higher max_payload at the broker's listener"
    ]


def test_a_result_may_have_the_maximum() -> None:
    for size in (100_000, 100_001):
        received = asyncio.run(run(f"head -c {size} /dev/zero", job_owner=FakeOwner(max_payload=100_000)))
        assert (received == [bytes(size)]) == (size == 100_000)


def test_the_end_of_standard_error_is_kept() -> None:
    """R222. All of it was collected, and the message had its beginning."""
    [message] = asyncio.run(run("sh -c 'echo begin >&2; head -c 3000000 /dev/zero >&2; echo the end >&2; exit 3'"))
    assert message.startswith("subprocess.CalledProcessError: sh ended with exit code 3: …")
    assert message.endswith("the end")
    assert "begin" not in message
    assert len(message) <= MOST_MESSAGE + len("subprocess.CalledProcessError: ")
