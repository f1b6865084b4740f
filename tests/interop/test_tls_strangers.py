"""TLS with programs that are not Dragoman's: openssl, libnng (pynng and nngcat) and curl."""

from __future__ import annotations

import asyncio
import select
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pynng
import pytest
from broker_setup import MIB, BrokerSetup, Echo, Setup, ready_command
from test_tls_streams import Certified

from authority import Authority
from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.sp import Sp
from dragoman.carriers.zmtp_commands import OUR_GREETING
from dragoman.sdk.address import TcpAddress, TlsAddress
from dragoman.sdk.outgoing import open_connection
from dragoman.streams.certificates import read_pem
from dragoman.streams.tls_context import ListenerTls, TlsFiles
from programs import PATIENCE, Program, Programs, until

LOOPBACK = TcpAddress("127.0.0.1", 0)


@pytest.fixture(scope="module")
def certified(authority: Authority) -> Certified:
    return Certified(authority)


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is needed: Debian has it as {package}"
    return found


def open_port(setup: Setup, certified: Certified, carrier: Callable[[], Any] | None = None, **files: str) -> int:
    """Listen with an echo. Returns the port."""
    server = certified.server
    tls = ListenerTls(TlsFiles(str(server.cert), str(server.key), **files))
    where = setup.open(Echo(setup.runner), LOOPBACK, carrier=carrier, tls=tls)
    assert isinstance(where, TcpAddress)
    return where.port


def rep() -> Sp:
    return Sp("REP")


# ---------------------------------------------------------------- openssl


class Client:
    """`openssl s_client` with a pipe to its input. It sends the greeting of ZMTP, and shows what comes back."""

    def __init__(self, port: int, ca: str, *options: str) -> None:
        words = [
            "openssl",
            "s_client",
            "-connect",
            f"localhost:{port}",
            "-CAfile",
            ca,
            "-verify_return_error",
            *options,
        ]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
        self.out = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def say(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    def shows(self, text: bytes) -> bytes:
        """Wait until the output has this text. Returns the whole output."""
        assert self._process.stdout is not None
        while text not in self.out:
            assert select.select([self._process.stdout], [], [], PATIENCE)[0], f"{text!r} is missing in {self.out!r}"
            piece = self._process.stdout.read(1 << 16)
            assert piece, f"{text!r} is missing in {self.out.decode(errors='replace')}"
            self.out += piece
        return self.out

    def rest(self) -> bytes:
        """Return the whole output when the program has ended."""
        try:
            self.out += self._process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"openssl still runs: {self.out!r}") from None
        return self.out


@pytest.fixture
def s_client(certified: Certified) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def start(port: int, *options: str) -> Client:
        made.append(Client(port, certified.ca, *options))
        return made[-1]

    yield start
    for each in made:
        with each:
            pass


def test_openssl_s_client_1_1_is_refused(setup: Setup, certified: Certified, s_client: Callable[..., Client]) -> None:
    out = s_client(open_port(setup, certified), "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0").rest()
    assert b"alert protocol version" in out
    native = open_port(setup, certified, protocol="dragoman/1")
    assert b"alert protocol version" in s_client(native, "-tls1_2").rest()
    refused = "the peer has no TLS version that is allowed here"
    until(lambda: setup.journal.mentions(refused), refused)


@pytest.mark.parametrize(("version", "name"), [("-tls1_2", b"TLSv1.2"), ("-tls1_3", b"TLSv1.3")])
def test_openssl_s_client_reads_the_greeting(
    setup: Setup, certified: Certified, s_client: Callable[..., Client], version: str, name: bytes
) -> None:
    client = s_client(open_port(setup, certified), version)
    out = client.shows(OUR_GREETING)
    assert b"Verify return code: 0 (ok)" in out
    assert b"New, " + name in out
    client.say(OUR_GREETING + ready_command(b"DEALER") + b"\x00\x05hello")
    client.shows(b"\x00\x05hello")


def test_openssl_s_client_needs_the_application_protocol_of_native(
    setup: Setup, certified: Certified, s_client: Callable[..., Client]
) -> None:
    """A client of another dialect gets not a byte of the carrier, though its handshake of TLS succeeds."""
    port = open_port(setup, certified, protocol="dragoman/1")
    out = s_client(port, "-tls1_3").rest()
    assert OUR_GREETING not in out
    refused = "the client did not offer the application protocol dragoman/1 (ALPN)"
    until(lambda: setup.journal.mentions(refused), refused)
    s_client(port, "-tls1_3", "-alpn", "dragoman/1").shows(OUR_GREETING)


def test_openssl_s_client_gets_no_old_cipher(
    setup: Setup, certified: Certified, s_client: Callable[..., Client]
) -> None:
    port = open_port(setup, certified)
    for cipher in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"):
        assert b"handshake failure" in s_client(port, "-tls1_2", "-cipher", cipher).rest()
    no_cipher = "the peer has no TLS cipher in common"
    until(lambda: setup.journal.mentions(no_cipher), no_cipher)


def test_openssl_s_client_cannot_renegotiate(
    setup: Setup, certified: Certified, s_client: Callable[..., Client]
) -> None:
    client = s_client(open_port(setup, certified), "-tls1_2")
    client.shows(OUR_GREETING)
    client.say(b"R\n")  # a command of s_client at the beginning of a line
    assert b"no renegotiation" in client.rest()


def test_openssl_s_client_gets_no_ticket(setup: Setup, certified: Certified, s_client: Callable[..., Client]) -> None:
    """R140. s_client prints a ticket of TLS 1.3 at its end: the test saw none when the listener sent two."""
    port = open_port(setup, certified)
    for version in ("-tls1_2", "-tls1_3"):
        client = s_client(port, version)
        client.shows(OUR_GREETING)
        assert b"session ticket" not in client.rest().lower()


def test_a_resumed_session_does_not_skip_the_check_of_a_certificate(setup: Setup, certified: Certified) -> None:
    """R140: OpenSSL resumes TLS 1.2 by session ids even without tickets."""
    port = open_port(setup, certified, client_ca=certified.ca)
    context = certified.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    sessions: list[ssl.SSLSession | None] = [None]

    def is_resumed() -> bool:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=sessions[-1]) as visitor,
        ):
            sessions.append(visitor.session)
            greeting = visitor.recv(len(OUR_GREETING))
            assert greeting == (b"" if visitor.session_reused else OUR_GREETING)
            return bool(visitor.session_reused)

    assert not is_resumed()
    assert is_resumed()
    until(lambda: setup.journal.mentions("the client resumed an earlier session"), "it is logged")
    until(lambda: not is_resumed(), "a rejected session is forgotten")


def test_https_rejects_a_resumed_session(https: tuple[BrokerSetup, str], certified: Certified) -> None:
    """R140"""
    _, url = https
    port = int(url.rpartition(":")[2].partition("/")[0])
    context = certified.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    came: list[tuple[bool, bool]] = []
    session: ssl.SSLSession | None = None
    with ExitStack() as both:  # the session of a connection that is still open can be resumed
        for _ in range(2):
            plain = both.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            visitor = both.enter_context(context.wrap_socket(plain, server_hostname="localhost", session=session))
            session = visitor.session
            try:
                visitor.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
                response = visitor.recv(1000)
            except OSError:  # reset
                response = b""
            came.append((bool(visitor.session_reused), response.startswith(b"HTTP/1.1 200")))
    assert came == [(False, True), (True, False)]


def test_openssl_s_client_changes_its_key(setup: Setup, certified: Certified, s_client: Callable[..., Client]) -> None:
    """The broker answers with a key of its own before its next record; counts of plain bytes stay exact."""
    client = s_client(open_port(setup, certified), "-tls1_3")
    client.shows(OUR_GREETING)
    client.say(OUR_GREETING + ready_command(b"DEALER"))
    peers = setup.runner.connections.peers
    until(lambda: setup.run(lambda: [peer for peer in peers if peer.is_open]), "it is open")
    (peer,) = setup.run(lambda: list(peers))
    before = setup.run(lambda: (peer.stream.sent, peer.stream.wire_sent))
    client.say(b"K\n")  # a command of s_client: a new key, and a request for a new one
    client.shows(b"KEYUPDATE")
    client.say(b"\x00\x05hello")
    client.shows(b"\x00\x05hello")
    sent, wire_sent = setup.run(lambda: (peer.stream.sent, peer.stream.wire_sent))
    assert sent - before[0] == 7
    assert wire_sent - before[1] > 7 + 22, "the broker's own new key was sent, too"
    assert setup.run(lambda: peer.stream.backlog) == 0


def test_short_records_that_the_peer_requests_count_as_seen(
    setup: Setup, certified: Certified, s_client: Callable[..., Client]
) -> None:
    """R138: with max_fragment_length, OpenSSL splits a write into several records. The first ones may be seen when the
    kernel has not taken the last one, so later writes must fit into one record."""
    client = s_client(open_port(setup, certified), "-tls1_3", "-maxfraglen", "512", "-quiet")
    client.shows(OUR_GREETING)
    client.say(OUR_GREETING + ready_command(b"DEALER"))
    peers = setup.runner.connections.peers
    until(lambda: setup.run(lambda: [peer for peer in peers if peer.is_open]), "it is open")
    (peer,) = setup.run(lambda: list(peers))
    for letter in (b"a", b"b"):
        setup.send(peer, [letter * 3_000])
        client.shows(letter * 3_000)
    assert peer.stream._record_bytes == 512
    assert setup.run(lambda: peer.stream.backlog) == 0


# ---------------------------------------------------------------- libnng


@pytest.mark.parametrize("is_mutual", [False, True], ids=["tls", "mtls"])
def test_pynng_asks_over_tls(setup: Setup, certified: Certified, is_mutual: bool) -> None:
    files = {"client_ca": certified.ca} if is_mutual else {}
    port = open_port(setup, certified, rep, **files)
    own = {
        "own_key_string": certified.client.key.read_text(),
        "own_cert_string": certified.client.cert.read_text(),
    }
    config = pynng.TLSConfig(
        pynng.TLSConfig.MODE_CLIENT, server_name="localhost", ca_files=[certified.ca], **(own if is_mutual else {})
    )
    with pynng.Req0(tls_config=config, recv_timeout=15_000, send_timeout=15_000) as asker:
        asker.dial(f"tls+tcp://127.0.0.1:{port}", block=True)
        for payload in (b"x", b"hello" * 1000, bytes(3 * MIB)):
            asker.send(payload)
            assert asker.recv() == payload
        (peer,) = setup.run(lambda: list(setup.runner.connections.peers))
        expected = read_pem(certified.client.cert.read_text())[0] if is_mutual else None
        assert setup.run(lambda: peer.stream.peer_certificate) == expected


def test_pynng_without_a_certificate_is_refused(setup: Setup, certified: Certified) -> None:
    port = open_port(setup, certified, rep, client_ca=certified.ca)
    config = pynng.TLSConfig(pynng.TLSConfig.MODE_CLIENT, server_name="localhost", ca_files=[certified.ca])
    with pynng.Req0(tls_config=config, recv_timeout=15_000) as asker:
        asker.dial(f"tls+tcp://127.0.0.1:{port}", block=False)
        missing = "the client has shown no certificate"
        until(lambda: setup.journal.mentions(missing), missing)


def ask(port: int, certified: Certified, payload: bytes) -> bytes:
    """Send a request of SP over TLS with Dragoman's own stream. Returns the reply."""

    async def converse() -> bytes:
        came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def received(message: Message | TooLarge) -> None:
            assert isinstance(message, list)
            came.set_result(bytes(message[-1]))

        place = TlsAddress("localhost", port, TlsFiles(ca=certified.ca))
        link = await open_connection(place, Sp("REQ"), received, print, PATIENCE)
        link.send([b"\x80\x00\x00\x01", payload])
        try:
            async with asyncio.timeout(PATIENCE):
                return await came
        finally:
            link.close()

    return asyncio.run(converse())


def test_dragoman_asks_pynng_over_tls(certified: Certified) -> None:
    server = certified.server
    config = pynng.TLSConfig(
        pynng.TLSConfig.MODE_SERVER,
        own_key_string=server.key.read_text(),
        own_cert_string=server.cert.read_text(),
    )
    payload = bytes(range(256)) * 12_000
    with pynng.Rep0(tls_config=config, recv_timeout=15_000, send_timeout=15_000) as responder:
        responder.listen("tls+tcp://127.0.0.1:0")
        port = socket.ntohs(responder.listeners[0].local_address.port)

        async def answer() -> None:
            await responder.asend(await responder.arecv())

        async def both() -> bytes:
            answering = asyncio.create_task(answer())
            reply = await asyncio.to_thread(ask, port, certified, payload)
            await answering
            return reply

        assert asyncio.run(both()) == payload


def test_nngcat_asks_over_tls_1_2(setup: Setup, certified: Certified, programs: Programs) -> None:
    port = open_port(setup, certified, rep)
    words = ("--req", "--dial", f"tls+tcp://localhost:{port}", "--cacert", certified.ca, "--data", "hello", "--raw")
    asker: Program = programs.start(program("nngcat", "nng-utils"), *words)
    assert asker.prints("hello")


def test_dragoman_asks_nngcat_over_tls(certified: Certified, programs: Programs, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certified.server.cert.read_bytes() + certified.server.key.read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("--rep", "--listen", f"tls+tcp://127.0.0.1:{port}", "--cert", str(both), "--key", str(both))
    programs.start(program("nngcat", "nng-utils"), *words, "--data", "reply", "--ascii")

    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(is_listening, "nngcat listens")
    assert ask(port, certified, b"hello") == b"reply"


# ---------------------------------------------------------------- curl


def curl(*words: object) -> subprocess.CompletedProcess[bytes]:
    options = ("-sS", "--max-time", PATIENCE, "--tlsv1.2")
    found = program("curl", "curl")
    return subprocess.run([found, *map(str, (*options, *words))], capture_output=True, check=False)


@pytest.fixture(params=["asyncio", "uvloop"])
def https(
    request: pytest.FixtureRequest, broker_setup: Callable[..., BrokerSetup], certified: Certified
) -> tuple[BrokerSetup, str]:
    """A broker that requires certificates, and the address of its health check."""
    setup = broker_setup(f"https://127.0.0.1:0?{certified.server.options}&client_ca={certified.ca}", loop=request.param)
    return setup, f"https://localhost:{setup.workers.rpartition(':')[2]}/livez"


def test_curl_shows_its_certificate(https: tuple[BrokerSetup, str], certified: Certified) -> None:
    setup, url = https
    client = certified.client
    known = ("--cacert", certified.ca, "--cert", client.cert, "--key", client.key)
    done = curl(*known, url)
    assert (done.returncode, done.stdout) == (0, b"alive\n"), done.stderr
    events = url.replace("/livez", "/v1/events")
    with subprocess.Popen(
        [program("curl", "curl"), "-sSN", *map(str, known), events], stdout=subprocess.PIPE
    ) as stream:
        try:
            server = setup.server._http[0][0]

            def shown() -> list[bytes | None]:
                return setup.run(lambda: [each.peer_certificate for each in server._watch.connections()])

            until(lambda: read_pem(client.cert.read_text())[0] in shown(), "the protocol has the certificate")
        finally:
            stream.kill()


def test_page_without_tls_is_foreign_to_https(https: tuple[BrokerSetup, str], certified: Certified) -> None:
    """A browser shows its certificate for every page that asks, also for one that somebody on the way has written."""
    _, url = https
    client = certified.client
    known = (
        "--cacert",
        certified.ca,
        "--cert",
        client.cert,
        "--key",
        client.key,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    )
    own = url.removesuffix("/livez")
    for origin, status in ((own, b"200"), (own.replace("https", "http"), b"403")):
        assert curl(*known, "-H", f"Origin: {origin}", url).stdout == status, origin


def test_curl_gets_an_error_before_its_body_is_sent(https: tuple[BrokerSetup, str], certified: Certified) -> None:
    """TLS has no half close, with which the server ends such a response otherwise."""
    setup, url = https
    client = certified.client
    known = ("--cacert", certified.ca, "--cert", client.cert, "--key", client.key)
    done = curl(*known, "-H", "Content-Length: 99999999999", "-d", "x", url.replace("/livez", "/v1/jobs"))
    assert b"413" in done.stdout, done.stderr
    assert not setup.counters.internal_errors


def test_curl_without_a_certificate_is_refused(https: tuple[BrokerSetup, str], certified: Certified) -> None:
    setup, url = https
    assert curl("--cacert", certified.ca, url).returncode != 0
    missing = "the client has shown no certificate, and client_ca= requires one"
    until(lambda: setup.journal.mentions(missing), missing)
    assert setup.bad("tls", "http") == 1


def test_curl_with_a_wrong_authority_does_not_connect(
    https: tuple[BrokerSetup, str], certified: Certified, tmp_path: Path
) -> None:
    setup, url = https
    other = Authority(tmp_path / "other")
    assert curl("--cacert", other.cert, url).returncode == 60  # the certificate is not accepted
    rejected = "the client rejected the certificate of this listener"
    until(lambda: setup.journal.mentions(rejected), rejected)


def test_curl_without_tls_is_told_to_use_https(https: tuple[BrokerSetup, str]) -> None:
    setup, url = https
    done = curl(url.replace("https", "http"))
    assert done.stdout == b"this port speaks TLS: use https://"
    until(lambda: setup.journal.mentions("the peer speaks HTTP without TLS"), "it is logged")
