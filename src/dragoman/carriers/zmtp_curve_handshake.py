"""The handshake of CURVE (RFC 25 and 26 of the ZeroMQ project), both sides.

Each side has a long-term key pair, C of the client and S of the server, and makes a transient one for each connection,
C' and S'. Small letters are secret keys. `box[text](X->Y)` is encrypted by x for Y. The rest of each command, after its
name:

    client                                                       server
    HELLO    version 1.0, 72 zeros, C', nonce, box[64 zeros](C'->S)
                                 WELCOME  nonce 16, box[S', cookie 96](S->C')
    INITIATE cookie, nonce, box[C, nonce 16, vouch, metadata](C'->S')
             vouch: box[C', S](C->S')
                                 READY    nonce, box[metadata](S'->C'), or ERROR 400

A nonce has 24 bytes: a prefix that names its command, and either a counter of 8 bytes or 16 random bytes. Each side
counts all its commands with a counter, from 1 on, and must never use a number twice. A MESSAGE (`zmtp_curve.py`)
continues to count.

The vouch proves that the holder of c made C' for this server. The cookie is 96 random bytes here. RFC 26 lets a server
keep no state between WELCOME and INITIATE, and put it encrypted into the cookie; this one has a connection and keeps
its state there, so it only compares.

Checks are in the order in which bytes arrive, and the key is looked up after all of them: a stranger learns nothing
from a refusal, which is why C must be proven before `allow` decides. libzmq does not reconnect after an ERROR, so an
unknown key gets one, and every other failure closes the connection without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.curve_keys import KEY_BYTES, check_key_pair
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nacl_box import TAG, SharedKey, key_pair, shared_key
from dragoman.carriers.zmtp_commands import command, error_command, peer_error
from dragoman.carriers.zmtp_handshake import REFUSED, Handshake, Security, is_refusal
from dragoman.carriers.zmtp_limits import ZmtpLimits

KeyPair = tuple[bytes, bytes]  # public key, secret key
Random = Callable[[int], bytes]  # returns random bytes

COUNTER: Final = 8  # bytes of a nonce with a counter
RANDOM: Final = 16  # bytes of a nonce without
COOKIE: Final = 96
VOUCH: Final = TAG + 2 * KEY_BYTES

HELLO_PREFIX: Final = b"CurveZMQHELLO---"
WELCOME_PREFIX: Final = b"WELCOME-"
VOUCH_PREFIX: Final = b"VOUCH---"
INITIATE_PREFIX: Final = b"CurveZMQINITIATE"
READY_PREFIX: Final = b"CurveZMQREADY---"
FROM_CLIENT: Final = b"CurveZMQMESSAGEC"
FROM_SERVER: Final = b"CurveZMQMESSAGES"

VERSION: Final = b"\x01\x00"
PADDING: Final = bytes(72)
SIGNED: Final = bytes(64)  # the text of HELLO's box

# Sizes of commands after their names.
HELLO_REST: Final = len(VERSION) + len(PADDING) + KEY_BYTES + COUNTER + TAG + len(SIGNED)
WELCOME_REST: Final = RANDOM + TAG + KEY_BYTES + COOKIE
INITIATE_REST: Final = COOKIE + COUNTER + TAG + KEY_BYTES + RANDOM + VOUCH  # without metadata
READY_REST: Final = COUNTER + TAG


@dataclass(frozen=True, slots=True, repr=False)
class CurveServer(Security):
    """CURVE as a server.

    `keys`: its key pairs, the newest first. Clients that still have an older public key are served, too.
    `allow(public_key)`: returns whether a client with this key is accepted. `random(count)`: returns random bytes.
    """

    keys: tuple[KeyPair, ...]
    allow: Callable[[bytes], bool]
    random: Random

    def __post_init__(self) -> None:
        if not self.keys:
            raise ValueError("a CURVE server has at least one key pair; none was given")
        for each in self.keys:
            check_key_pair(each)

    @property
    def is_encrypted(self) -> bool:
        return True

    def handshake(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> Handshake:
        return CurveServerHandshake(self, socket_type, identity, dials, limits)


@dataclass(frozen=True, slots=True, repr=False)
class CurveClient(Security):
    """CURVE as a client. `key`: its key pair. `server_key`: the public key that the server must prove to hold.
    `random(count)`: returns random bytes."""

    key: KeyPair
    server_key: bytes
    random: Random

    def __post_init__(self) -> None:
        check_key_pair(self.key)
        if len(self.server_key) != KEY_BYTES:
            raise ValueError(f"a server key of {len(self.server_key)} bytes; a key has {KEY_BYTES}")
        if shared_key(self.server_key, self.key[1]) is None:
            raise ValueError("the server key is a constant that protects nothing; use the server's public key")

    @property
    def is_encrypted(self) -> bool:
        return True

    def handshake(self, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits) -> Handshake:
        return CurveClientHandshake(self, socket_type, identity, dials, limits)


class CurveHandshake(Handshake):
    """The common part of both sides."""

    # fmt: off
    __slots__ = (
        "_random", "_transient", "own_key", "receive_prefix", "received", "send_prefix", "sent", "session",
    )
    # fmt: on

    def __init__(
        self, random: Random, is_server: bool, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits
    ) -> None:
        super().__init__(b"CURVE", socket_type, identity, dials, limits, is_server=is_server, sends_errors=is_server)
        self._random = random
        self._transient: KeyPair = (b"", b"")  # C' or S'
        self.own_key = b""  # the public key under which the peer knows this side: C, or the S for which HELLO was made
        self.session: SharedKey | None = None  # the key of all messages: of (C', S')
        self.sent = 0  # counter of the last nonce that was sent
        self.received = 0  # the same for the peer's
        self.send_prefix = FROM_SERVER if is_server else FROM_CLIENT  # of the nonces of messages
        self.receive_prefix = FROM_CLIENT if is_server else FROM_SERVER

    def _new_transient(self) -> None:
        self._transient = key_pair(self._random(KEY_BYTES))

    def _count(self) -> bytes:
        """Return the counter of the next nonce."""
        self.sent += 1
        return self.sent.to_bytes(COUNTER, "big")

    def _rising(self, counter: bytes, name: str) -> None:
        """Check the counter of a nonce of the peer. Raises Malformed."""
        number = int.from_bytes(counter, "big")
        if number <= self.received:
            raise Malformed("bad nonce", f"{name} has the nonce {number} after {self.received}; nonces must rise")
        self.received = number


class CurveServerHandshake(CurveHandshake):
    """The server's side of a handshake. `peer_key` is the public key of the client, proven and allowed."""

    __slots__ = ("_client_transient", "_cookie", "_security")

    def __init__(
        self, security: CurveServer, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits
    ) -> None:
        super().__init__(security.random, True, socket_type, identity, dials, limits)
        self._security = security
        self._client_transient = b""  # C'
        self._cookie = b""  # empty until WELCOME was sent

    def _begin(self) -> None:
        pass  # the client begins

    def _receive(self, name: bytes, rest: bytes) -> None:
        expected = b"INITIATE" if self._cookie else b"HELLO"
        if name != expected:
            raise self._unexpected(name, expected.decode())
        if self._cookie:
            self._initiate(rest)
        else:
            self._hello(rest)

    def _hello(self, rest: bytes) -> None:
        if len(rest) != HELLO_REST:
            raise _wrong_size("HELLO", rest, f"{HELLO_REST}")
        if rest[:2] != VERSION:
            raise Malformed("bad handshake", f"version {rest[0]}.{rest[1]} of CURVE in HELLO; only 1.0 is supported")
        if rest[2:74] != PADDING:
            raise Malformed("bad handshake", "the padding of HELLO has other bytes than 0")
        self._client_transient = transient = rest[74:106]
        counter = rest[106:114]
        self._rising(counter, "HELLO")
        hello_key = self._key_of_hello(transient, rest[114:], HELLO_PREFIX + counter)
        self._new_transient()
        public, secret = self._transient
        self.session = shared_key(transient, secret)
        self._cookie = self._random(COOKIE)
        nonce = self._random(RANDOM)
        box = hello_key.sealed(public + self._cookie, WELCOME_PREFIX + nonce)
        self.outgoing.append(command(b"WELCOME", nonce + box))

    def _key_of_hello(self, transient: bytes, box: bytes, nonce: bytes) -> SharedKey:
        """Return the key shared with C', of the pair S for which HELLO was made."""
        for public, secret in self._security.keys:
            key = shared_key(transient, secret)
            text = None if key is None else key.opened(box, nonce)
            if key is not None and text is not None:
                if text != SIGNED:
                    raise Malformed("bad handshake", "the box of HELLO has other bytes than 0")
                self.own_key = public
                return key
        ours = " or ".join(public.hex() for public, _ in self._security.keys)
        raise Malformed(
            "wrong server key", f"HELLO was made for another server key; give the peer the server key {ours}"
        )

    def _initiate(self, rest: bytes) -> None:
        if len(rest) < INITIATE_REST:
            raise _wrong_size("INITIATE", rest, f"at least {INITIATE_REST}")
        if rest[:COOKIE] != self._cookie:
            raise Malformed("bad handshake", "INITIATE has another cookie than WELCOME")
        counter = rest[COOKIE : COOKIE + COUNTER]
        self._rising(counter, "INITIATE")
        session = self.session
        text = None if session is None else session.opened(rest[COOKIE + COUNTER :], INITIATE_PREFIX + counter)
        if session is None or text is None:
            raise _forged("INITIATE")
        client = text[:KEY_BYTES]
        self._check_vouch(client, text[KEY_BYTES : KEY_BYTES + RANDOM + VOUCH])
        if not self._security.allow(client):
            self.outgoing.append(error_command(REFUSED))
            detail = f"the CURVE key {client.hex()} is unknown here; allow it, and start the peer again, because"
            raise Malformed("unknown key", f"{detail} libzmq does not reconnect after a refusal", client)
        self._check_metadata(text[KEY_BYTES + RANDOM + VOUCH :])
        counter = self._count()
        self.outgoing.append(command(b"READY", counter + session.sealed(self._metadata(), READY_PREFIX + counter)))
        self.peer_key = client
        self._is_done = True

    def _check_vouch(self, client: bytes, vouch: bytes) -> None:
        key = shared_key(client, self._transient[1])
        text = None if key is None else key.opened(vouch[RANDOM:], VOUCH_PREFIX + vouch[:RANDOM])
        if text != self._client_transient + self.own_key:
            raise Malformed("bad vouch", f"the peer does not prove that it holds the secret key of {client.hex()}")


class CurveClientHandshake(CurveHandshake):
    """The client's side of a handshake. `peer_key` is the public key of the server."""

    __slots__ = ("_hello_key", "_security")

    def __init__(
        self, security: CurveClient, socket_type: str, identity: bytes, dials: bool, limits: ZmtpLimits
    ) -> None:
        super().__init__(security.random, False, socket_type, identity, dials, limits)
        self.own_key = security.key[0]
        self._security = security
        self._hello_key: SharedKey | None = None  # of (C', S)

    def probable_cause(self) -> str:
        if not self._is_greeted:
            return super().probable_cause()
        if self.session is None:
            given = self._security.server_key.hex()
            return f"{self._whose} closed the connection after HELLO; it probably has another public key than {given}"
        return f"{self._whose} closed the connection after INITIATE; it may be starting, stopping or full: try again"

    def _begin(self) -> None:
        self._new_transient()
        public, secret = self._transient
        key = shared_key(self._security.server_key, secret)
        assert key is not None, "the server key was checked"
        self._hello_key = key
        counter = self._count()
        box = key.sealed(SIGNED, HELLO_PREFIX + counter)
        self.outgoing.append(command(b"HELLO", VERSION + PADDING + public + counter + box))

    def _receive(self, name: bytes, rest: bytes) -> None:
        expected = b"WELCOME" if self.session is None else b"READY"
        if name == b"ERROR":
            raise self._error(rest)
        if name != expected:
            raise self._unexpected(name, expected.decode())
        if self.session is None:
            self._welcome(rest)
        else:
            self._ready(rest, self.session)

    def _error(self, rest: bytes) -> Malformed:
        """Return the failure for an ERROR. Anyone on the way can have written it, so it decides nothing else."""
        if not is_refusal(rest):
            return peer_error(rest)
        ours = self._security.key[0].hex()
        return Malformed(
            "rejected", f"{self._whose} sent ERROR 400: it does not accept the public key {ours}; allow it"
        )

    def _welcome(self, rest: bytes) -> None:
        if len(rest) != WELCOME_REST:
            raise _wrong_size("WELCOME", rest, f"{WELCOME_REST}")
        assert self._hello_key is not None
        text = self._hello_key.opened(rest[RANDOM:], WELCOME_PREFIX + rest[:RANDOM])
        server, own = b"" if text is None else text[:KEY_BYTES], self._transient
        session = None if text is None else shared_key(server, own[1])
        vouch_key = None if text is None else shared_key(server, self._security.key[1])
        if text is None or session is None or vouch_key is None:
            given = self._security.server_key.hex()
            detail = f"{self._whose} does not prove that it holds the secret key of the server key {given}"
            raise Malformed("wrong server key", f"{detail}; compare this key with its public key")
        nonce = self._random(RANDOM)
        vouch = vouch_key.sealed(own[0] + self._security.server_key, VOUCH_PREFIX + nonce)
        counter = self._count()
        proof = self._security.key[0] + nonce + vouch + self._metadata()
        box = session.sealed(proof, INITIATE_PREFIX + counter)
        self.outgoing.append(command(b"INITIATE", text[KEY_BYTES:] + counter + box))
        self.session = session

    def _ready(self, rest: bytes, session: SharedKey) -> None:
        if len(rest) < READY_REST:
            raise _wrong_size("READY", rest, f"at least {READY_REST}")
        counter = rest[:COUNTER]
        self._rising(counter, "READY")
        metadata = session.opened(rest[COUNTER:], READY_PREFIX + counter)
        if metadata is None:
            raise _forged("READY")
        self._check_metadata(metadata)
        self.peer_key = self._security.server_key
        self._is_done = True


def _wrong_size(name: str, rest: bytes, due: str) -> Malformed:
    return Malformed("bad handshake", f"{len(rest)} bytes after {name}; {due} are due")


def _forged(name: str) -> Malformed:
    return Malformed("forged", f"the box of {name} does not open; bytes were changed on the way, or the peer is broken")
