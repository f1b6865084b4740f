"""Jobs as programs: payload on standard input, result from standard output, any exit code but 0 is a failure."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from contextlib import suppress

from dragoman.dialects.sides import Failure
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.parent_death import exit_with_parent

PARTING = 1.0  # until the ends of killed programs have been seen


class ProgramPool:
    """Implements Hands: every job starts the program anew, in a process group of its own."""

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """There is nothing to be kept warm."""

    def begin(self, job: RunningJob) -> None:
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, job: RunningJob) -> None:
        _signal(job, signal.SIGTERM)

    def kill(self, job: RunningJob) -> None:
        _signal(job, signal.SIGKILL)
        if isinstance(job.performer, asyncio.subprocess.Process) and job.performer.returncode is not None:
            job.lost("what it had started kept its output open")
            job.performer._transport.close()  # type: ignore[attr-defined]  # its holder may have left the group

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PARTING)

    async def _work(self, job: RunningJob) -> None:
        name = self._words[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # the terminal's Ctrl-C is for us
                preexec_fn=exit_with_parent,
            )
        except OSError as error:
            job.fail(Failure("OSError", f"cannot run {name}: {error.strerror or error}"))
            return
        job.performer = process
        try:
            result, complaint = await process.communicate(bytes(job.payload))
        except asyncio.CancelledError:
            _signal(job, signal.SIGKILL)
            await process.wait()
            raise
        if not process.returncode:
            job.finish(result)
        elif job.is_cancelled:
            job.lost("it was stopped")
        else:
            said = complaint.decode("utf-8", "replace").strip()
            told = f"{name} ended with exit code {process.returncode}: {said or 'it said nothing'}"
            job.fail(Failure("subprocess.CalledProcessError", told))


def _signal(job: RunningJob, number: int) -> None:
    """To its whole group: what it has started may go on when it has ended itself, and hold its output open."""
    process = job.performer
    if isinstance(process, asyncio.subprocess.Process):
        with suppress(ProcessLookupError, PermissionError):  # nobody is left
            os.killpg(process.pid, number)
