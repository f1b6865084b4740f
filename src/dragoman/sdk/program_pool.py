"""Runs jobs as programs: payload on standard input, result from standard output. An exit code other than 0 is a
failure.

A job ends when its program ends, even if a process that it has started still has its output open: what is in the pipes
at that moment is the output. Neither output can fill this process: a program that writes more than `max_payload` to
standard output is ended, and of standard error only the last bytes are kept.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import signal
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dragoman.dialects.sides import Failure
from dragoman.sdk.current_job import JOB_VARIABLE, TRACE_VARIABLE
from dragoman.sdk.exit_status import exit_text
from dragoman.sdk.handlers import MOST_MESSAGE
from dragoman.sdk.job_runner import RunningJob
from dragoman.sdk.parent_death import exit_with_parent
from dragoman.sdk.proof import TOKEN_VARIABLE

CLOSE_TIMEOUT = 1.0  # seconds to wait for the exit of killed programs
PIPE_BYTES: Final = 1 << 16  # of one read or write
ERROR_BYTES: Final = 1 << 16  # of standard error that are kept: the last ones


KILLED = object()  # performer of a job that was killed before its program had started


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

    def has_ended(self, job: RunningJob) -> bool:
        return job.is_over or (isinstance(job.performer, Program) and job.performer.has_exited())

    def cancel(self, job: RunningJob) -> None:
        if isinstance(job.performer, Program):
            job.performer.signal(signal.SIGTERM)

    def kill(self, job: RunningJob) -> None:
        if isinstance(job.performer, Program):
            job.performer.kill()
        else:
            job.performer = KILLED

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT)

    async def _work(self, job: RunningJob) -> None:
        name = self._command[0]
        program = Program(job)
        try:
            await program.start(self._command, _environment(job))
            is_killed, job.performer = job.performer is KILLED, program
            if is_killed:  # while it was started, which takes longer than the grace period in a large process
                program.kill()
            elif job.is_cancelled:
                program.signal(signal.SIGTERM)
            code = await program.ended()
        except OSError as error:
            job.fail(Failure("OSError", f"cannot start {name}: {error.strerror or error}"))
            return
        finally:
            program.close()
        if program.is_over_limit:
            most = job.job_owner.max_payload
            message = (
                f"{name} wrote more than {most} bytes to standard output, over max_payload {most}, and was ended; let "
                "it write less, or set a higher max_payload at the broker's listener"
            )
            job.fail(Failure("ValueError", message))
        elif not code:
            job.finish(program.output)
        else:
            job.fail(Failure("subprocess.CalledProcessError", _error_message(name, code, program.errors)))


class Program:
    """One process of the program, with pipes to its standard input, output and error.

    The pipes are this class's own, because those of asyncio end with the last process that has them open."""

    def __init__(self, job: RunningJob) -> None:
        self.output = bytearray()
        self.errors = bytearray()
        self.is_over_limit = False  # it has written more to standard output than a result may have
        self._job = job
        self._most = job.job_owner.max_payload
        self._unwritten = memoryview(job.payload)
        self._loop = asyncio.get_running_loop()
        self._process: asyncio.subprocess.Process | None = None
        self._ends: dict[str, int] = {}  # file descriptors of this side
        self._open = 0  # outputs that have not ended
        self._is_silent = asyncio.Event()  # both outputs have ended, or the program was killed

    async def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Raises OSError."""
        theirs = []
        try:
            for name in ("input", "output", "errors"):
                reading, writing = os.pipe()
                ours, other = (writing, reading) if name == "input" else (reading, writing)
                theirs.append(other)
                self._ends[name] = ours
                os.set_blocking(ours, False)
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                start_new_session=True,  # a terminal's Ctrl-C must reach only the worker
                preexec_fn=exit_with_parent,
                env=environment,
            )
        finally:
            for each in theirs:
                os.close(each)
        self._open = 2
        self._loop.add_reader(self._ends["output"], self._read, "output", self._take_output)
        self._loop.add_reader(self._ends["errors"], self._read, "errors", self._take_errors)
        self._loop.add_writer(self._ends["input"], self._write)

    async def ended(self) -> int:
        """Wait until the program has ended, and return its exit code. If it was cancelled, processes that it has
        started may still clean up: wait until they have closed its output, or the grace period is over."""
        assert self._process is not None, "it was not started"
        try:
            code = await self._process.wait()
            if self._job.is_cancelled:
                await self._is_silent.wait()
        except asyncio.CancelledError:
            self.kill()
            await self._process.wait()
            raise
        for name, take in (("output", self._take_output), ("errors", self._take_errors)):
            left = _bytes_in(self._ends[name]) if name in self._ends else 0
            while left > 0 and name in self._ends:
                left -= self._read(name, take) or left
        return code

    def has_exited(self) -> bool:
        """Tell if the program has ended, even if the event loop has not noticed it yet."""
        assert self._process is not None, "it was not started"
        if self._process.returncode is None and hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # its end is being reported
                return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            return True
        return self._process.returncode is not None

    def signal(self, number: int) -> None:
        """Send a signal to the process group: processes that the program has started may outlive it."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):  # the group has ended
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._is_silent.set()  # a process that has left the group may keep the output open

    def close(self) -> None:
        for name in list(self._ends):
            self._close(name)

    # ---------------------------------------------------------------- pipes

    def _read(self, name: str, take: Callable[[bytes], None]) -> int:
        """Read once. Return the number of bytes."""
        try:
            data = os.read(self._ends[name], PIPE_BYTES)
        except BlockingIOError:
            return 0
        if data:
            take(data)
        else:
            self._close(name)
            self._open -= 1
            if not self._open:
                self._is_silent.set()
        return len(data)

    def _take_output(self, data: bytes) -> None:
        self.output += data
        if len(self.output) > self._most:
            self.is_over_limit = True
            self.output.clear()
            self._close("output")
            self.kill()

    def _take_errors(self, data: bytes) -> None:
        self.errors += data
        if len(self.errors) > 2 * ERROR_BYTES:  # not at each read: that would move all kept bytes
            del self.errors[:-ERROR_BYTES]

    def _write(self) -> None:
        try:
            written = os.write(self._ends["input"], self._unwritten[:PIPE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._close("input")
            return
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            self._close("input")

    def _close(self, name: str) -> None:
        end = self._ends.pop(name, None)
        if end is not None:
            self._loop.remove_reader(end)
            self._loop.remove_writer(end)
            os.close(end)


def _bytes_in(pipe: int) -> int:
    """Return the number of bytes that can be read now."""
    size: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return size


def _error_message(name: str, code: int, errors: bytearray) -> str:
    """Return the message of a program that has failed, with the end of its standard error."""
    ending = f"{name} ended with {exit_text(code)}: "
    kept = errors.decode("utf-8", "replace").strip()
    if not kept:
        return f"{ending}no output on standard error"
    most = MOST_MESSAGE - len(ending)
    return ending + (kept if len(kept) <= most else "…" + kept[1 - most :])


def _environment(job: RunningJob) -> dict[str, str]:
    """Return the environment of the program: that of the worker without its token (R157), and the job."""
    inherited = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    inherited[JOB_VARIABLE] = job.assignment.job_id
    if job.assignment.traceparent:
        inherited[TRACE_VARIABLE] = job.assignment.traceparent
    return inherited
