"""A worker that a controller calls back: pulses on the controller's socket, a socket of its own by the id it was given.

Every exchange has a connection of its own, so there are no streams here that outlive a message: a few bytes are
written, a message is read, and it is over.
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
from dragoman.dialects.sides import Failure, Outcome
from dragoman.sdk.address import MAX_UNIX_PATH_BYTES, SocketAddress, UnixAddress, address_error
from dragoman.sdk.dialect_sides import HARD_CAP
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff, connect
from dragoman.streams.sockets import forget_unix, listen_unix, which_file

log = logging.getLogger("dragoman.worker")

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 300.0  # a controller may let a crowd that registers wait; one that has died has hung up
PARTING = 1.0  # how long the controller may take to hang up when it has answered
STALL = 10.0  # so long a controller may neither say nor take anything in the middle of an exchange
READ_BYTES = 1 << 18
WRITE_BYTES = 1 << 20
LONGEST_NAP = 3600.0
LONGEST_ID = 2**64 - 1
LIMITS = LengthPrefixLimits(max_payload=HARD_CAP)


class ControllerWorker:
    """Implements the port of the worker's side on Unix sockets."""

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
        self._woken = asyncio.Event()
        self._is_stopping = False
        self._stops_at_once = False
        self._accident: BaseException | None = None

    # ---------------------------------------------------------------- the port

    def pulse(self, head: bytes) -> None:
        self._begin(self._say(head))

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

    # ---------------------------------------------------------------- the life of a worker

    async def live(self) -> int:
        """Serve until told to stop; then finish what is in hand, and leave. Returns the exit code."""
        try:
            while not self._stops_at_once:
                self._woken.clear()
                now = self._loop.time()
                due = self._side.tick(now)
                if self._side.is_over:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(max(0.0, due - now), LONGEST_NAP)):
                        await self._woken.wait()
                if self._accident is not None:
                    raise self._accident
            self.stop_listening()
            if self._exchanges and not self._stops_at_once:
                await asyncio.wait(self._exchanges, timeout=PARTING)
        finally:
            self.stop_listening()
            for each in self._exchanges:
                each.cancel()
        return 0

    def stop(self) -> None:
        """Once: finish what is in hand, and let it be fetched. Twice: do not wait for it."""
        if self._is_stopping:
            self._stops_at_once = True
        else:
            log.info("stopping%s", " once the work in hand is done" if self._side.is_busy else "")
            self._is_stopping = True
            self._side.stop(self._loop.time())
        self._woken.set()

    def _begin(self, exchange: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(exchange)
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)
        task.add_done_callback(self._look_for_an_accident)

    def _look_for_an_accident(self, task: asyncio.Task[None]) -> None:
        """What nobody expected ends this worker, instead of leaving it there for ever without a pulse."""
        if not task.cancelled() and task.exception() is not None:
            self._accident = task.exception()
        self._woken.set()

    # ---------------------------------------------------------------- exchanges

    async def _say(self, head: bytes) -> None:
        place = UnixAddress(f"{self._folder}/main.sock")
        connected: socket.socket | None = None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                connected = await connect(self._loop, place, CONNECT_TIMEOUT)
                answer = await self._ask(connected, head)
        except OSError as error:
            self._side.unanswered(f"no controller answers at {place}: {_problem(error)}", self._loop.time())
        else:
            self._side.answered(answer, self._loop.time())
            self._woken.set()
            await self._see_it_close(connected)
        finally:
            if connected is not None:
                connected.close()

    async def _ask(self, connected: socket.socket, head: bytes) -> Frame:
        """The head that comes back. Raises OSError."""
        carrier = LengthPrefix(extra_of_pulse, limits=LIMITS)
        await self._loop.sock_sendall(connected, b"".join(carrier.encode([head])))
        message = await self._read(connected, carrier)
        if message is None:
            detail = carrier.failure.detail if carrier.failure is not None else "it hung up"
            raise ConnectionError(None, detail)
        return message[0]

    async def _see_it_close(self, connected: socket.socket) -> None:
        """The controller hangs up first. It may still be writing, though what it writes has no bytes: an empty message
        behind its length. If we were gone by then, that would kill it, as SIGPIPE kills programs in C."""
        with suppress(OSError):
            async with asyncio.timeout(PARTING):
                while await self._loop.sock_recv(connected, READ_BYTES):
                    pass

    def _accept(self, listening: socket.socket) -> None:
        try:
            connected, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors are left, or no memory
            log.error("cannot accept: %s", error)
            self._loop.remove_reader(listening)
            self._loop.call_later(1.0, self._accept_again, listening)
            return
        connected.setblocking(False)
        self._begin(self._exchange(connected))

    def _accept_again(self, listening: socket.socket) -> None:
        if self._listening is listening:
            self._loop.add_reader(listening, self._accept, listening)

    async def _exchange(self, connected: socket.socket) -> None:
        """One control message, and our answer. A connection on which no whole one comes has never been."""
        carrier = LengthPrefix(extra_of_control, single=True, limits=LIMITS)
        try:
            async with asyncio.timeout(None) as patience:
                message = await self._read(connected, carrier, patience)
                if message is not None:
                    answer = self._side.receive(message[0], message[1], self._loop.time())
                elif carrier.failure is not None:
                    answer = self._side.refuse(carrier.failure.detail)
                else:
                    return
                self._woken.set()
                await self._answer(connected, carrier, answer, patience)
        except OSError as error:
            log.warning("an exchange with the controller was cut short: %s", _problem(error))
        finally:
            connected.close()

    async def _answer(
        self, connected: socket.socket, carrier: LengthPrefix, answer: Answer, patience: asyncio.Timeout
    ) -> None:
        is_whole = False
        try:
            for buffer in carrier.encode(answer.frames):
                view = memoryview(buffer)
                for start in range(0, len(view), WRITE_BYTES):
                    patience.reschedule(self._loop.time() + STALL)
                    await self._loop.sock_sendall(connected, view[start : start + WRITE_BYTES])
            is_whole = True
        finally:
            # At once: whoever has read our last byte may say the next thing right away.
            self._side.said(answer, is_whole, self._loop.time())

    async def _read(
        self, connected: socket.socket, carrier: LengthPrefix, patience: asyncio.Timeout | None = None
    ) -> Message | None:
        """One message; none if the connection ended first, or the carrier has failed."""
        while carrier.failure is None:
            if patience is not None:
                patience.reschedule(self._loop.time() + STALL)
            data = await self._loop.sock_recv(connected, READ_BYTES)
            if not data:
                return None
            for message in carrier.feed(data):
                assert isinstance(message, list)
                return message
        return None

    # ---------------------------------------------------------------- jobs

    def finished(self, job: RunningJob, result: Frame) -> None:
        self._side.finished(job.job_ref, result, self._loop.time())
        self._woken.set()

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        self._side.failed(job.job_ref, reason, self._loop.time())
        self._woken.set()

    def returned(self, job: RunningJob) -> None:
        raise AssertionError("nobody recalls jobs in this dialect")

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        """This wire has no words for it."""


def _problem(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    return error.strerror or str(error) or "it took too long"


def _folder(place: SocketAddress) -> str:
    """Where the sockets are. Raises AddressError."""
    if not isinstance(place, UnixAddress):
        raise address_error(
            f"controller+tcp://{place}", "controllers and their workers meet in a folder: controller+unix:///FOLDER"
        )
    folder = place.path.rstrip("/")
    longest = len(f"{folder}/{LONGEST_ID}.sock".encode())
    if longest > MAX_UNIX_PATH_BYTES:
        raise address_error(
            f"controller+unix://{place}",
            f"the sockets in this folder may have paths of {longest} bytes; {MAX_UNIX_PATH_BYTES} are allowed",
        )
    return folder
