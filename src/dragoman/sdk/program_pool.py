"""Runs jobs as programs: payload on standard input, result from standard output. An exit code other than 0 is a
failure."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from contextlib import suppress

from dragoman.dialects.sides import Failure
from dragoman.sdk.current_job import JOB_VARIABLE, TRACE_VARIABLE
from dragoman.sdk.exit_status import exit_text
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.parent_death import exit_with_parent
from dragoman.sdk.proof import TOKEN_VARIABLE

CLOSE_TIMEOUT = 1.0  # seconds to wait for the exit of killed programs


class ProgramPool:
    """Implements Pool. Every job starts the program once, in its own process group."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Do nothing: no program runs between jobs."""

    def begin(self, job: RunningJob) -> None:
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, job: RunningJob) -> None:
        _signal(job, signal.SIGTERM)

    def kill(self, job: RunningJob) -> None:
        _signal(job, signal.SIGKILL)
        if isinstance(job.performer, asyncio.subprocess.Process) and job.performer.returncode is not None:
            job.lost("the program ended, but a process that it started kept its output open")
            job.performer._transport.close()  # type: ignore[attr-defined]  # that process may have left the group

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT)

    async def _work(self, job: RunningJob) -> None:
        name = self._command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # a terminal's Ctrl-C must reach only the worker
                preexec_fn=exit_with_parent,
                env=_environment(job),
            )
        except OSError as error:
            job.fail(Failure("OSError", f"cannot start {name}: {error.strerror or error}"))
            return
        job.performer = process
        try:
            result, stderr = await process.communicate(bytes(job.payload))
        except asyncio.CancelledError:
            _signal(job, signal.SIGKILL)
            await process.wait()
            raise
        if not process.returncode:
            job.finish(result)
        elif job.is_cancelled:
            job.lost("the program was stopped")
        else:
            output = stderr.decode("utf-8", "replace").strip() or "no output on standard error"
            message = f"{name} ended with {exit_text(process.returncode)}: {output}"
            job.fail(Failure("subprocess.CalledProcessError", message))


def _environment(job: RunningJob) -> dict[str, str]:
    """Return the environment of the program: that of the worker without its token (R157), and the job."""
    inherited = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    inherited[JOB_VARIABLE] = job.assignment.job_id
    if job.assignment.traceparent:
        inherited[TRACE_VARIABLE] = job.assignment.traceparent
    return inherited


def _signal(job: RunningJob, number: int) -> None:
    """Send a signal to the whole process group: processes that the program started may outlive it and keep its output
    open."""
    process = job.performer
    if isinstance(process, asyncio.subprocess.Process):
        with suppress(ProcessLookupError, PermissionError):  # the group has ended
            os.killpg(process.pid, number)
