"""Handshakes that fail because of the identity of a client or a worker: its error names the setting to look at."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from case_tables import check_every_row
from dragoman.access.keys import new_key_file, user_key_folder
from dragoman.access.private_files import make_folder
from dragoman.carriers.carrier import Carrier
from dragoman.carriers.curve_keys import new_key_pair
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import CurveZmtp, zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveServer
from dragoman.carriers.zmtp_handshake import NULL, Security
from dragoman.carriers.zmtp_plain import PlainServer
from dragoman.sdk import outgoing
from dragoman.sdk.credentials import credentials_of
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed
from dragoman.sdk.outgoing import OutgoingConnection, Ungreeted, open_connection
from dragoman.sdk.proof import VARIABLES
from dragoman.sdk.recognition import Recognition
from dragoman.sdk.refusals import ProbableRefusal, refusal_of, unauthenticated
from dragoman.sdk.targets import Target, caller_target

SERVER, OTHER = (new_key_pair(bytes([number]) * 32) for number in (7, 8))
SEED = bytes([1]) * 32
PUBLIC = new_key_pair(SEED)[0]
TOKEN = "dgm_" + "t0ken" * 8
URL = "tcp://127.0.0.1:7400"
KEYED = f"{URL}?server_key={SERVER[0].hex()}&key=gpu-1"


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = user_key_folder(os.environ)
    make_folder(folder)
    new_key_file(folder, "gpu-1", SEED)


def curve(pair: tuple[bytes, bytes] = SERVER, *, knows_client: bool = True) -> Security:
    return CurveServer((pair,), lambda key: knows_client and key == PUBLIC, os.urandom)


def plain(*, knows_token: bool = True) -> Security:
    return PlainServer(lambda name, password: knows_token and (name, password) == (b"token", TOKEN.encode()))


def target(url: str, **given: Any) -> Target:
    return caller_target(url, None, credentials_of(**given))


def exchange(client: Carrier, server: Carrier) -> None:
    """Pass bytes in both directions until no side sends any."""
    while client.outgoing or server.outgoing:
        for sender, receiver in ((client, server), (server, client)):
            sent, sender.outgoing = sender.outgoing, []
            if receiver.failure is None:
                receiver.feed(b"".join(sent))


def shake(of: Target, security: Security) -> Carrier:
    """The client's carrier after a handshake with a broker of this mechanism."""
    client, server = of.client_carrier(), zmtp_carrier("ROUTER", security=security)
    exchange(client, server)
    return client


def test_accepted_proofs_complete_the_handshake() -> None:
    rows = ((URL, {}, NULL), (KEYED, {}, curve()), (URL, {"token": TOKEN}, plain()))

    def check(url: str, given: dict[str, Any], security: Security) -> None:
        of = target(url, **given)
        client = shake(of, security)
        assert client.ready
        assert isinstance(client, CurveZmtp) == (url == KEYED)

    check_every_row(check, rows)


def test_refusal_names_the_setting_and_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    allow = f"run `dragoman keys allow gpu-1 {PUBLIC.hex()} --work SERVICE` (or --call SERVICE) there, then start this"
    set_key = "requires a key (CURVE): set key and server_key, as arguments, in the URL (?server_key=HEX&key=NAME)"
    set_token = "requires a token: set token_file, as an argument, in the URL, or as DRAGOMAN_TOKEN_FILE"
    not_used = "uses no keys at this address: remove key and server_key (key= in the URL, server_key= in the URL)"
    token = {"token": TOKEN}
    rows: tuple[tuple[str, dict[str, Any], Security, tuple[str, ...]], ...] = (
        (KEYED, {}, curve(knows_client=False), ("does not know this key (key= in the URL)", allow)),
        (URL, token, plain(knows_token=False), ("does not accept this token (the argument token)", "token new")),
        (URL, {}, curve(), (set_key,)),
        (URL, {}, plain(), (set_token,)),
        (KEYED, {}, NULL, (not_used,)),
        (KEYED, {}, plain(), ("requires a token in place of that in key= in the URL",)),
        (URL, token, NULL, ("takes no token at this address: remove it (the argument token), or check the port",)),
        (URL, token, curve(), ("requires a key (CURVE) in place of that in the argument token",)),
    )

    def check(url: str, given: dict[str, Any], security: Security, parts: tuple[str, ...]) -> None:
        of = target(url, **given)
        found = refusal_of(of.place, of.proof, shake(of, security))
        assert type(found) is NotAllowed
        assert str(found).startswith("the broker at 127.0.0.1:7400 ")
        for part in parts:
            assert part in str(found)
        assert "t0ken" not in str(found)

    check_every_row(check, rows)


def test_key_of_a_file_is_named_as_such_in_the_command(tmp_path: Path) -> None:
    path = user_key_folder(os.environ) / "gpu-1.key_secret"
    of = target(URL, key=path, server_key=SERVER[0].hex())
    found = refusal_of(of.place, of.proof, shake(of, curve(knows_client=False)))
    assert f"(the argument key); run `dragoman keys allow NAME {PUBLIC.hex()} --work" in str(found)


def test_token_of_the_environment_that_was_not_sent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_TOKEN", TOKEN)
    of = target(URL)
    found = refusal_of(of.place, of.proof, shake(of, plain()))
    assert "requires a token: DRAGOMAN_TOKEN is set, but is sent only inside TLS; use tls://, or set" in str(found)
    far = target("http://broker:7480")
    assert "DRAGOMAN_TOKEN is set, but is sent only inside TLS; use https://" in str(
        unauthenticated(far.place, far.proof)
    )


def test_http_401_is_about_the_token_that_was_sent_or_is_missing() -> None:
    near = target("http://127.0.0.1:7480", token=TOKEN)
    assert "does not accept this token (the argument token)" in str(unauthenticated(near.place, near.proof))
    bare = target("http://127.0.0.1:7480")
    assert "requires a token: set token_file" in str(unauthenticated(bare.place, bare.proof))


# -------------------------------------------------------------------- the broker's key


def test_broker_that_closes_after_hello_probably_has_another_key() -> None:
    of = target(KEYED)
    client = shake(of, curve(OTHER))
    assert client.failure is None  # the broker only closes the connection
    found = refusal_of(of.place, of.proof, client)
    assert type(found) is ProbableRefusal
    assert "server_key= in the URL is not the public key of the broker at 127.0.0.1:7400" in str(found)
    assert "`dragoman keys list` prints it" in str(found)


def test_broker_that_closes_before_it_names_a_mechanism_probably_has_another() -> None:
    """libzmq closes so. A program that sends nothing, or no ZMTP, does not count."""
    for url, predicate in ((URL, "requires a key (CURVE): set key"), (KEYED, "uses no keys at this address: remove")):
        of = target(url)
        client = of.client_carrier()
        assert refusal_of(of.place, of.proof, client) is None
        client.feed(b"\xff" + bytes(8) + b"\x7f\x03")
        found = refusal_of(of.place, of.proof, client)
        assert type(found) is ProbableRefusal
        assert f"the broker at 127.0.0.1:7400 probably {predicate}" in str(found)


def test_broker_that_closes_after_it_has_proven_its_key_may_be_full() -> None:
    of = target(KEYED)
    client, server = of.client_carrier(), zmtp_carrier("ROUTER", security=curve())
    for _ in range(2):  # greetings; HELLO and WELCOME
        for sender, receiver in ((client, server), (server, client)):
            sent, sender.outgoing = sender.outgoing, []
            receiver.feed(b"".join(sent))
    found = refusal_of(of.place, of.proof, client)
    assert type(found) is BrokerUnavailable
    assert "after INITIATE; it may be starting, stopping or full: try again" in str(found)


def test_error_other_than_400_is_no_refusal() -> None:
    of = target(KEYED)
    client = of.client_carrier()
    server = zmtp_carrier("ROUTER", security=curve())
    client.feed(b"".join(server.outgoing) + b"\x04\x0a\x05ERROR\x03300")
    assert client.failure is not None
    assert refusal_of(of.place, of.proof, client) is None


def test_second_close_after_hello_in_a_row_is_certain() -> None:
    """R156. A broker that is stopped between HELLO and WELCOME closes, too, and must not end all workers."""
    of = target(KEYED)

    async def closed(carrier: Carrier | None) -> OutgoingConnection:
        raise Ungreeted("closed", carrier)

    async def connected() -> OutgoingConnection:
        return None  # type: ignore[return-value]

    async def kind(recognition: Recognition, security: Security | None) -> type[BaseException]:
        with pytest.raises(BrokerUnavailable) as caught:
            await recognition.open(closed(shake(of, security) if security is not None else None))
        return type(caught.value)

    async def main() -> None:
        recognition = Recognition(of, "client")
        recognition.is_known = True
        assert await kind(recognition, curve(OTHER)) is ProbableRefusal
        assert await kind(recognition, curve(OTHER)) is NotAllowed
        for other in (connected, None):
            recognition = Recognition(of, "client")
            recognition.is_known = True
            assert await kind(recognition, curve(OTHER)) is ProbableRefusal
            if other is None:
                assert await kind(recognition, None) is Ungreeted
            else:
                await recognition.open(other())
            assert await kind(recognition, curve(OTHER)) is ProbableRefusal
        assert await kind(Recognition(of, "client"), curve(knows_client=False)) is NotAllowed

    asyncio.run(main())


# -------------------------------------------------------------------- order of bytes


class FakeStream:
    """A stream whose test is the network."""

    last: FakeStream

    def __init__(self, loop: object, connected: object, carrier: Carrier) -> None:
        self.written: list[bytes] = []
        self.is_ready = True
        FakeStream.last = self

    def start(self, arrived: Any, ended: Any) -> None:
        self.arrived = arrived

    def write(self, buffers: list[bytes]) -> None:
        self.written += buffers

    def take(self) -> bytes:
        taken, self.written = self.written, []
        return b"".join(taken)


def test_messages_are_written_before_a_later_reply_to_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PONG overtook messages that were encoded before it, and with CURVE the broker closed the connection: nonces
    must rise."""
    of = target(KEYED)

    async def connect(*_: object) -> None: ...

    monkeypatch.setattr(outgoing, "connect", connect)
    monkeypatch.setattr(outgoing, "Stream", FakeStream)

    async def main() -> None:
        client, server = of.client_carrier(), zmtp_carrier("ROUTER", security=curve())
        assert isinstance(client, Zmtp)
        opening = asyncio.ensure_future(open_connection(of.place, client, print, print, 5.0))
        await asyncio.sleep(0)
        stream = FakeStream.last
        while not server.ready or not client.ready:
            server.feed(stream.take())
            client.feed(b"".join(server.outgoing))
            server.outgoing = []
            stream.arrived([])
        link = await opening
        link.send([b"first"])
        link.send([b"second"])
        ping = server.ping()
        assert ping is not None
        client.feed(ping)
        stream.arrived([])
        link.send([b"third"])
        link.flush()
        assert server.feed(stream.take()) == [[b"first"], [b"second"], [b"third"]]
        assert server.failure is None

    asyncio.run(main())
