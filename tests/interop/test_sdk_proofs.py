"""Clients and workers that prove who they are: to brokers with CURVE and tokens, to libzmq, and over HTTP and TLS."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq
from broker_setup import MIB, Setup, Visitors, port_of

from authority import Authority
from dragoman import AsyncClient, Client, NotAllowed, Tls, Worker, WrongDialect
from dragoman.access.keys import new_key_file, user_key_folder
from dragoman.access.private_files import make_folder
from dragoman.carriers.curve_keys import key_z85, new_key_pair
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveServer
from dragoman.carriers.zmtp_handshake import NULL, Security
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.carriers.zmtp_plain import PlainServer
from dragoman.sdk.address import TcpAddress
from dragoman.sdk.proof import VARIABLES
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.wiring import prepare
from dragoman.streams.tls_context import ListenerTls, TlsFiles
from programs import PATIENCE, until
from token_server import TokenServer

SERVER, OTHER = (new_key_pair(bytes([number]) * 32) for number in (7, 8))
SEED = bytes([1]) * 32
PUBLIC = new_key_pair(SEED)[0]
TOKEN = "dgm_" + "t0ken" * 8
KEYS = f"server_key={SERVER[0].hex()}&key=gpu-1"
LONG = 4 * PATIENCE  # not waited for: a refusal is raised at once
LIMITS = ZmtpLimits(max_payload=8 * MIB, max_frames=1026)


class Guarded(Setup):
    """A broker whose listeners use one mechanism, with the identities that it knows."""

    def __init__(self) -> None:
        super().__init__("asyncio")
        self.keys = {PUBLIC}
        self.tokens = {TOKEN}

    def curve(self) -> Security:
        return CurveServer((SERVER,), lambda key: key in self.keys, os.urandom)

    def plain(self) -> Security:
        return PlainServer(lambda name, password: name == b"token" and password.decode() in self.tokens)

    def listen(self, url: str, security: Security, tls: ListenerTls | None = None) -> dict[str, int]:
        """Listen, with heartbeats of the carrier in every moment. Returns the ports by their use."""
        listener = self.run(prepare, url, self.broker, self.runner)
        ports = {}
        for use, each in listener.sockets:
            busy = replace(
                each,
                carrier=lambda: zmtp_carrier("ROUTER", limits=LIMITS, security=security),
                limits=ConnectionLimits(carrier_ping=0.05),
                tls=tls,
            )
            place = self.run(self.host.listen, busy)
            assert isinstance(place, TcpAddress)
            ports[use] = place.port
        return ports

    def disconnect_all(self) -> None:
        connections = self.runner.connections
        self.run(lambda: [connections.close(each, "revoked") for each in list(connections.registry.peers)])


@pytest.fixture
def broker() -> Iterator[Guarded]:
    broker = Guarded()
    yield broker
    broker.close()


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with one key, and no variables."""
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = user_key_folder(os.environ)
    make_folder(folder)
    new_key_file(folder, "gpu-1", SEED)


class Running:
    """A worker in a thread, which converts to upper case."""

    def __init__(self, url: str, **options: Any) -> None:
        self.worker = Worker(url, concurrency=2, **options)

        @self.worker.service("default")
        async def default(payload: bytes) -> bytes:
            return payload.upper()

        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.exit_code = self.worker.run()

    def ends(self) -> int | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.exit_code

    def stop(self) -> None:
        self.worker.stop()
        assert self.ends() is not None


@contextmanager
def working(broker: Setup, url: str, **options: Any) -> Iterator[Running]:
    running = Running(url, **options)
    try:
        until(lambda: broker.broker.worker_registry.workers, "the worker has joined")
        yield running
    finally:
        running.stop()


# -------------------------------------------------------------------- CURVE


@pytest.mark.parametrize("scheme", ["native", "pingpong", "powerhose", "majordomo"])
def test_key_is_proven_in_every_dialect_of_zeromq(broker: Guarded, scheme: str) -> None:
    """Many calls while the broker sends heartbeats: nonces must rise on both sides."""
    frontend = "?frontend=0" if scheme in ("pingpong", "powerhose") else ""
    ports = broker.listen(f"{scheme}+tcp://127.0.0.1:0{frontend}", broker.curve())
    workers, callers = ports.get("workers") or ports["both"], ports.get("callers") or ports["both"]
    large = b"x" * MIB
    made = Client(f"{scheme}+tcp://127.0.0.1:{callers}", key="gpu-1", server_key=key_z85(SERVER[0]))
    with working(broker, f"{scheme}+tcp://127.0.0.1:{workers}?{KEYS}"), made as client:
        payloads = [b"%d" % number for number in range(300)]
        assert list(client.map("default", payloads)) == payloads
        assert client.call("default", large) == large.upper()
    assert not broker.counters.bad_messages


def test_settings_of_the_environment_are_used(broker: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = broker.listen("tcp://127.0.0.1:0", broker.curve())
    monkeypatch.setenv("DRAGOMAN_KEY", "gpu-1")
    monkeypatch.setenv("DRAGOMAN_SERVER_KEY", SERVER[0].hex())
    monkeypatch.setenv("DRAGOMAN_URL", f"tcp://127.0.0.1:{ports['both']}")

    async def main() -> bytes:
        async with AsyncClient() as client:
            return await client.call("default", b"hello")

    with working(broker, os.environ["DRAGOMAN_URL"]), Client() as client:
        assert client.call("default", b"hello") == b"HELLO"
        assert asyncio.run(main()) == b"HELLO"


@pytest.mark.parametrize(
    ("options", "known", "secured", "problem"),
    [
        (KEYS, False, True, "does not know this key (key= in the URL); run `dragoman keys allow gpu-1"),
        (f"server_key={OTHER[0].hex()}&key=gpu-1", True, True, "server_key= in the URL is not the public key of the"),
        ("", True, True, "requires a key (CURVE): set key and server_key"),
        (KEYS, True, False, "uses no keys at this address: remove key and server_key"),
    ],
)
def test_refused_key_is_not_allowed_at_once_and_ends_a_worker_with_3(
    broker: Guarded,
    caplog: pytest.LogCaptureFixture,
    options: str,
    known: bool,
    secured: bool,
    problem: str,
) -> None:
    if not known:
        broker.keys.clear()
    ports = broker.listen("tcp://127.0.0.1:0", broker.curve() if secured else NULL)
    url = f"tcp://127.0.0.1:{ports['both']}?{options}"
    with Client(url, connect_timeout=LONG) as client:
        with pytest.raises(NotAllowed) as caught:
            client.call("default", b"hello")
        assert problem in str(caught.value)
        with pytest.raises(NotAllowed):
            client.services()
    with caplog.at_level(logging.ERROR, "dragoman.worker"):
        assert Running(url).ends() == 3
    assert problem in caplog.text
    assert not broker.broker.worker_registry.workers


@pytest.mark.parametrize("scheme", ["pingpong", "powerhose", "majordomo"])
def test_worker_of_another_dialect_ends_with_3(broker: Guarded, caplog: pytest.LogCaptureFixture, scheme: str) -> None:
    broker.keys.clear()
    ports = broker.listen(f"{scheme}+tcp://127.0.0.1:0", broker.curve())
    port = ports.get("workers") or ports["both"]
    assert Running(f"{scheme}+tcp://127.0.0.1:{port}?{KEYS}").ends() == 3
    assert "does not know this key" in caplog.text


def test_revoked_key_is_not_allowed_at_the_next_connection(broker: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    url = f"tcp://127.0.0.1:{broker.listen('tcp://127.0.0.1:0', broker.curve())['both']}?{KEYS}"
    running = Running(url)
    until(lambda: broker.broker.worker_registry.workers, "the worker has joined")
    with Client(url, connect_timeout=LONG) as client:
        assert client.call("default", b"hello") == b"HELLO"
        waiting = client.submit("other", b"waits", wait_for_worker=True)
        until(lambda: broker.broker.jobs, "the broker has the job")
        broker.run(broker.keys.clear)
        broker.disconnect_all()
        with pytest.raises(NotAllowed, match="does not know this key"):
            waiting.result(PATIENCE)
        with pytest.raises(NotAllowed, match="does not know this key"):
            client.call("default", b"hello")
    assert running.ends() == 3
    assert "stopping: the broker at" in caplog.text


def test_port_of_another_dialect_is_named_behind_a_key(broker: Guarded) -> None:
    """The probes use the same key as the connection; without it, the port would only be found to speak ZMTP."""
    ports = broker.listen("pingpong+tcp://127.0.0.1:0?frontend=0", broker.curve())
    made = Client(f"tcp://127.0.0.1:{ports['workers']}?{KEYS}", connect_timeout=LONG)
    with made as client, pytest.raises(WrongDialect, match="speaks PingPong over ZMTP"):
        client.call("default", b"hello")


# -------------------------------------------------------------------- libzmq


def test_libzmq_sees_the_key(visitors: Visitors) -> None:
    """A ROUTER of libzmq as the broker's frontend of PingPong."""
    router = visitors.receive(zmq.ROUTER, TcpAddress("127.0.0.1", 0), **curve_server())
    url = f"pingpong+tcp://127.0.0.1:{port_of(router)}?{KEYS}"
    with Client(url) as client, ThreadPoolExecutor(1) as executor:
        call = executor.submit(client.call, "default", b"hello")
        route, *frames = router.recv_multipart()
        assert frames == [b"", b"hello"]
        router.send_multipart([route, b"", b"HELLO"])
        assert call.result(PATIENCE) == b"HELLO"


def test_libzmq_with_another_key_or_none_is_not_allowed(visitors: Visitors) -> None:
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        (curve_server(OTHER), "server_key= in the URL is not the public key of the broker"),
        ({}, "uses no keys at this address"),
    )
    for options, problem in rows:
        router = visitors.receive(zmq.ROUTER, TcpAddress("127.0.0.1", 0), **options)
        url = f"pingpong+tcp://127.0.0.1:{port_of(router)}?{KEYS}"
        with Client(url, connect_timeout=LONG) as client, pytest.raises(NotAllowed) as caught:
            client.call("default", b"hello")
        assert problem in str(caught.value)


def test_refusal_of_libzmq_is_not_allowed(visitors: Visitors) -> None:
    """An authenticator of libzmq (ZAP, RFC 27) refuses every key."""
    handler = visitors.receive_inproc(zmq.REP, "inproc://zeromq.zap.01")
    router = visitors.receive(zmq.ROUTER, TcpAddress("127.0.0.1", 0), **curve_server())
    url = f"pingpong+tcp://127.0.0.1:{port_of(router)}?{KEYS}"
    with Client(url, connect_timeout=LONG) as client, ThreadPoolExecutor(1) as executor:
        call = executor.submit(client.call, "default", b"hello")
        request = handler.recv_multipart()
        assert request[5:] == [b"CURVE", PUBLIC]
        handler.send_multipart([b"1.0", request[1], b"400", b"unknown", b"", b""])
        with pytest.raises(NotAllowed, match="does not know this key"):
            call.result(PATIENCE)


def curve_server(pair: tuple[bytes, bytes] = SERVER) -> dict[str, Any]:
    return {"curve_server": 1, "curve_secretkey": key_z85(pair[1]).encode()}


# -------------------------------------------------------------------- tokens


def test_token_is_sent_on_loopback_if_it_is_asked_for(broker: Guarded, tmp_path: Path) -> None:
    url = f"tcp://127.0.0.1:{broker.listen('tcp://127.0.0.1:0', broker.plain())['both']}"
    file = private(tmp_path / "token", TOKEN)
    with working(broker, f"{url}?token_file={file}"), Client(url, token=TOKEN) as client:
        assert client.call("default", b"hello") == b"HELLO"
    with Client(url, connect_timeout=LONG) as client, pytest.raises(NotAllowed, match="requires a token"):
        client.call("default", b"hello")
    broker.run(broker.tokens.clear)
    made = Client(url, token=TOKEN, connect_timeout=LONG)
    with made as client, pytest.raises(NotAllowed, match="does not accept this token") as caught:
        client.call("default", b"hello")
    assert "t0ken" not in str(caught.value)


def test_token_of_the_environment_does_not_disturb_a_broker_without_tokens(
    broker: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"tcp://127.0.0.1:{broker.listen('tcp://127.0.0.1:0', NULL)['both']}"
    monkeypatch.setenv("DRAGOMAN_TOKEN", TOKEN)
    with working(broker, url), Client(url) as client:
        assert client.call("default", b"hello") == b"HELLO"


def test_token_inside_tls(
    broker: Guarded, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    issued = authority.issue()
    tls = ListenerTls(TlsFiles(cert=str(issued.cert), key=str(issued.key), protocol="dragoman/1"))
    port = broker.listen("tcp://127.0.0.1:0", broker.plain(), tls)["both"]
    trust = Tls(ca=authority.cert)
    monkeypatch.setenv("DRAGOMAN_TOKEN", TOKEN)
    made = Client(f"tcp://localhost:{port}", tls=trust)
    with working(broker, f"tls://localhost:{port}?ca={authority.cert}"), made as client:
        assert client.call("default", b"hello") == b"HELLO"
    monkeypatch.setenv("DRAGOMAN_TOKEN", "dgm_unknown")
    made = Client(f"tls://localhost:{port}", tls=trust, connect_timeout=LONG)
    with made as client, pytest.raises(NotAllowed, match=r"does not accept this token \(DRAGOMAN_TOKEN\)"):
        client.call("default", b"hello")
    assert Running(f"tls://localhost:{port}", tls=trust).ends() == 3
    assert "does not accept this token (DRAGOMAN_TOKEN)" in caplog.text
    assert "dgm_unknown" not in caplog.text


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


# -------------------------------------------------------------------- HTTP


def test_bearer_token_is_in_every_request_but_the_probe(tmp_path: Path) -> None:
    file = private(tmp_path / "token", TOKEN)
    with TokenServer(TOKEN) as server, Client(f"http://127.0.0.1:{server.port}?token_file={file}") as client:
        assert client.call("default", b"hello") == b"HELLO"
        assert client.call("default", b"again") == b"AGAIN"
    assert server.requests[0] == ("/livez", None)
    assert {each for path, each in server.requests if path != "/livez"} == {f"Bearer {TOKEN}"}


def test_bearer_token_over_https(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = authority.issue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    monkeypatch.setenv("DRAGOMAN_TOKEN", TOKEN)
    server = TokenServer(TOKEN, context)
    with server, Client(f"https://localhost:{server.port}?ca={authority.cert}") as client:
        assert client.call("default", b"hello") == b"HELLO"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"token": "dgm_unknown"}, "does not accept this token (the argument token)"),
        ({}, "requires a token: set token_file"),
    ],
)
def test_response_401_is_not_allowed(caplog: pytest.LogCaptureFixture, given: dict[str, Any], problem: str) -> None:
    requests: tuple[Callable[[Client], object], ...] = (
        lambda client: client.call("default", b"hello"),
        lambda client: client.services(),
    )
    with TokenServer(TOKEN) as server:
        url = f"http://127.0.0.1:{server.port}"
        with Client(url, connect_timeout=LONG, **given) as client:
            for request in requests:
                with pytest.raises(NotAllowed) as caught:
                    request(client)
                assert problem in str(caught.value)
        assert Running(url, **given).ends() == 3
    assert problem in caplog.text
    assert "dgm_unknown" not in caplog.text


def test_worker_whose_token_is_revoked_ends_with_3(caplog: pytest.LogCaptureFixture) -> None:
    with TokenServer(TOKEN) as server:
        running = Running(f"http://127.0.0.1:{server.port}", token=TOKEN)
        assert server.worker_waits.wait(PATIENCE)
        server.token = ""
        server.worker_may_go_on.set()
        assert running.ends() == 3
    assert "does not accept this token (the argument token)" in caplog.text
