"""A Powerhose worker: it registers with a master, and is called back at an endpoint of its own."""

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
from dragoman.dialects.sides import Failure, Outcome
from dragoman.sdk.address import AddressError, SocketAddress, TcpAddress, UnixAddress, is_loopback, parse
from dragoman.sdk.dialect_sides import HARD_CAP
from dragoman.sdk.dialling_worker import CONNECT_TIMEOUT, first
from dragoman.sdk.errors import BrokerUnavailable
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.outgoing import OutgoingConnection, open_connection
from dragoman.sdk.recognition import FIRST_SIGN, Recognition
from dragoman.sdk.targets import Target
from dragoman.sdk.zmq_endpoint import url_from_endpoint
from dragoman.streams.dial import BackOff
from dragoman.streams.sockets import describe, forget_unix, listen_tcp, listen_unix, tune, which_file
from dragoman.streams.stream import Stream

log = logging.getLogger("dragoman.worker")

HANDSHAKE_TIMEOUT = 10.0
MAX_CALLERS = 100  # connections to our endpoint: a master has one, and opens the next when that is gone
LONGEST_SLEEP = 3600.0  # where nothing is due
ACCEPT_REST = 1.0  # when there are no descriptors left

_numbers = itertools.count(1)


class PowerhoseWorker:
    """Implements the worker's port on real connections: one to the master, and those that masters open to us."""

    def __init__(self, target: Target, job_runner: JobRunner) -> None:
        self._target = target
        self._job_runner = job_runner
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=min(5.0, target.options.ping_every / 2))
        self._recognition = Recognition(target, "worker")
        self._side: WorkerSide | None = None  # none until we listen
        self._link: OutgoingConnection | None = None
        self._lost = asyncio.Event()  # the connection to the master is gone
        self._is_misunderstood = False  # what came last from it
        self._callers: dict[MasterConnection, None] = {}
        self._changed = asyncio.Event()  # something happened: look again whether we are done
        self._is_told = False
        self._at_once = asyncio.Event()

    # ---------------------------------------------------------------- the port

    def register(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def reconnect(self, reason: str) -> None:
        log.warning("reconnecting: %s", reason)
        self._lose_link()

    def answer(self, caller: Hashable, frames: Sequence[Frame]) -> None:
        assert isinstance(caller, MasterConnection)
        caller.send(frames)

    def hang_up(self, caller: Hashable, reason: str) -> None:
        assert isinstance(caller, MasterConnection)
        log.warning("hanging up on the master at %s: %s", caller.label, reason)
        caller.part()

    def run(self, job_ref: Hashable, payload: Frame) -> None:
        self._job_runner.begin(RunningJob(self, job_ref, payload))

    def leaving(self, reason: str) -> None:
        log.error("leaving: %s", reason)

    # ---------------------------------------------------------------- the life of a worker

    async def live(self) -> int:
        """Serve until told to stop, or until the master stays away. Raises AddressError if we cannot listen."""
        try:
            door = CallbackListener(self._target.options.endpoint, self._target.place)
        except BrokerUnavailable as problem:
            log.error("%s", problem)
            return MASTER_AWAY
        side = self._side = WorkerSide(self._target.options, door.endpoint, self, self._loop.time())
        log.info("masters reach us at %s", door.endpoint)
        door.open(self._loop, self._accept)
        connecting = self._loop.create_task(self._stay_connected(side))
        connecting.add_done_callback(lambda _: self._changed.set())
        try:
            if self._is_told:
                side.stop(self._loop.time())
            await self._serve(side, connecting)
            door.close()
            await self._part()
        finally:
            connecting.cancel()
            door.close()
            self._lose_link()
            for caller in list(self._callers):
                caller.close()
        return side.exit_code

    def stop(self) -> None:
        """Once: finish what is in hand. Twice: do not wait for it."""
        if self._is_told:
            self._at_once.set()
        else:
            self._is_told = True
            if self._side is not None:
                log.info("stopping%s", " once the work in hand is done" if self._side.is_busy else "")
                self._side.stop(self._loop.time())
        self._changed.set()

    async def _serve(self, side: WorkerSide, connecting: asyncio.Task[None]) -> None:
        while not self._at_once.is_set():
            self._changed.clear()
            due = side.tick(self._loop.time())
            now = self._loop.time()
            if side.is_over(now):
                return
            if connecting.done():
                connecting.result()  # it never ends but by a fault of ours
            await first(self._changed.wait(), asyncio.sleep(max(0.001, min(due - now, LONGEST_SLEEP))))

    async def _stay_connected(self, side: WorkerSide) -> None:
        place = self._target.place
        while True:
            lost = self._lost = asyncio.Event()
            carrier = Zmtp(REGISTRATION_SOCKET, dials=True, limits=ZmtpLimits(max_payload=HARD_CAP))
            try:
                opening = open_connection(place, carrier, self._heard, self._ended, CONNECT_TIMEOUT)
                link = await self._recognition.open(opening)
            except BrokerUnavailable as problem:
                log.warning("%s", problem)
            else:
                if lost.is_set():  # it was given up before we had it in hand
                    link.close()
                else:
                    self._link = link
                    log.info("connected to %s", place)
                    self._is_misunderstood = False
                    side.opened(self._loop.time())
                    self._changed.set()
                    await self._look_at_port(lost)
                await lost.wait()
            await asyncio.sleep(self._back_off.next())

    async def _look_at_port(self, lost: asyncio.Event) -> None:
        """A master connects to us once we have registered. If none does, or something came that no master says, find
        out what this port is. PingPong answers a registration as a master does."""
        await first(lost.wait(), asyncio.sleep(FIRST_SIGN))
        if not lost.is_set() or self._is_misunderstood:
            problem = await self._recognition.problem(thorough=self._is_misunderstood)
            if problem is not None:
                log.warning("%s", problem)
                self._lose_link()

    async def _part(self) -> None:
        """Whoever has something of ours on its way gets it, then all hang up."""
        while any(each.backlog for each in self._callers) and not self._at_once.is_set():
            await first(self._at_once.wait(), asyncio.sleep(0.01))
        for each in list(self._callers):
            each.part()
        while self._callers and not self._at_once.is_set():
            self._changed.clear()
            await self._changed.wait()

    # ---------------------------------------------------------------- our connection to the master

    def _heard(self, message: Message | TooLarge) -> None:
        if self._side is not None and not self._lost.is_set():
            self._back_off.reset()  # only a master that speaks to us is worth coming back to at once
            self._side.receive(message, self._loop.time())
            self._is_misunderstood = self._lost.is_set()
            self._changed.set()

    def _ended(self, problem: str) -> None:
        if not self._lost.is_set():
            log.warning("the connection to %s ended: %s", self._target.place, problem)
            self._lose_link()

    def _lose_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if self._side is not None:
            self._side.lost()
        self._lost.set()
        self._changed.set()

    # ---------------------------------------------------------------- masters' connections to us

    def _accept(self, accepted: socket.socket) -> None:
        if len(self._callers) >= MAX_CALLERS:
            log.warning("a master is turned away: %d connections to our endpoint are open already", MAX_CALLERS)
            accepted.close()
            return
        self._recognition.is_known = True
        self._callers[MasterConnection(self._loop, accepted, self._ordered, self._hung_up)] = None

    def _ordered(self, caller: MasterConnection, message: Message | TooLarge) -> None:
        assert self._side is not None
        self._side.order(caller, message, self._loop.time())
        self._changed.set()

    def _hung_up(self, caller: MasterConnection) -> None:
        assert self._side is not None
        self._callers.pop(caller, None)
        self._side.hung_up(caller, self._loop.time())
        self._changed.set()

    # ---------------------------------------------------------------- jobs

    def finished(self, job: RunningJob, result: Frame) -> None:
        assert self._side is not None
        self._side.finished(job.job_ref, result, self._loop.time())
        self._changed.set()

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        assert self._side is not None
        self._side.failed(job.job_ref, reason, self._loop.time())
        self._changed.set()

    def returned(self, job: RunningJob) -> None:
        raise AssertionError("nobody recalls jobs in this dialect")

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        """This wire has no words for it."""


class MasterConnection:
    """A connection that a master has opened to us."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        heard: Callable[[MasterConnection, Message | TooLarge], None],
        ended: Callable[[MasterConnection], None],
    ) -> None:
        self.label = describe(accepted)[0]
        self._loop = loop
        self._heard = heard
        self._ended = ended
        self._is_over = False
        self._is_parting = False
        self._carrier = Zmtp(WORK_SOCKET, limits=ZmtpLimits(max_payload=HARD_CAP))
        self._stream = Stream(loop, accepted, self._carrier)
        self._alarm = loop.call_later(HANDSHAKE_TIMEOUT, self._end, "no handshake")
        self._stream.start(self._arrived, self._end)
        self._flush()

    @property
    def backlog(self) -> int:
        """Bytes that the kernel has not taken yet: `close` would drop them."""
        return self._stream.backlog

    def send(self, frames: Sequence[Frame]) -> None:
        self._stream.write(self._carrier.encode(frames))

    def part(self) -> None:
        """Hang up, and wait a moment for the master to notice. Nothing that it still says is heard."""
        if not self._is_parting and not self._is_over:
            self._is_parting = True
            self._alarm.cancel()
            self._alarm = self._loop.call_later(PARTING, self._end, "it has not noticed")
            self._stream.finish()

    def close(self) -> None:
        self._is_over = True
        self._alarm.cancel()
        self._carrier.release()
        self._stream.close()

    def _arrived(self, messages: Messages) -> None:
        self._flush()
        if self._carrier.failure is not None:
            log.warning("%s is no master: %s", self.label, self._carrier.failure.detail)
            self._end("it does not speak our language")
            return
        if self._carrier.ready and not self._is_parting:
            self._alarm.cancel()
        for message in messages:
            if not self._is_parting and not self._is_over:
                self._heard(self, message)

    def _flush(self) -> None:
        if self._carrier.outgoing:
            outgoing, self._carrier.outgoing = self._carrier.outgoing, []
            self._stream.write(list(outgoing))

    def _end(self, _: str) -> None:
        if not self._is_over:
            self.close()
            self._ended(self)


class CallbackListener:
    """Where masters reach us: a listening socket, and how we tell of it."""

    def __init__(self, asked: str, master: SocketAddress) -> None:
        """Raises AddressError; BrokerUnavailable if no address of ours reaches the master."""
        place = _place(asked, master)
        self._loop: asyncio.AbstractEventLoop | None = None  # none unless we are open
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
            hint = "; each worker needs an endpoint of its own" if asked else "; choose another place with endpoint="
            raise AddressError(f"endpoint {asked or place}: {error.strerror or error}{hint}") from error
        if isinstance(place, TcpAddress):
            try:
                self.endpoint = _endpoint_of(self._listening, master)
            except BaseException:
                self._listening.close()
                raise
            if not is_loopback(place):
                log.warning(
                    "listening without authentication at %s: whoever reaches it may give us jobs", self.endpoint
                )

    def open(self, loop: asyncio.AbstractEventLoop, accepted: Callable[[socket.socket], None]) -> None:
        self._loop = loop
        loop.add_reader(self._listening, self._accept, accepted)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._listening)
            self._loop = None
            with suppress(OSError):  # its folder has gone, or is not ours any more
                forget_unix(self._path, self._file)
            self._listening.close()

    def _accept(self, accepted: Callable[[socket.socket], None]) -> None:
        try:
            connected, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.error("cannot accept a master's connection: %s", error)
            self._rest(accepted)
            return
        try:
            tune(connected)
        except OSError:  # it has gone already
            connected.close()
            return
        accepted(connected)

    def _rest(self, accepted: Callable[[socket.socket], None]) -> None:
        loop = self._loop
        assert loop is not None
        loop.remove_reader(self._listening)
        loop.call_later(ACCEPT_REST, lambda: self.open(loop, accepted) if self._loop is not None else None)


def _place(asked: str, master: SocketAddress) -> SocketAddress:
    """Where to listen. Where the master is on this machine: a socket in the temporary directory, which ours dials
    unless it is told otherwise (base=)."""
    if asked:
        return parse(url_from_endpoint(asked, "powerhose"), ("powerhose",)).place
    if not is_loopback(master):
        return TcpAddress(_own_address(master), 0)
    while True:
        name = f"dragoman-powerhose-{os.getpid()}-{next(_numbers)}.ipc"
        path = os.path.join(tempfile.gettempdir(), name)
        if not os.path.lexists(path):
            return UnixAddress(path)


def _endpoint_of(listening: socket.socket, master: SocketAddress) -> str:
    """How we tell of a TCP socket: with an address, never a name or `all addresses`, which nobody can dial."""
    host, port = listening.getsockname()[:2]
    if ip_address(host).is_unspecified:
        host = _own_address(master, listening.family)
    return f"tcp://{TcpAddress(host, port)}"


def _own_address(master: SocketAddress, family: int = socket.AF_UNSPEC) -> str:
    """Our address, as the master would see it. Raises BrokerUnavailable."""
    if isinstance(master, UnixAddress):
        return "::1" if family == socket.AF_INET6 else "127.0.0.1"
    try:
        found = socket.getaddrinfo(master.host, master.port, family, socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[4])  # nothing is sent: the system only chooses a way
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise BrokerUnavailable(f"no address of ours reaches the master at {master}: {problem}") from error
