"""Jobs that run programs, and their end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.dialects.sides import JobInfo, Outcome
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.program_pool import ProgramPool


class FakeOwner:
    def __init__(self) -> None:
        self.received: list[str] = []

    def finished(self, job: RunningJob, result: Any) -> None:
        self.received.append("finished")

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Any) -> None:
        self.received.append("failed")

    def returned(self, job: RunningJob) -> None:
        self.received.append("returned")

    def reported(self, job: RunningJob, payload: Any, is_part: bool) -> None: ...


@pytest.mark.parametrize("launcher", ["", "setsid "])
def test_a_program_that_leaves_another_behind_does_not_keep_its_slot(launcher: str, tmp_path: Path) -> None:
    """The other had its standard output: the job went on beyond its time, for as long as that ran."""
    needed = tmp_path / "needed"
    needed.touch()
    other = f'{launcher}sh -c "while [ -e {needed} ]; do sleep 0.05; done"'

    async def main() -> list[str]:
        pool, job_owner = ProgramPool(f"sh -c '{other} & echo hi'"), FakeOwner()
        job_runner = JobRunner({"x": pool}, 0.1)
        job_runner.begin(RunningJob(job_owner, "A", b"", JobInfo("x", "", 1, 0.2)))
        while not job_owner.received:  # the other program runs on
            await asyncio.sleep(0.01)
        needed.unlink()
        await job_runner.close()
        return job_owner.received

    assert len(asyncio.run(main())) == 1
