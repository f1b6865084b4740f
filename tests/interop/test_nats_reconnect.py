"""The broker's connection to NATS: servers of which one is killed, frozen or stopped, and TLS, as the runner dials."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest
from broker_setup import Setup

from authority import Authority
from dragoman.carriers.carrier import Frame
from dragoman.carriers.nats_connect import ConnectOptions, Credentials, TokenCredentials
from dragoman.carriers.nats_info import ServerInfo
from dragoman.cluster.nats_address import parse_nats
from dragoman.cluster.nats_client import NatsClient, NatsWatcher, Published
from dragoman.cluster.nats_side import NatsSide, NatsState
from dragoman.cluster.requests import Answer, AnswerKind
from dragoman.cluster.server_pool import ServerPool
from dragoman.server import clock
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.testing.entropy import SeededEntropy
from nats_servers import NatsCluster, NatsServer, start_on_free_ports
from owners import LOCAL_OWNER
from programs import PATIENCE, until

LIMITS = ConnectionLimits(handshake_timeout=5.0, carrier_ping=0.5, carrier_timeout=2.0)
StartNats = Callable[[str], NatsServer]


class News(NatsWatcher):
    """Counts what happens to a connection."""

    def __init__(self) -> None:
        self.connects: list[ServerInfo] = []
        self.reasons: list[str] = []

    def connected(self, info: ServerInfo, now: float) -> None:
        self.connects.append(info)

    def away(self, reason: str, now: float) -> None:
        self.reasons.append(reason)


class BrokerOnNats:
    """A runner with real sockets and a connection to NATS, in a thread of its own."""

    def __init__(self, url: str, name: str, loop_name: str = "asyncio", credentials: Credentials | None = None) -> None:
        self.setup = Setup(loop_name)
        self.news = News()
        self.client = NatsClient(f"test.r.{name}".encode(), self.news)
        self.inbox: queue.Queue[tuple[bytes, bytes]] = queue.Queue()  # reply, payload
        options = ConnectOptions(name, credentials=credentials or Credentials())
        pool = ServerPool(parse_nats(url), SeededEntropy(name).jitter)
        self.side = NatsSide(
            self.setup.runner.connections, self.client, pool, lambda: options, LOCAL_OWNER, connection_limits=LIMITS
        )
        self.client.subscribe(f"to.{name}".encode(), self._receive)
        self.setup.run(self.setup.runner.sessions.append, self.side)
        self.setup.run(self.setup.runner.connections.request_iteration)

    def _receive(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        self.inbox.put((bytes(reply), bytes(payload)))

    @property
    def server(self) -> str:
        """Name of the server in use; empty: none."""
        info = self.setup.run(lambda: self.client.info)
        return info.server_name if info is not None else ""

    def is_connected(self) -> bool:
        return self.server != "" and self.setup.run(lambda: self.side.phase) is NatsState.CONNECTED

    def publish(self, subject: bytes, payload: bytes) -> Published:
        made: Published = self.setup.run(self.client.publish, subject, payload)
        return made

    def request(self, subject: bytes, payload: bytes, timeout: float = PATIENCE) -> Answer:
        answers: queue.Queue[Answer] = queue.Queue()

        def ask() -> None:
            def done(answer: Answer, now: float) -> bool:
                answers.put(answer)
                return False

            self.client.request(subject, payload, b"", done, timeout, clock.now())

        self.setup.run(ask)
        return answers.get(timeout=2 * PATIENCE)

    def close(self) -> None:
        self.setup.run(self.side.close)
        until(lambda: self.server == "", "the connection is closed")
        self.setup.close()


@pytest.fixture
def brokers() -> Iterator[Callable[..., BrokerOnNats]]:
    """Makes brokers that end with the test."""
    made: list[BrokerOnNats] = []

    def make(url: str, name: str, loop_name: str = "asyncio", credentials: Credentials | None = None) -> BrokerOnNats:
        made.append(BrokerOnNats(url, name, loop_name, credentials))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_runner_dials_and_messages_travel(
    nats_cluster: NatsCluster, brokers: Callable[..., BrokerOnNats], loop_name: str
) -> None:
    url = "nats://" + ",".join(each.removeprefix("nats://") for each in nats_cluster.urls)
    a, b = brokers(url, "a", loop_name), brokers(url, "b", loop_name)
    until(lambda: a.is_connected() and b.is_connected(), "both are connected")
    payload = bytes(1 << 20)
    until(lambda: a.publish(b"to.b", payload) is Published.SENT and not b.inbox.empty(), "the servers know b")
    assert b.inbox.get(timeout=PATIENCE) == (b"", payload)
    assert a.request(b"nobody", b"").kind is AnswerKind.NO_RESPONDERS
    assert a.request(b"to.b", b"question", 0.1).kind is AnswerKind.TIMED_OUT


def test_a_killed_server_is_replaced_by_one_that_it_had_named(
    nats_cluster: NatsCluster, brokers: Callable[..., BrokerOnNats], loop_name: str
) -> None:
    """The address has one server only; the others are those of its INFO."""
    first = nats_cluster.servers[0]
    a = brokers(first.url, "k", loop_name)
    other = brokers(nats_cluster.servers[1].url, "l", loop_name)
    until(lambda: a.is_connected() and other.is_connected(), "both are connected")
    assert a.server == first.name
    until(lambda: len(a.setup.run(lambda: a.side.pool.places)) == 3, "all servers are known")
    first.kill()
    try:
        until(lambda: a.is_connected() and a.server != first.name, "another server is connected")
        assert len(a.news.reasons) == 1
        until(
            lambda: other.publish(b"to.k", b"again") is Published.SENT and not a.inbox.empty(), "it is subscribed again"
        )
        assert a.inbox.get(timeout=PATIENCE)[1] == b"again"
    finally:
        first.start()
        nats_cluster.wait_until_ready()


def test_a_frozen_server_is_left_by_its_silence(
    nats_cluster: NatsCluster, brokers: Callable[..., BrokerOnNats]
) -> None:
    frozen = nats_cluster.servers[1]
    a = brokers(frozen.url, "f")
    until(lambda: a.is_connected() and len(a.setup.run(lambda: a.side.pool.places)) == 3, "it is connected")
    pending: list[Answer] = []
    frozen.freeze()
    try:
        pending.append(a.request(b"to.f", b"x"))
        until(lambda: a.is_connected() and a.server != frozen.name, "another server is connected")
        assert "nothing received" in a.news.reasons[0]
    finally:
        frozen.thaw()
        nats_cluster.wait_until_ready()
    assert [each.kind for each in pending] == [AnswerKind.DISCONNECTED]


def test_a_server_that_stops_is_left_without_a_gap(
    tmp_path_factory: pytest.TempPathFactory, brokers: Callable[..., BrokerOnNats]
) -> None:
    """Lame duck mode: the next connection is open before the first one ends."""
    folder = tmp_path_factory.mktemp("nats")
    cluster = start_on_free_ports(lambda: NatsCluster(folder, 'lame_duck_duration: "30s"'))
    try:
        stopping = cluster.servers[2]
        a = brokers(stopping.url, "d")
        until(lambda: a.is_connected() and len(a.setup.run(lambda: a.side.pool.places)) == 3, "it is connected")
        stopping.enter_lame_duck_mode()
        until(lambda: a.is_connected() and a.server != stopping.name, "another server is connected")
        assert a.news.reasons == ["another connection has opened"]
        assert a.publish(b"to.nobody", b"") is Published.SENT
    finally:
        cluster.kill()


def test_a_cluster_that_is_gone_is_dialled_until_it_is_back(
    start_nats: StartNats, brokers: Callable[..., BrokerOnNats]
) -> None:
    server = start_nats("")
    a = brokers(server.url, "g")
    until(a.is_connected, "it is connected")
    server.kill()
    until(lambda: not a.is_connected(), "it is away")
    assert a.publish(b"to.x", b"") is Published.AWAY
    until(lambda: a.setup.journal.mentions("nats unreachable"), "dials fail")
    server.start()
    until(a.is_connected, "it is back")
    assert len(a.news.connects) == 2


def test_wrong_credentials_are_logged_with_the_reason_and_without_the_secret(
    start_nats: StartNats, brokers: Callable[..., BrokerOnNats]
) -> None:
    server = start_nats("authorization { token: right }")
    a = brokers(server.url, "c", credentials=TokenCredentials("s3cret"))
    until(lambda: a.setup.journal.mentions("Authorization Violation"), "the refusal is logged")
    assert not any("s3cret" in str(line) for line in a.setup.journal.lines)
    server.configure("authorization { token: s3cret }")
    server.reload()
    until(a.is_connected, "it is admitted now")


def test_the_runner_dials_with_tls_by_name(
    start_nats: StartNats, authority: Authority, brokers: Callable[..., BrokerOnNats], loop_name: str
) -> None:
    issued, client = authority.issue(), authority.issue("client", "extendedKeyUsage=clientAuth")
    files = f'cert_file: "{issued.cert}", key_file: "{issued.key}", ca_file: "{authority.cert}", verify: true'
    server = start_nats(f"tls {{ {files} }}")
    url = f"tls://localhost:{server.port}?ca={authority.cert}&{client.options}"
    a, b = brokers(url, "t", loop_name), brokers(url, "u", loop_name)
    until(lambda: a.is_connected() and b.is_connected(), "both are connected")
    payload = bytes(range(256)) * 4096
    until(lambda: a.publish(b"to.u", payload) is Published.SENT and not b.inbox.empty(), "it arrives")
    assert b.inbox.get(timeout=PATIENCE)[1] == payload


def test_a_missing_file_of_tls_is_logged(start_nats: StartNats, brokers: Callable[..., BrokerOnNats]) -> None:
    a = brokers(f"tls://127.0.0.1:{start_nats('').port}?ca=/nowhere/ca.pem", "m")
    until(lambda: a.setup.journal.mentions("ca=/nowhere/ca.pem"), "the file is named")


def test_an_unknown_host_is_logged_and_does_not_stop_the_loop(brokers: Callable[..., BrokerOnNats]) -> None:
    a = brokers("nats://no-such-host.invalid:4222", "h")
    until(lambda: a.setup.journal.mentions("cannot resolve 'no-such-host.invalid'"), "the host is named")
