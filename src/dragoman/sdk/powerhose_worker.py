"""Worker loop of Powerhose: registers with a master, which then connects to the worker's own endpoint."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import socket
import tempfile
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from ipaddress import ip_address

from dragoman.carriers.carrier import Frame, Message, Messages, TooLarge
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.dialects.powerhose.peer import MASTER_AWAY, PARTING, REGISTRATION_SOCKET, WORK_SOCKET, WorkerSide
from dragoman.dialects.sides import MAX_PAYLOAD, Failure, Outcome
from dragoman.sdk.address import AddressError, SocketAddress, TcpAddress, UnixAddress, is_loopback, parse
from dragoman.sdk.dialect_sides import HARD_CAP, dialling_zmtp
from dragoman.sdk.dialling_worker import CONNECT_TIMEOUT, first
from dragoman.sdk.errors import NOT_ALLOWED, BrokerUnavailable, NotAllowed
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.outgoing import OutgoingConnection, open_connection
from dragoman.sdk.recognition import SILENCE_LIMIT, Recognition
from dragoman.sdk.targets import Target
from dragoman.sdk.zmq_endpoint import url_from_endpoint
from dragoman.streams.dial import BackOff
from dragoman.streams.sockets import AF_UNIX, describe, forget_unix, listen_tcp, listen_unix, tune, which_file
from dragoman.streams.stream import Stream

log = logging.getLogger("dragoman.worker")

HANDSHAKE_TIMEOUT = 10.0
MAX_MASTERS = 100  # connections to the endpoint: a master opens one, and the next when that is lost
MAX_SLEEP = 3600.0  # seconds, if nothing is due
ACCEPT_DELAY = 1.0  # seconds without accepting, after it failed for lack of file descriptors

_numbers = itertools.count(1)


class PowerhoseWorker:
    """Implements the I/O of the worker side: one connection to the master, and those that masters open to the
    endpoint."""

    def __init__(self, target: Target, job_runner: JobRunner) -> None:
        self._target = target
        self._job_runner = job_runner
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=min(5.0, target.options.ping_every / 2))
        self._recognition = Recognition(target, "worker")
        self._side: WorkerSide | None = None  # None until the endpoint is open
        self._link: OutgoingConnection | None = None
        self._lost = asyncio.Event()  # the connection to the master is lost
        self._is_last_invalid = False  # the last message from the master was invalid
        self._masters: dict[MasterConnection, None] = {}
        self._changed = asyncio.Event()  # wakes `_run_side`
        self._is_stopping = False
        self._stop_at_once = asyncio.Event()

    # ---------------------------------------------------------------- calls from the worker side

    def register(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def reconnect(self, reason: str) -> None:
        log.warning("reconnecting: %s", reason)
        self._disconnect()

    def answer(self, caller: Hashable, frames: Sequence[Frame]) -> None:
        assert isinstance(caller, MasterConnection)
        caller.send(frames)

    def hang_up(self, caller: Hashable, reason: str) -> None:
        assert isinstance(caller, MasterConnection)
        log.warning("connection of the master at %s closed: %s", caller.label, reason)
        caller.finish()

    def run(self, job_ref: Hashable, payload: Frame) -> None:
        self._job_runner.begin(RunningJob(self, job_ref, payload))

    def leaving(self, reason: str) -> None:
        log.error("leaving: %s", reason)

    # ---------------------------------------------------------------- worker loop

    async def serve(self) -> int:
        """Serve until `stop` is called or the master is gone. Raises AddressError if the endpoint cannot be opened."""
        try:
            listener = CallbackListener(self._target.options.endpoint, self._target.place)
        except BrokerUnavailable as problem:
            log.error("%s", problem)
            return MASTER_AWAY
        side = self._side = WorkerSide(self._target.options, listener.endpoint, self, self._loop.time())
        log.info("listening for masters at %s", listener.endpoint)
        listener.open(self._loop, self._accept)
        connecting = self._loop.create_task(self._stay_connected(side))
        connecting.add_done_callback(lambda _: self._changed.set())
        try:
            if self._is_stopping:
                side.stop(self._loop.time())
            await self._run_side(side, connecting)
            listener.close()
            await self._close_masters()
        except NotAllowed as problem:
            log.error("stopping: %s", problem)
            return NOT_ALLOWED
        finally:
            connecting.cancel()
            listener.close()
            self._disconnect()
            for caller in list(self._masters):
                caller.close()
        return side.exit_code

    def stop(self) -> None:
        """Finish the running job, then stop; the second call stops at once."""
        if self._is_stopping:
            self._stop_at_once.set()
        else:
            self._is_stopping = True
            if self._side is not None:
                log.info("stopping%s", " when the running jobs have ended" if self._side.is_busy else "")
                self._side.stop(self._loop.time())
        self._changed.set()

    async def _run_side(self, side: WorkerSide, connecting: asyncio.Task[None]) -> None:
        while not self._stop_at_once.is_set():
            self._changed.clear()
            due = side.tick(self._loop.time())
            now = self._loop.time()
            if side.is_over(now):
                return
            if connecting.done():
                connecting.result()  # raises: the task ends only by NotAllowed or a programming error
            await first(self._changed.wait(), asyncio.sleep(max(0.001, min(due - now, MAX_SLEEP))))

    async def _stay_connected(self, side: WorkerSide) -> None:
        place = self._target.place
        while True:
            lost = self._lost = asyncio.Event()
            carrier = dialling_zmtp(REGISTRATION_SOCKET, self._target.proof, ZmtpLimits(max_payload=HARD_CAP))
            try:
                opening = open_connection(place, carrier, self._received, self._ended, CONNECT_TIMEOUT)
                link = await self._recognition.open(opening)
            except NotAllowed:
                raise  # ends the worker
            except BrokerUnavailable as problem:
                log.warning("%s", problem)
            else:
                if lost.is_set():  # lost before it was returned
                    link.close()
                else:
                    self._link = link
                    log.info("connected to %s", place)
                    self._is_last_invalid = False
                    side.opened(self._loop.time())
                    self._changed.set()
                    await self._identify_port(lost)
                await lost.wait()
            await asyncio.sleep(self._back_off.next())

    async def _identify_port(self, lost: asyncio.Event) -> None:
        """Identify the port if no master connects to the endpoint after the registration, or if an invalid message
        arrived. PingPong answers a registration as a master does."""
        await first(lost.wait(), asyncio.sleep(SILENCE_LIMIT))
        if not lost.is_set() or self._is_last_invalid:
            problem = await self._recognition.problem(thorough=self._is_last_invalid)
            if problem is not None:
                log.warning("%s", problem)
                self._disconnect()

    async def _close_masters(self) -> None:
        """Send all pending data to the masters, then close their connections."""
        while any(each.backlog for each in self._masters) and not self._stop_at_once.is_set():
            await first(self._stop_at_once.wait(), asyncio.sleep(0.01))
        for each in list(self._masters):
            each.finish()
        while self._masters and not self._stop_at_once.is_set():
            self._changed.clear()
            await self._changed.wait()

    # ---------------------------------------------------------------- connection to the master

    def _received(self, message: Message | TooLarge) -> None:
        if self._side is not None and not self._lost.is_set():
            self._back_off.reset()  # not before: a port that sends nothing is dialled with growing delays
            self._side.receive(message, self._loop.time())
            self._is_last_invalid = self._lost.is_set()
            self._changed.set()

    def _ended(self, problem: str) -> None:
        if not self._lost.is_set():
            log.warning("connection to %s lost: %s", self._target.place, problem)
            self._disconnect()

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if self._side is not None:
            self._side.lost()
        self._lost.set()
        self._changed.set()

    # ---------------------------------------------------------------- connections from masters

    def _accept(self, accepted: socket.socket) -> None:
        if len(self._masters) >= MAX_MASTERS:
            log.warning("connection rejected: %d connections to the endpoint are open, the maximum", MAX_MASTERS)
            accepted.close()
            return
        self._recognition.is_known = True
        self._masters[MasterConnection(self._loop, accepted, self._order_received, self._master_lost)] = None

    def _order_received(self, caller: MasterConnection, message: Message | TooLarge) -> None:
        assert self._side is not None
        self._side.order(caller, message, self._loop.time())
        self._changed.set()

    def _master_lost(self, caller: MasterConnection) -> None:
        assert self._side is not None
        self._masters.pop(caller, None)
        self._side.hung_up(caller, self._loop.time())
        self._changed.set()

    # ---------------------------------------------------------------- jobs

    @property
    def max_payload(self) -> int:
        return MAX_PAYLOAD

    def finished(self, job: RunningJob, result: Frame) -> None:
        assert self._side is not None
        self._side.finished(job.job_ref, result, self._loop.time())
        self._changed.set()

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        assert self._side is not None
        self._side.failed(job.job_ref, reason, self._loop.time())
        self._changed.set()

    def returned(self, job: RunningJob) -> None:
        raise AssertionError("this dialect does not cancel jobs")

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        """Ignored: the dialect does not support reports."""


class MasterConnection:
    """A connection that a master has opened to the endpoint."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        received: Callable[[MasterConnection, Message | TooLarge], None],
        ended: Callable[[MasterConnection], None],
    ) -> None:
        self.label = describe(accepted)[0]
        self._loop = loop
        self._received = received
        self._ended = ended
        self._is_over = False
        self._is_finishing = False
        self._carrier = Zmtp(WORK_SOCKET, limits=ZmtpLimits(max_payload=HARD_CAP))
        self._stream = Stream(loop, accepted, self._carrier)
        self._timer = loop.call_later(HANDSHAKE_TIMEOUT, self._end, "no handshake")
        self._stream.start(self._arrived, self._end)
        self._flush()

    @property
    def backlog(self) -> int:
        """Bytes that the kernel has not accepted yet; `close` would drop them."""
        return self._stream.backlog

    def send(self, frames: Sequence[Frame]) -> None:
        self._stream.write(self._carrier.encode(frames))

    def finish(self) -> None:
        """Close the sending direction, and wait a moment for the master to close. Its further messages are ignored."""
        if not self._is_finishing and not self._is_over:
            self._is_finishing = True
            self._timer.cancel()
            self._timer = self._loop.call_later(PARTING, self._end, "not closed by the master")
            self._stream.finish()

    def close(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._carrier.release()
        self._stream.close()

    def _arrived(self, messages: Messages) -> None:
        self._flush()
        if self._carrier.failure is not None:
            log.warning("%s is not a master: %s", self.label, self._carrier.failure.detail)
            self._end("invalid protocol")
            return
        if self._carrier.ready and not self._is_finishing:
            self._timer.cancel()
        for message in messages:
            if not self._is_finishing and not self._is_over:
                self._received(self, message)

    def _flush(self) -> None:
        if self._carrier.outgoing:
            outgoing, self._carrier.outgoing = self._carrier.outgoing, []
            self._stream.write(list(outgoing))

    def _end(self, _: str) -> None:
        if not self._is_over:
            self.close()
            self._ended(self)


class CallbackListener:
    """The worker's endpoint: a listening socket, and the endpoint text that is sent to the master."""

    def __init__(self, requested: str, master: SocketAddress) -> None:
        """Raises AddressError, and BrokerUnavailable if the master cannot be reached from any local address."""
        place = _place(requested, master)
        self._loop: asyncio.AbstractEventLoop | None = None  # None while it is closed
        self._file: tuple[int, int] | None = None
        self._path = ""
        try:
            if isinstance(place, UnixAddress):
                self._listening = listen_unix(place.path)
                self._path = place.path
                self._file = which_file(place.path)
                self.endpoint = f"ipc://{place.path}"
            else:
                self._listening = listen_tcp(place.host, place.port)
        except OSError as error:
            hint = "; each worker needs its own endpoint" if requested else "; set endpoint= in the URL"
            raise AddressError(f"endpoint {requested or place}: {error.strerror or error}{hint}") from error
        if isinstance(place, TcpAddress):
            try:
                self.endpoint = _endpoint_of(self._listening, master)
            except BaseException:
                self._listening.close()
                raise
            if not is_loopback(place):
                log.warning(
                    "listening without authentication at %s: any program that reaches it can run jobs", self.endpoint
                )

    def open(self, loop: asyncio.AbstractEventLoop, accepted: Callable[[socket.socket], None]) -> None:
        self._loop = loop
        loop.add_reader(self._listening, self._accept, accepted)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._listening)
            self._loop = None
            with suppress(OSError):  # its folder was removed, or its permissions have changed
                forget_unix(self._path, self._file)
            self._listening.close()

    def _accept(self, accepted: Callable[[socket.socket], None]) -> None:
        try:
            connected, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.error("accept failed: %s", error)
            self._pause_accepting(accepted)
            return
        try:
            tune(connected)
        except OSError:  # already closed by the master
            connected.close()
            return
        accepted(connected)

    def _pause_accepting(self, accepted: Callable[[socket.socket], None]) -> None:
        loop = self._loop
        assert loop is not None
        loop.remove_reader(self._listening)
        loop.call_later(ACCEPT_DELAY, lambda: self.open(loop, accepted) if self._loop is not None else None)


def _place(requested: str, master: SocketAddress) -> SocketAddress:
    """Return the address to listen on. For a master on this machine it is a Unix socket in the temporary directory,
    which a Dragoman broker may dial by default (base=); on Windows, which has none, a port on loopback."""
    if requested:
        return parse(url_from_endpoint(requested, "powerhose"), ("powerhose",)).place
    if not is_loopback(master) or AF_UNIX is None:
        return TcpAddress(_own_address(master), 0)
    while True:
        name = f"dragoman-powerhose-{os.getpid()}-{next(_numbers)}.ipc"
        path = os.path.join(tempfile.gettempdir(), name)
        if not os.path.lexists(path):
            return UnixAddress(path)


def _endpoint_of(listening: socket.socket, master: SocketAddress) -> str:
    """Return the endpoint of a TCP socket: an IP address that a master can dial, never 0.0.0.0 or `::`."""
    host, port = listening.getsockname()[:2]
    if ip_address(host).is_unspecified:
        host = _own_address(master, listening.family)
    return f"tcp://{TcpAddress(host, port)}"


def _own_address(master: SocketAddress, family: int = socket.AF_UNSPEC) -> str:
    """Return the local address that is used to reach the master. Raises BrokerUnavailable."""
    if isinstance(master, UnixAddress):
        return "::1" if family == socket.AF_INET6 else "127.0.0.1"
    try:
        found = socket.getaddrinfo(master.host, master.port, family, socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[4])  # sends nothing; the kernel only chooses a route
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise BrokerUnavailable(f"no local address reaches the master at {master}: {problem}") from error
