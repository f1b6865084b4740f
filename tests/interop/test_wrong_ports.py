"""A port with another protocol is identified and named: every client and every worker against every listener."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from dragoman import BrokerUnavailable, Client, LocalBroker, Worker, WrongDialect
from dragoman.sdk.address import TcpAddress
from dragoman.sdk.errors import DragomanError
from programs import PATIENCE, until

LISTEN = (
    "tcp://127.0.0.1:0",
    "pingpong+tcp://127.0.0.1:0?frontend=0",
    "powerhose+tcp://127.0.0.1:0?frontend=0",
    "memodb+tcp://127.0.0.1:0",
    "majordomo+tcp://127.0.0.1:0",
    "http://127.0.0.1:0",
)
DIALECTS = ["native", "pingpong", "powerhose", "memodb", "majordomo", "http"]

# What is said of each listener, and what clients and workers are advised.
FRONTEND = "callers connect to the frontend, which has a port of its own"
BACKEND = "workers connect to the backend, which has a port of its own"
CHECK = "check the broker's host and port"
CALLERS = "speaks PingPong or Powerhose over ZMTP (a ROUTER socket, for callers)"
SAID = {
    "native": ("speaks the native dialect over ZMTP (a ROUTER socket)", "use tcp://{place}", "use tcp://{place}"),
    "pingpong workers": (
        "speaks PingPong over ZMTP (a ROUTER socket, for workers)",
        FRONTEND,
        "use pingpong+tcp://{place}",
    ),
    "pingpong callers": (CALLERS, "use pingpong+tcp://{place}", BACKEND),
    "powerhose workers": (
        "speaks Powerhose over ZMTP (a ROUTER socket, for workers)",
        FRONTEND,
        "use powerhose+tcp://{place}",
    ),
    "powerhose callers": (CALLERS, "use pingpong+tcp://{place}", BACKEND),
    "memodb": ("speaks MemoDB over SP (a REP socket)", *["use memodb+tcp://{place}"] * 2),
    "majordomo": ("speaks Majordomo over ZMTP (a ROUTER socket)", *["use majordomo+tcp://{place}"] * 2),
    "http": ("speaks HTTP", *["use http://{place}"] * 2),
    "silent": ("accepts connections but sends nothing", CHECK, CHECK),
    "SSH": ("speaks SSH", CHECK, CHECK),
    "SMTP": ("speaks SMTP or FTP", CHECK, CHECK),
    "Redis": ("speaks the protocol of Redis", CHECK, CHECK),
    "garbage": ("speaks an unknown protocol (first bytes: de ad be ef 00 01 02 03)", CHECK, CHECK),
    "web": ("speaks HTTP, but is not a broker", CHECK, CHECK),
}
TITLES = {
    "native": "the native dialect",
    "pingpong": "PingPong",
    "powerhose": "Powerhose",
    "memodb": "MemoDB",
    "majordomo": "Majordomo",
    "http": "HTTP",
}
RIGHT = {
    "client": {
        "native": ["native"],
        "pingpong": ["pingpong callers", "powerhose callers"],
        "powerhose": ["pingpong callers", "powerhose callers"],
        "memodb": ["memodb"],
        "majordomo": ["majordomo"],
        "http": ["http"],
    },
    "worker": {
        "native": ["native"],
        "pingpong": ["pingpong workers"],
        "powerhose": ["powerhose workers"],
        "memodb": ["memodb"],
        "majordomo": ["majordomo"],
        "http": ["http"],
    },
}
BANNERS = {
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "SMTP": b"220 example.org ESMTP\r\n",
    "garbage": bytes.fromhex("deadbeef00010203"),
}
ANSWERS = {
    "Redis": b"-ERR unknown command\r\n",
    "web": b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\nnone",
}


class Stranger(threading.Thread):
    """A server that sends a banner to new connections, or answers every message, or does neither."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True)
        self._banner, self._answer = BANNERS.get(name, b""), ANSWERS.get(name, b"")
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.join(PATIENCE)

    def _serve(self, accepted: socket.socket) -> None:
        with accepted:
            try:
                accepted.sendall(self._banner)
                while accepted.recv(65536):
                    accepted.sendall(self._answer)
            except OSError:
                pass


@contextmanager
def place_of(listener: str) -> Iterator[str]:
    """Start such a listener and return its address."""
    if listener in SAID and not any(url.startswith(listener.split()[0]) for url in (*LISTEN, "native")):
        stranger = Stranger(listener)
        yield stranger.place
        stranger.close()
    else:
        with LocalBroker(*LISTEN) as broker:
            yield broker.urls[listener].rpartition("//")[2]


def expected(dialect: str, role: str, listener: str, place: str) -> str:
    words, *advice = SAID[listener]
    own = TITLES[dialect]
    other = "" if advice[0] == CHECK or own in words else f", not {own}"
    return f"tcp://{place} {words}{other}; {advice[role == 'worker'].format(place=place)}"


def at_once(act: Callable[[str], None], dialects: list[str]) -> None:
    threads = [threading.Thread(target=act, args=(dialect,), name=dialect) for dialect in dialects]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)


@pytest.mark.parametrize("listener", SAID)
def test_every_client_names_what_it_finds(listener: str) -> None:
    """A native client on a PingPong port waited for ten seconds, and said that its connection was lost."""
    came: dict[str, object] = {}

    def call(dialect: str) -> None:
        with Client(f"{dialect}+tcp://{place}", connect_timeout=1000) as client:
            try:
                came[dialect] = client.call("default", b"x")
            except DragomanError as error:
                came[dialect] = (type(error), str(error))

    wrong = [dialect for dialect in DIALECTS if listener not in RIGHT["client"][dialect]]
    with place_of(listener) as place:
        at_once(call, wrong)
        assert came == {dialect: (WrongDialect, expected(dialect, "client", listener, place)) for dialect in wrong}


def test_an_operation_is_advised_an_address_that_has_operations() -> None:
    """`dragoman workers` at a Majordomo port was advised to use majordomo+tcp://, which has no list of workers."""
    came: dict[tuple[str, str], str] = {}

    def ask(dialect: str, listener: str) -> None:
        with Client(f"{dialect}+tcp://{places[listener]}", connect_timeout=1000) as client:
            try:
                client.workers()
            except WrongDialect as error:
                came[dialect, listener] = str(error)

    with LocalBroker(*LISTEN) as broker:
        places = {listener: broker.urls[listener].rpartition("//")[2] for listener in broker.urls}
        pairs = [(dialect, listener) for dialect in ("native", "http") for listener in places if dialect != listener]
        threads = [threading.Thread(target=ask, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        needs = (
            "this request needs a native (tcp://, ipc://) or HTTP (http://) address of the broker, which it prints "
            "when it starts"
        )
        for dialect, listener in pairs:
            place = places[listener]
            advice = SAID[listener][1].format(place=place) if listener in ("native", "http") else needs
            words = f"tcp://{place} {SAID[listener][0]}, not {TITLES[dialect]}; {advice}"
            assert came.get((dialect, listener)) == words


class Lines(logging.Handler):
    """The log lines of workers, by the names of their threads."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((threading.current_thread().name, record.getMessage()))

    def has(self, name: str, text: str) -> bool:
        return any(text in line for by, line in self._lines if by == name)


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger("dragoman.worker")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.parametrize("listener", SAID)
def test_every_worker_logs_what_it_finds(listener: str, lines: Lines) -> None:
    wrong = [dialect for dialect in DIALECTS if listener not in RIGHT["worker"][dialect]]
    done: list[bytes] = []

    def echo(payload: bytes) -> bytes:
        done.append(payload)
        return payload

    with place_of(listener) as place:
        workers = {dialect: Worker(f"{dialect}+tcp://{place}", threads=1) for dialect in wrong}
        threads = []
        for dialect, worker in workers.items():
            worker.service("default")(echo)
            threads.append(threading.Thread(target=worker.run, name=dialect, daemon=True))
            threads[-1].start()
        for dialect in wrong:
            text = expected(dialect, "worker", listener, place)
            until(lambda dialect=dialect, text=text: lines.has(dialect, text), f"{dialect} says: {text}")  # type: ignore[misc]
        for worker in workers.values():
            worker.stop()
            worker.stop()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(lines.has(dialect, "; trying again") for dialect in wrong)
        assert b"ERROR" not in done  # by which a Powerhose broker refuses what it does not know


def test_right_ports_are_not_complained_about(lines: Lines) -> None:
    """Every client and worker at its own port, with a first call that takes longer than a port is given to answer."""
    begun = threading.Event()
    release = threading.Event()

    def slow(payload: bytes) -> bytes:
        begun.set()
        release.wait(PATIENCE)
        return payload

    with LocalBroker(*LISTEN) as broker:
        for dialect in DIALECTS:
            begun.clear()
            release.clear()
            ports = broker.urls
            worker = Worker(ports.get(f"{dialect} workers") or ports[dialect], threads=1)
            worker.service("default")(slow)
            thread = threading.Thread(target=worker.run, name=dialect, daemon=True)
            thread.start()
            with Client(ports.get(f"{dialect} callers") or ports[dialect]) as client:
                until(lambda: bool(broker._workers("default")), "the worker is there")
                job = client.submit("default", b"hello")
                assert begun.wait(PATIENCE)
                threading.Event().wait(2.5)  # a fact of the outside world: what would be found out is found out by now
                release.set()
                assert job.result(PATIENCE) == b"hello"
            worker.stop()
            thread.join(PATIENCE)
            assert not lines.has(dialect, "speaks")
            assert not lines.has(dialect, "sends nothing")


@pytest.mark.parametrize("word", [b"ERROR", b"PONG"])
def test_a_result_that_looks_like_a_refusal_is_a_result(word: bytes) -> None:
    with LocalBroker("tcp://127.0.0.1:0", "pingpong+tcp://127.0.0.1:0?frontend=0") as broker:
        worker = Worker(broker.urls["native"], threads=1)
        worker.service("default")(lambda payload: word)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        until(lambda: bool(broker._workers("default")), "the worker is there")
        with Client(f"powerhose+{broker.urls['pingpong callers'].partition('+')[2]}") as client:
            if word == b"PONG":
                assert client.call("default", b"x", timeout=PATIENCE) == word
            else:  # which Powerhose's own workers' port says
                with pytest.raises(DragomanError, match="this address is for workers"):
                    client.call("default", b"x", timeout=PATIENCE)
        worker.stop()
        thread.join(PATIENCE)


def test_sockets_of_others_are_asked_nothing() -> None:
    """A ROUTER of libzmq may be any broker's, and any message to it a job."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    try:
        with Client(f"pingpong+tcp://127.0.0.1:{port}") as client:
            job = client.submit("default", b"x")
            assert router.poll(PATIENCE * 1000)
            assert router.recv_multipart()[1:] == [b"", b"x"]
            assert not router.poll(3000)
            assert not job.done()
        with (
            Client(f"tcp://127.0.0.1:{port}", connect_timeout=1000) as native,
            pytest.raises(WrongDialect, match="speaks ZMTP, not the native dialect; name the dialect of the broker"),
        ):
            native.call("default", b"x")
    finally:
        context.destroy(0)


def test_whoever_has_no_room_is_not_taken_for_a_stranger() -> None:
    """A broker that hangs up at once may have too many connections: it is tried again."""
    listening = socket.create_server(("127.0.0.1", 0))
    place = TcpAddress("127.0.0.1", listening.getsockname()[1])

    def hang_up() -> None:
        while True:
            try:
                listening.accept()[0].close()
            except OSError:
                return

    thread = threading.Thread(target=hang_up, daemon=True)
    thread.start()
    with Client(f"tcp://{place}", connect_timeout=1.0) as client, pytest.raises(BrokerUnavailable) as told:
        client.call("default", b"x")
    assert not isinstance(told.value, WrongDialect)
    how = r"(the peer closed the connection|the connection broke: .+)"  # by whether our greeting had arrived
    assert re.match(
        rf"no broker answers at {place}: {how} before the handshake was complete; check the broker's host and port, "
        "and its log",
        str(told.value),
    )
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(PATIENCE)
