"""Dragoman's own clients and workers over TLS, in every dialect; and the errors that they raise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_setup import BrokerSetup

from authority import Authority, Issued
from case_tables import check_every_row
from dragoman import BrokerUnavailable, Client, NotAllowed, Worker, WrongDialect
from dragoman.sdk.address import AddressError
from programs import PATIENCE, until

StartBroker = Callable[..., BrokerSetup]


class Parties:
    """Certificates of a broker, of its clients, and of others."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        self.ca = authority.cert
        self.broker = authority.issue()
        self.client = authority.issue("client", "extendedKeyUsage=clientAuth")
        self.other = Authority(folder / "other")
        self.stranger = self.other.issue("stranger")

    @property
    def listen(self) -> str:
        """Options of a listener that requires certificates."""
        return f"{self.broker.options}&client_ca={self.ca}"

    @property
    def connect(self) -> str:
        """Options of a client that the listener accepts."""
        return f"ca={self.ca}&{self.client.options}"


@pytest.fixture(scope="module")
def parties(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return Parties(authority, tmp_path_factory.mktemp("parties"))


def port_of(place: str) -> str:
    return place.rpartition(":")[2]


@contextmanager
def working(url: str) -> Iterator[Worker]:
    """A worker that converts to upper case, in a thread."""
    worker = Worker(url)

    @worker.service("default")
    async def default(payload: bytes) -> bytes:
        return payload.upper()

    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("scheme", "more"),
    [
        ("native+tls", ""),
        ("tls", ""),
        ("pingpong+tls", "&frontend=0"),
        ("powerhose+tls", "&frontend=0"),
        ("majordomo+tls", ""),
        ("memodb+tls", ""),
        ("https", ""),
    ],
)
def test_client_and_worker_use_tls_in_every_dialect(
    broker_setup: StartBroker, parties: Parties, scheme: str, more: str
) -> None:
    setup = broker_setup(f"{scheme}://127.0.0.1:0?{parties.listen}{more}")
    assert setup.workers.startswith("https://" if scheme == "https" else "tls://")
    payload = b"hello" * 400_000
    with working(f"{scheme}://localhost:{port_of(setup.workers)}?{parties.connect}"):
        until(lambda: setup.broker.worker_registry.workers, "the worker has joined")
        with Client(f"{scheme}://localhost:{port_of(setup.callers)}?{parties.connect}") as client:
            assert client.call("default", b"hello") == b"HELLO"
            assert client.call("default", payload) == payload.upper()


def test_a_call_to_a_wrong_port_or_with_a_wrong_certificate_names_the_problem(
    broker_setup: StartBroker, parties: Parties
) -> None:
    required = f"https://127.0.0.1:0?{parties.listen}"
    setup = broker_setup(
        f"tls://127.0.0.1:0?{parties.listen}",
        "tcp://127.0.0.1:0",
        f"memodb+tls://127.0.0.1:0?{parties.broker.options}",
        "http://127.0.0.1:0",
        required,
    )
    native, plain, memodb, http, https = (port_of(places["both"]) for places in setup.places)
    ca, mine = f"ca={parties.ca}", parties.connect
    rows: tuple[tuple[str, type[BrokerUnavailable], str], ...] = (
        (f"tls://localhost:{native}?{ca}", NotAllowed, "the broker requires a certificate: name one that it accepts"),
        (f"tls://localhost:{native}?{ca}&{parties.stranger.options}", NotAllowed, "does not know this certificate"),
        (f"tls://localhost:{native}?ca={parties.other.cert}", WrongDialect, "has an unknown issuer"),
        (f"tls://localhost:{native}?{parties.client.options}", WrongDialect, "has an unknown issuer"),
        (f"tls://localhost:{native}?{mine}&server_name=elsewhere", WrongDialect, "not valid for 'elsewhere'"),
        (f"tls://localhost:{plain}?{mine}", WrongDialect, "the port speaks ZMTP without TLS: write +tcp instead"),
        (f"tls://localhost:{http}?{mine}", BrokerUnavailable, "without TLS"),
        (f"tls://localhost:{memodb}?{mine}", WrongDialect, "the application protocol dragoman/1 (ALPN)"),
        (f"memodb+tls://localhost:{native}?{mine}", BrokerUnavailable, "closed the connection after the TLS handshake"),
        (f"https://localhost:{https}?{ca}", NotAllowed, "the broker requires a certificate: name one that it accepts"),
        (f"tcp://localhost:{native}", WrongDialect, f"speaks TLS; use native+tls://localhost:{native}"),
        (f"memodb+tcp://localhost:{native}", WrongDialect, f"speaks TLS; use memodb+tls://localhost:{native}"),
        (f"http://localhost:{https}", WrongDialect, f"speaks TLS; use https://localhost:{https}"),
        (f"tcp://localhost:{https}", WrongDialect, f"speaks TLS; use native+tls://localhost:{https}"),
    )

    def check(url: str, kind: type[BrokerUnavailable], problem: str) -> None:
        with Client(url, connect_timeout=2.0) as client, pytest.raises(kind) as raised:
            client.call("default", b"hello")
        assert problem in str(raised.value)

    check_every_row(check, rows)


def test_a_worker_that_the_broker_does_not_accept_stops_with_exit_code_3(
    broker_setup: StartBroker, parties: Parties, caplog: pytest.LogCaptureFixture
) -> None:
    setup = broker_setup(f"tls://127.0.0.1:0?{parties.listen}", f"https://127.0.0.1:0?{parties.broker.options}")
    worker = Worker(f"tls://localhost:{port_of(setup.workers)}?ca={parties.ca}&{parties.stranger.options}")

    @worker.service("default")
    async def default(payload: bytes) -> bytes:
        return payload

    with caplog.at_level(logging.ERROR, "dragoman.worker"):
        assert worker.run() == 3
    assert "the broker does not know this certificate" in caplog.text


def test_a_wrong_file_is_an_error_of_the_address(parties: Parties, tmp_path: Path) -> None:
    url = f"tls://localhost:1?ca={tmp_path}/missing"
    with pytest.raises(AddressError, match="missing: No such file or directory; check the path"):
        Client(url)
    with pytest.raises(AddressError, match="does not belong to the certificate"):
        Client(f"tls://localhost:1?cert={parties.client.cert}&key={parties.broker.key}")
    with pytest.raises(AddressError, match=r"server_name=\.bad"):
        Client(f"tls://localhost:1?ca={parties.ca}&server_name=.bad")


def test_a_listener_with_a_wrong_file_does_not_start(broker_setup: StartBroker, authority: Authority) -> None:
    expired: Issued = authority.issue(days=-1)
    with pytest.raises(AddressError, match="the certificate expired on "):
        broker_setup(f"tls://127.0.0.1:0?{expired.options}")
    with pytest.raises(AddressError, match="name its file with cert="):
        broker_setup("https://127.0.0.1:0")


def test_off_loopback_a_listener_needs_certificates_of_its_clients(broker_setup: StartBroker, parties: Parties) -> None:
    with pytest.raises(AddressError, match="it listens off loopback"):
        broker_setup(f"tls://0.0.0.0:0?{parties.broker.options}")
    setup = broker_setup(f"tls://0.0.0.0:0?{parties.listen}")
    assert not setup.journal.mentions("listening without authentication")
    with pytest.raises(AddressError, match=r"frontend=tcp://.*must be a port, or start with tls://"):
        broker_setup(f"pingpong+tls://127.0.0.1:0?{parties.listen}&frontend=tcp://127.0.0.1:0")
