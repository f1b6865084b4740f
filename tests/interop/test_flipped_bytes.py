"""A man in the middle who changes one byte of a conversation: it ends, and no side ever gets another message.

Both ends are the carriers and TLS contexts of a real connection; only the bytes between them pass through the test.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import pytest

from authority import Authority, Issued
from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.curve_keys import new_key_pair
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient, CurveServer
from dragoman.streams.tls_context import ListenerTls, TlsFiles, TlsRole, client_role

REQUEST: Message = [b"", b"resize", b"picture" * 5]
REPLY: Message = [b"", b"smaller"]
GREETING = 64  # bytes of ZMTP before the first that CURVE protects
HANDSHAKE_STEP = 7  # of the handshake of TLS every seventh byte: each costs signatures


class End(Protocol):
    """One end of a conversation."""

    is_broken: bool
    heard: list[Message]

    def take(self) -> bytes:
        """Return the bytes to send."""

    def feed(self, data: bytes) -> None: ...

    def say(self, message: Message) -> bool:
        """Send a message. Returns False if the handshake is not done."""


class CarrierEnd:
    """A carrier of ZMTP."""

    def __init__(self, carrier: Zmtp) -> None:
        self.carrier = carrier
        self.heard: list[Message] = []

    @property
    def is_broken(self) -> bool:
        return self.carrier.failure is not None

    def take(self) -> bytes:
        outgoing, self.carrier.outgoing = self.carrier.outgoing, []
        return b"".join(outgoing)

    def feed(self, data: bytes) -> None:
        for message in self.carrier.feed(data):
            assert not isinstance(message, TooLarge)
            self.heard.append([bytes(frame) for frame in message])

    def say(self, message: Message) -> bool:
        if self.carrier.ready and not self.is_broken:
            self.carrier.outgoing += [bytes(each) for each in self.carrier.encode(message)]
            return True
        return False


class TlsEnd:
    """A carrier of ZMTP inside TLS."""

    def __init__(self, role: TlsRole, carrier: Zmtp) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = role.context.wrap_bio(self._incoming, self._outgoing, role.is_server, role.server_name)
        self._inner = CarrierEnd(carrier)
        self._is_ready = False
        self.is_broken = False
        self.feed(b"")

    @property
    def heard(self) -> list[Message]:
        return self._inner.heard

    def take(self) -> bytes:
        if self._is_ready and not self.is_broken:
            plain = self._inner.take()
            if plain:
                self._tls.write(plain)
        return self._outgoing.read()

    def feed(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if not self._is_ready:
                self._tls.do_handshake()
                self._is_ready = True
            while not self._inner.is_broken:
                plain = self._tls.read(1 << 14)
                if not plain:
                    return
                self._inner.feed(plain)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.is_broken = True
        self.is_broken = self.is_broken or self._inner.is_broken

    def say(self, message: Message) -> bool:
        return self._is_ready and not self.is_broken and self._inner.say(message)


@dataclass
class Conversation:
    """The result of a conversation between a client and a server."""

    client: End
    server: End
    passed: dict[bool, int]  # bytes that the client, and the server, have sent
    is_changed: bool  # a byte was changed. The signatures of TLS differ in length, so a place may be beyond the end

    @property
    def is_complete(self) -> bool:
        return self.server.heard == [REQUEST] and self.client.heard == [REPLY]

    def assert_nothing_was_forged(self) -> None:
        assert self.server.heard in ([], [REQUEST])
        assert self.client.heard in ([], [REPLY])


def converse(ends: Callable[[], tuple[End, End]], is_client: bool = True, place: int = -1) -> Conversation:
    """Pass all bytes between two new ends, and change the byte at `place` of those that one of them sends."""
    client, server = ends()
    passed = {True: 0, False: 0}
    has_asked = has_replied = is_changed = False
    while True:
        has_asked = has_asked or client.say(REQUEST)
        has_replied = has_replied or (bool(server.heard) and server.say(REPLY))
        moved = False
        for sender, receiver, from_client in ((client, server, True), (server, client, False)):
            data = bytearray(sender.take())
            at = place - passed[from_client]
            if from_client is is_client and 0 <= at < len(data):
                data[at] ^= 1 << place % 8
                is_changed = True
            passed[from_client] += len(data)
            if data and not receiver.is_broken:
                receiver.feed(bytes(data))
                moved = True
        if not moved:
            return Conversation(client, server, passed, is_changed)


def check_flips(ends: Callable[[], tuple[End, End]], is_client: bool, places: Iterable[int]) -> list[int]:
    """Change one byte after the other. Returns the places where the conversation was completed all the same."""
    survived = []
    for place in places:
        done = converse(ends, is_client, place)
        done.assert_nothing_was_forged()
        if done.is_complete and done.is_changed:
            survived.append(place)
    return survived


# ---------------------------------------------------------------- CURVE


def curve_ends() -> tuple[End, End]:
    server, client = new_key_pair(b"s" * 32), new_key_pair(b"c" * 32)
    counts = iter(range(1, 256))

    def entropy(count: int) -> bytes:
        return bytes([next(counts)]) * count

    listening = CurveServer((server,), lambda key: key == client[0], entropy)
    dialling = CurveClient(client, server[0], entropy)
    return (
        CarrierEnd(zmtp_carrier("DEALER", b"us", dials=True, security=dialling)),
        CarrierEnd(zmtp_carrier("ROUTER", security=listening)),
    )


@pytest.mark.parametrize("is_client", [True, False], ids=["from the client", "from the broker"])
def test_every_changed_byte_of_curve_ends_the_conversation(is_client: bool) -> None:
    whole = converse(curve_ends)
    assert whole.is_complete
    assert check_flips(curve_ends, is_client, range(GREETING, whole.passed[is_client])) == []
    check_flips(curve_ends, is_client, range(GREETING))  # the greeting is not protected, and has free bytes


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def tls_ends(authority: Authority) -> Callable[[], tuple[End, End]]:
    """Ends of which each has verified the certificate of the other."""
    server: Issued = authority.issue()
    client: Issued = authority.issue("client", "extendedKeyUsage=clientAuth")
    ca = str(authority.cert)
    listener = ListenerTls(TlsFiles(cert=str(server.cert), key=str(server.key), client_ca=ca))
    dialler = client_role(TlsFiles(cert=str(client.cert), key=str(client.key), ca=ca), "localhost")

    def ends() -> tuple[End, End]:
        return TlsEnd(dialler, Zmtp("DEALER", dials=True)), TlsEnd(listener.role, Zmtp("ROUTER"))

    return ends


@pytest.mark.parametrize("is_client", [True, False], ids=["from the client", "from the broker"])
def test_changed_byte_of_tls_ends_the_conversation(tls_ends: Callable[[], tuple[End, End]], is_client: bool) -> None:
    """Every byte of the records with messages. Of the handshake, only versions in the heads of records are free."""
    whole = converse(tls_ends)
    assert whole.is_complete
    total = whole.passed[is_client]
    last = total - 100  # in the last records, which carry the message
    assert check_flips(tls_ends, is_client, range(last, total)) == []
    survived = check_flips(tls_ends, is_client, range(is_client, last, HANDSHAKE_STEP))
    assert len(survived) <= 3, survived
