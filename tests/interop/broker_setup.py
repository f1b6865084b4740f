"""A runner with real sockets, on an event loop in a thread of its own; and tools for tests that connect to it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import zmq

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.zmtp import Zmtp, encode
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.core.broker import Broker
from dragoman.core.effects import Effect
from dragoman.core.policy import Policy
from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress
from dragoman.server import clock
from dragoman.server.admission import AdmissionLimits
from dragoman.server.asyncio_host import AsyncioHost
from dragoman.server.config import Config
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.event_loop import loop_factory
from dragoman.server.listener_socket import ListenerSocket
from dragoman.server.runner import Runner
from dragoman.server.serve import Server
from dragoman.store.null import NullStore
from dragoman.streams.tls_context import ListenerTls
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER
from programs import PATIENCE

PING_EVERY = 0.2
MIB = 1 << 20


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Journal:
    """Collects log lines of the runner and of structlog."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def __call__(self, level: str, event: str, /, **fields: object) -> None:
        self.lines.append((level, event, fields))

    def info(self, event: str, /, **fields: object) -> None:
        self("info", event, **fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self("warning", event, **fields)

    def error(self, event: str, /, **fields: object) -> None:
        self("error", event, **fields)

    def mentions(self, text: str, level: str = "warning") -> bool:
        return any(each == level and text in f"{event} {fields}" for each, event, fields in list(self.lines))


class LoopThread:
    """An event loop in a thread, until `close`. Runs calls from other threads."""

    def __init__(self, loop_name: str) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.troubles: list[str] = []  # exceptions that nobody caught
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(loop_name,), name="setup")
        self._thread.start()
        assert self._begun.wait(PATIENCE)

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function on the loop's thread. Returns its value or raises its exception."""
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def step() -> None:
            try:
                done.set_result(call(*args))
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(step)
        return done.result(PATIENCE)

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._over.set)
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive()

    def _main(self, loop_name: str) -> None:
        with asyncio.Runner(loop_factory=loop_factory(loop_name)) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _, context: self.troubles.append(repr(context)))
        self._over = asyncio.Event()
        self._begun.set()
        await self._over.wait()


class Setup(LoopThread):
    """A runner and its host, with the broker sides of a test."""

    def __init__(
        self, loop_name: str = "auto", limits: AdmissionLimits | None = None, policy: Policy | None = None
    ) -> None:
        super().__init__(loop_name)
        self.journal = Journal()
        self.broker = Broker(policy or Policy(), SeededEntropy())
        self.counters = self.broker.counters
        self.runner = Runner(
            self.broker, NullStore(), clock.now, self.journal, limits or AdmissionLimits(), strict=True
        )
        self.host = self.run(AsyncioHost, self.loop, self.runner)
        self.run(self.host.start)

    def open(
        self,
        session: Any,
        place: SocketAddress,
        socket_type: str = "ROUTER",
        limits: ConnectionLimits | None = None,
        carrier: Callable[[], Any] | None = None,
        tls: ListenerTls | None = None,
    ) -> SocketAddress:
        """Listen. Returns the addresses."""
        carrier = carrier or (lambda: Zmtp(socket_type, b"setup", limits=ZmtpLimits(max_payload=8 * MIB)))
        listener = ListenerSocket(session, "listener", place, carrier, limits or ConnectionLimits(), tls=tls)
        if session not in self.runner.sessions:
            self.run(self.runner.sessions.append, session)
        return self.run(self.host.listen, listener)

    def dial(self, session: Any, place: SocketAddress, carrier: Zmtp) -> StreamConnection:
        if session not in self.runner.sessions:
            self.run(self.runner.sessions.append, session)
        return self.run(self.runner.connections.dial, session, place, "dialled", carrier, LOCAL_OWNER)

    def send(self, peer: Any, frames: Sequence[Frame], mark: object = None) -> None:
        self.run(self.runner.connections.send, peer, frames, mark)

    def close(self) -> None:
        if self._thread.is_alive():
            self.run(self.host.close)
        super().close()
        assert not self.troubles, self.troubles


class BrokerSetup(LoopThread):
    """A whole broker, as `dragoman serve` runs it, with the invariants checked after every verb."""

    def __init__(self, *urls: str, loop: str = "auto", **config: Any) -> None:
        super().__init__(loop)
        self.journal = Journal()
        told = Config(listen=urls, data="memory", **{"strict": True, **config})
        self.server: Server = self.run(Server, self.loop, told, 1, self.journal)
        self.broker = self.server.broker
        self.counters = self.broker.counters
        self.runner = self.server.runner
        try:
            opened = self.run(self.server.listen)
        except BaseException:
            self.close()
            raise
        self.places = [dict(places) for _, places in opened]
        first = self.places[0]  # the first listener's endpoints, as libzmq and libnng write them
        self.workers = first["both"] if "both" in first else first["workers"]
        self.callers = first["both"] if "both" in first else first.get("callers", "")

    def close(self) -> None:
        if self._thread.is_alive():
            for http, _ in self.server._http:
                asyncio.run_coroutine_threadsafe(http.close_gently(1.0), self.loop).result(PATIENCE)
            self.run(self.server.host.close)
        super().close()
        assert not self.troubles, self.troubles
        assert not self.counters.internal_errors, self.journal.lines

    def bad(self, reason: str, dialect: str = "pingpong") -> int:
        return self.counters.bad_messages.get((dialect, reason), 0)


class Echo:
    """A broker side that echoes everything."""

    dialect = "echo"

    def __init__(self, line: Runner) -> None:
        self.runner = line
        self.present: list[StreamConnection] = []
        self.losses: list[tuple[StreamConnection, list[object]]] = []
        self.too_large: list[TooLarge] = []

    def opened(self, peer: Any, now: float) -> None:
        self.present.append(peer)

    def receive(self, peer: Any, message: Message | TooLarge, now: float) -> None:
        if isinstance(message, TooLarge):
            self.too_large.append(message)
        else:
            self.runner.connections.send(peer, message)

    def execute(self, effect: Effect, now: float) -> None:
        raise AssertionError("an echo has no jobs")

    def lost(self, peer: Any, unsent: Sequence[object], now: float) -> None:
        if peer in self.present:
            self.present.remove(peer)
        self.losses.append((peer, list(unsent)))

    def tick(self, now: float) -> float:
        return inf


class Asker(Echo):
    """A broker side that records received messages."""

    dialect = "asker"

    def __init__(self, line: Runner) -> None:
        super().__init__(line)
        self.heard: queue.Queue[Message | TooLarge] = queue.Queue()

    def receive(self, peer: Any, message: Message | TooLarge, now: float) -> None:
        self.heard.put(message)

    def next(self) -> list[bytes]:
        message = self.heard.get(timeout=PATIENCE)
        assert isinstance(message, list)
        return [bytes(frame) for frame in message]


def endpoint(place: SocketAddress) -> str:
    """Return an address as a libzmq endpoint."""
    return f"tcp://{place}" if isinstance(place, TcpAddress) else f"ipc://{place}"


def place_of(written: str) -> SocketAddress:
    if written.startswith("ipc://"):
        return UnixAddress(written[6:])
    host, _, port = written[6:].rpartition(":")
    return TcpAddress(host.strip("[]"), int(port))


class Visitors:
    """A libzmq context whose sockets have time-outs and end with the test."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._made: list[zmq.Socket] = []

    def close(self) -> None:
        for each in self._made:
            each.close(linger=0)
        self._context.term()

    def visit(self, kind: int, where: SocketAddress | str, **options: Any) -> zmq.Socket:
        visitor = self._make(kind, options)
        visitor.connect(where if isinstance(where, str) else endpoint(where))
        return visitor

    def receive(self, kind: int, where: SocketAddress, **options: Any) -> zmq.Socket:
        receiver = self._make(kind, options)
        receiver.bind(endpoint(where))
        return receiver

    def receive_inproc(self, kind: int, name: str) -> zmq.Socket:
        """A socket for others of this context."""
        receiver = self._make(kind, {})
        receiver.bind(name)
        return receiver

    def _make(self, kind: int, options: dict[str, Any]) -> zmq.Socket:
        made = self._context.socket(kind)
        self._made.append(made)
        made.linger = 0
        made.rcvtimeo = made.sndtimeo = int(PATIENCE * 1000)
        made.rcvhwm = made.sndhwm = 0
        made.ipv6 = True
        made.reconnect_ivl = 20
        for name, value in options.items():
            made.set(getattr(zmq, name.upper()), value)
        return made


def port_of(receiver: zmq.Socket) -> int:
    return int(receiver.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def ready_command(socket_type: bytes, identity: bytes = b"") -> bytes:
    body = b"\x05READY"
    for name, value in ((b"Socket-Type", socket_type), (b"Identity", identity)):
        body += bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
    return bytes((4, len(body))) + body


class Raw:
    """A plain socket that does nothing by itself: it never answers a PING."""

    def __init__(self, where: SocketAddress | str, receive_buffer: int = 0, source: str = "") -> None:
        place = place_of(where) if isinstance(where, str) else where
        if isinstance(place, UnixAddress):
            self.socket, address = socket.socket(socket.AF_UNIX), place.path
        else:
            family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
            self.socket, address = socket.socket(family), (place.host, place.port)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            self.socket.bind((source, 0))
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(address)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def greet(self, socket_type: bytes = b"DEALER", identity: bytes = b"", version: bytes = b"\x03\x01") -> Raw:
        """Complete a correct handshake."""
        greeting = OUR_GREETING[:10] + version + OUR_GREETING[12:]
        self.say(greeting + ready_command(socket_type, identity))
        self.take(len(OUR_GREETING))
        _, size = self.take(2)
        assert self.take(size).startswith(b"\x05READY")
        return self

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def message(self, *frames: bytes) -> None:
        self.say(b"".join(encode(frames)))

    def take(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            piece = self.socket.recv(count - len(taken))
            assert piece, f"the connection ended after {len(taken)} bytes of {count}"
            taken += piece
        return taken

    def next(self) -> tuple[int, bytes]:
        """Return the flags and body of the next frame."""
        flags = self.take(1)[0]
        size = int.from_bytes(self.take(8 if flags & 2 else 1), "big")
        return flags, self.take(size)

    def receive(self) -> list[bytes]:
        """Return the next message, without commands."""
        frames: list[bytes] = []
        while True:
            flags, body = self.next()
            if not flags & 4:
                frames.append(body)
                if not flags & 1:
                    return frames

    def rest(self) -> bytes:
        """Return all further bytes, until the other side closes."""
        came = b""
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(1 << 16):
                came += piece
        return came

    def reset(self) -> None:
        """Reset the connection, so that the other side's next write fails."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.socket.close()


class Workers:
    """PingPong workers on libzmq, in one thread: they send READY, ping, and run jobs with `do`."""

    def __init__(
        self,
        visitors: Visitors,
        where: str,
        count: int = 1,
        do: Callable[[bytes], bytes] = bytes,
        ping_every: float = 0.1,
    ) -> None:
        self.pongs = [0] * count
        self.jobs = 0
        self._do = do
        self._sockets = [visitors.visit(zmq.DEALER, where) for _ in range(count)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="workers")
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        poller = zmq.Poller()
        number = {}
        for index, each in enumerate(self._sockets):
            each.send_multipart([b"", b"READY"])
            poller.register(each, zmq.POLLIN)
            number[each] = index
        due = time.monotonic() + PING_EVERY
        while not self._over.is_set():
            for each, _ in poller.poll(20):
                self._answer(each, number[each])
            if time.monotonic() >= due:
                due = time.monotonic() + PING_EVERY
                for each in self._sockets:
                    each.send_multipart([b"", b"PING"])
        for each in self._sockets:
            each.close()

    def _answer(self, worker: zmq.Socket, index: int) -> None:
        word = worker.recv_multipart()[1]
        if word == b"PONG":
            self.pongs[index] += 1
        else:
            self.jobs += 1
            worker.send_multipart([b"", self._do(word)])
