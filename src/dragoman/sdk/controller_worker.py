"""Worker loop of Worker-Controller: sends pulses to the controller's socket and listens on a socket named by its id.

Every exchange uses a new connection: one message is written, one is read, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Coroutine, Hashable
from contextlib import suppress
from typing import Any

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.length_prefix import LengthPrefix, LengthPrefixLimits
from dragoman.dialects.controller.codec import extra_of_control, extra_of_pulse
from dragoman.dialects.controller.peer import Answer, WorkerSide
from dragoman.dialects.sides import MAX_PAYLOAD, Failure, Outcome
from dragoman.sdk.address import MAX_UNIX_PATH_BYTES, SocketAddress, UnixAddress, address_error
from dragoman.sdk.dialect_sides import HARD_CAP
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff, connect
from dragoman.streams.sockets import forget_unix, listen_unix, which_file

log = logging.getLogger("dragoman.worker")

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 300.0  # seconds; many workers may register at once. A dead controller closes the connection earlier
CLOSE_TIMEOUT = 1.0  # seconds that the controller may take to close the connection after its answer
STALL = 10.0  # seconds without any bytes, in either direction, after which an exchange is aborted
READ_BYTES = 1 << 18
WRITE_BYTES = 1 << 20
MAX_SLEEP = 3600.0
LONGEST_ID = 2**64 - 1
LIMITS = LengthPrefixLimits(max_payload=HARD_CAP)


class ControllerWorker:
    """Implements the I/O of the worker side on Unix sockets."""

    def __init__(self, target: Target, job_runner: JobRunner) -> None:
        """Raises AddressError."""
        self._folder = _folder(target.place)
        self._job_runner = job_runner
        self._side = WorkerSide(target.options, self, BackOff(random.uniform, cap=5.0))
        self._loop = asyncio.get_running_loop()
        self._listening: socket.socket | None = None
        self._path = ""
        self._file: tuple[int, int] | None = None
        self._exchanges: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._stops_at_once = False
        self._task_error: BaseException | None = None

    # ---------------------------------------------------------------- calls from the worker side

    def pulse(self, head: bytes) -> None:
        self._begin(self._send_pulse(head))

    def listen(self, worker_id: int) -> str | None:
        path = f"{self._folder}/{worker_id}.sock"
        try:
            listening = listen_unix(path)
        except OSError as error:
            return str(error)
        self._listening, self._path, self._file = listening, path, which_file(path)
        self._loop.add_reader(listening, self._accept, listening)
        log.info("registered at %s as worker %d", self._folder, worker_id)
        return None

    def stop_listening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            self._loop.remove_reader(listening)
            with suppress(OSError):
                forget_unix(self._path, self._file)
            listening.close()

    def run(self, job_ref: Hashable, payload: Frame) -> None:
        self._job_runner.begin(RunningJob(self, job_ref, payload))

    def log_limited(self, problem: str) -> None:
        log.warning("%s", problem)

    # ---------------------------------------------------------------- worker loop

    async def serve(self) -> int:
        """Serve until `stop` is called, finish the running job and leave. Returns the exit code."""
        try:
            while not self._stops_at_once:
                self._wake.clear()
                now = self._loop.time()
                due = self._side.tick(now)
                if self._side.is_over:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(max(0.0, due - now), MAX_SLEEP)):
                        await self._wake.wait()
                if self._task_error is not None:
                    raise self._task_error
            self.stop_listening()
            if self._exchanges and not self._stops_at_once:
                await asyncio.wait(self._exchanges, timeout=CLOSE_TIMEOUT)
        finally:
            self.stop_listening()
            for each in self._exchanges:
                each.cancel()
        return 0

    def stop(self) -> None:
        """Finish the running job and let the controller fetch its result; the second call stops at once."""
        if self._is_stopping:
            self._stops_at_once = True
        else:
            log.info("stopping%s", " when the running jobs have ended" if self._side.is_busy else "")
            self._is_stopping = True
            self._side.stop(self._loop.time())
        self._wake.set()

    def _begin(self, exchange: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(exchange)
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)
        task.add_done_callback(self._check_task)

    def _check_task(self, task: asyncio.Task[None]) -> None:
        """End the worker after an unexpected error; otherwise it would go on without sending pulses."""
        if not task.cancelled() and task.exception() is not None:
            self._task_error = task.exception()
        self._wake.set()

    # ---------------------------------------------------------------- exchanges

    async def _send_pulse(self, head: bytes) -> None:
        place = UnixAddress(f"{self._folder}/main.sock")
        connected: socket.socket | None = None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                connected = await connect(self._loop, place, CONNECT_TIMEOUT)
                answer = await self._exchange_pulse(connected, head)
        except OSError as error:
            self._side.unanswered(f"no controller answers at {place}: {_problem(error)}", self._loop.time())
        else:
            self._side.answered(answer, self._loop.time())
            self._wake.set()
            await self._wait_for_close(connected)
        finally:
            if connected is not None:
                connected.close()

    async def _exchange_pulse(self, connected: socket.socket, head: bytes) -> Frame:
        """Send a head and return the head of the response. Raises OSError."""
        carrier = LengthPrefix(extra_of_pulse, limits=LIMITS)
        await self._loop.sock_sendall(connected, b"".join(carrier.encode([head])))
        message = await self._read(connected, carrier)
        if message is None:
            detail = carrier.failure.detail if carrier.failure is not None else "it closed the connection"
            raise ConnectionError(None, detail)
        return message[0]

    async def _wait_for_close(self, connected: socket.socket) -> None:
        """Wait until the controller closes the connection. It may still write an empty message; if this side were
        closed by then, SIGPIPE would kill a controller written in C."""
        with suppress(OSError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                while await self._loop.sock_recv(connected, READ_BYTES):
                    pass

    def _accept(self, listening: socket.socket) -> None:
        try:
            connected, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # out of file descriptors or memory
            log.error("accept failed: %s", error)
            self._loop.remove_reader(listening)
            self._loop.call_later(1.0, self._accept_again, listening)
            return
        connected.setblocking(False)
        self._begin(self._exchange(connected))

    def _accept_again(self, listening: socket.socket) -> None:
        if self._listening is listening:
            self._loop.add_reader(listening, self._accept, listening)

    async def _exchange(self, connected: socket.socket) -> None:
        """Receive one control message and answer it. A connection without a complete message is ignored."""
        carrier = LengthPrefix(extra_of_control, single=True, limits=LIMITS)
        try:
            async with asyncio.timeout(None) as stall_timer:
                message = await self._read(connected, carrier, stall_timer)
                if message is not None:
                    answer = self._side.receive(message[0], message[1], self._loop.time())
                elif carrier.failure is not None:
                    answer = self._side.refuse(carrier.failure.detail)
                else:
                    return
                self._wake.set()
                await self._answer(connected, carrier, answer, stall_timer)
        except OSError as error:
            log.warning("exchange with the controller aborted: %s", _problem(error))
        finally:
            connected.close()

    async def _answer(
        self, connected: socket.socket, carrier: LengthPrefix, answer: Answer, stall_timer: asyncio.Timeout
    ) -> None:
        is_whole = False
        try:
            for buffer in carrier.encode(answer.frames):
                view = memoryview(buffer)
                for start in range(0, len(view), WRITE_BYTES):
                    stall_timer.reschedule(self._loop.time() + STALL)
                    await self._loop.sock_sendall(connected, view[start : start + WRITE_BYTES])
            is_whole = True
        finally:
            # At once: after the last byte the controller may send its next message immediately.
            self._side.said(answer, is_whole, self._loop.time())

    async def _read(
        self, connected: socket.socket, carrier: LengthPrefix, stall_timer: asyncio.Timeout | None = None
    ) -> Message | None:
        """Return one message, or None if the connection ended first or the carrier has failed."""
        while carrier.failure is None:
            if stall_timer is not None:
                stall_timer.reschedule(self._loop.time() + STALL)
            data = await self._loop.sock_recv(connected, READ_BYTES)
            if not data:
                return None
            for message in carrier.feed(data):
                assert isinstance(message, list)
                return message
        return None

    # ---------------------------------------------------------------- jobs

    @property
    def max_payload(self) -> int:
        return MAX_PAYLOAD

    def finished(self, job: RunningJob, result: Frame) -> None:
        self._side.finished(job.job_ref, result, self._loop.time())
        self._wake.set()

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        self._side.failed(job.job_ref, reason, self._loop.time())
        self._wake.set()

    def returned(self, job: RunningJob) -> None:
        raise AssertionError("this dialect does not cancel jobs")

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        """Ignored: the dialect does not support reports."""


def _problem(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return error.strerror or str(error) or "timed out"


def _folder(place: SocketAddress) -> str:
    """Return the folder of the sockets. Raises AddressError."""
    if not isinstance(place, UnixAddress):
        raise address_error(
            f"controller+tcp://{place}", "controllers and workers share a folder; use controller+unix:///FOLDER"
        )
    folder = place.path.rstrip("/")
    longest = len(f"{folder}/{LONGEST_ID}.sock".encode())
    if longest > MAX_UNIX_PATH_BYTES:
        raise address_error(
            f"controller+unix://{place}",
            f"a socket path in this folder may have {longest} bytes; {MAX_UNIX_PATH_BYTES} are allowed",
        )
    return folder
