"""Sentences about brokers that do not accept the identity of this side: each names the setting to look at."""

from __future__ import annotations

from pathlib import Path

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.http import FOREIGN_HOST, HttpClient
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import CurveZmtp
from dragoman.sdk.address import SocketAddress, TlsAddress
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed
from dragoman.sdk.proof import WHERE_SERVER_KEY_IS, Proof, Setting

SET_KEY = (
    "set key and server_key, as arguments, in the URL (?server_key=HEX&key=NAME), or as DRAGOMAN_KEY and "
    "DRAGOMAN_SERVER_KEY; `dragoman keys new NAME` makes a key"
)
SIGNATURE_BYTES = 10  # of a greeting of ZMTP
SET_TOKEN = "set token_file, as an argument, in the URL, or as DRAGOMAN_TOKEN_FILE"  # noqa: S105 - not a token


def refusal_of(place: SocketAddress, proof: Proof, carrier: Carrier | None) -> BrokerUnavailable | None:
    """Return the error about a handshake that failed because of this side's identity, or of the name in its address;
    or None. `carrier`: that of the ended connection."""
    if isinstance(carrier, HttpClient) and carrier.failure is not None and carrier.failure.reason == FOREIGN_HOST:
        return NotAllowed(_foreign_host(place))
    if not isinstance(carrier, Zmtp):
        return None
    reason = carrier.failure.reason if carrier.failure is not None else ""
    if reason == "mechanism":
        problem = _other_mechanism(proof, carrier.peer_mechanism)
        return NotAllowed(f"the broker at {place} {problem}") if problem else None
    if reason == "rejected":
        return _unknown_key(place, proof) if isinstance(carrier, CurveZmtp) else NotAllowed(_bad_token(place, proof))
    if reason == "wrong server key":
        return NotAllowed(_wrong_server_key(place, proof))
    if reason:
        return None
    if not carrier.peer_mechanism:
        is_zmtp = carrier.holding >= SIGNATURE_BYTES  # libzmq closes before it has named a mechanism other than ours
        return ProbableRefusal(f"the broker at {place} probably {_mechanism_unlike(proof)}") if is_zmtp else None
    if not isinstance(carrier, CurveZmtp):
        return None
    if carrier.is_server_proven:
        return BrokerUnavailable(f"no broker answers at {place}: {carrier.probable_cause()}")
    return ProbableRefusal(_wrong_server_key(place, proof))


class ProbableRefusal(BrokerUnavailable):
    """The broker closed the connection at a point where it does so for a wrong key or mechanism. It may be stopping; if
    that happens again, it is a refusal (R156)."""


def silent_refusal(place: SocketAddress) -> ProbableRefusal | None:
    """Return the error about a broker that closed the connection after the handshake of TLS, without a byte: it does so
    if the certificate of this side belongs to no principal. None: this side has no certificate."""
    if not isinstance(place, TlsAddress) or not place.tls.cert:
        return None
    return ProbableRefusal(
        f"the broker at {place} closed the connection after the TLS handshake: it probably speaks another dialect, or "
        f"{_unknown_certificate(place)}"
    )


def unauthenticated(place: SocketAddress, proof: Proof) -> NotAllowed:
    """Return the error about a response 401 of HTTP."""
    if proof.token is not None:
        return NotAllowed(_bad_token(place, proof))
    if isinstance(place, TlsAddress) and place.tls.cert and not proof.withheld:
        return NotAllowed(f"the broker at {place} {_unknown_certificate(place)}; or, if it has tokens: {SET_TOKEN}")
    return NotAllowed(f"the broker at {place} requires a token: {_set_token(proof, 'use https://')}")


def _unknown_key(place: SocketAddress, proof: Proof) -> NotAllowed:
    name = proof.own.value if proof.own is not None and Path(proof.own.value).name == proof.own.value else "NAME"
    command = f"dragoman keys allow {name} {proof.public_key} --work SERVICE"
    return NotAllowed(
        f"the broker at {place} does not know this key ({_label(proof.own)}); run `{command}` (or --call SERVICE) "
        "there, then start this program again"
    )


def _wrong_server_key(place: SocketAddress, proof: Proof) -> str:
    return (
        f"{_label(proof.server_key)} is not the public key of the broker at {place}, or another program listens there; "
        f"{WHERE_SERVER_KEY_IS}"
    )


def _unknown_certificate(place: TlsAddress) -> str:
    """Return the predicate about a broker that does not know the certificate of this side."""
    cert = place.tls.cert
    return (
        f"has no principal for the certificate in {cert} (cert=): run `dragoman access allow NAME --tls-cert {cert}` "
        "there, with --call or --work"
    )


def _foreign_host(place: SocketAddress) -> str:
    return (
        f"the broker at {place} does not serve this host name: connect by another name or address of the broker, or "
        "add the name to hosts= in the URL of its listener"
    )


def _bad_token(place: SocketAddress, proof: Proof) -> str:
    return (
        f"the broker at {place} does not accept this token ({_label(proof.own)}): it is unknown, expired or revoked; "
        "make another one there with `dragoman token new`"
    )


def _other_mechanism(proof: Proof, theirs: bytes) -> str:
    """Return the predicate of an error about a broker that uses another mechanism; empty for unknown ones."""
    if theirs == b"NULL":
        return _mechanism_unlike(proof)
    instead = f" in place of that in {_label(proof.own)}" if proof.own is not None else ""
    if theirs == b"CURVE":
        return f"requires a key (CURVE){instead}: {SET_KEY}"
    if theirs == b"PLAIN":
        return f"requires a token{instead}: {_set_token(proof, 'use tls://')}"
    return ""


def _mechanism_unlike(proof: Proof) -> str:
    """Return the predicate about a broker that does not use the mechanism of this side."""
    if proof.own is None:
        return f"requires a key (CURVE): {SET_KEY}"
    if proof.token is not None:
        return f"takes no token at this address: remove it ({_label(proof.own)}), or check the port"
    return (
        f"uses no keys at this address: remove key and server_key ({_label(proof.own)}, {_label(proof.server_key)}) "
        "to connect without encryption, or check the port"
    )


def _set_token(proof: Proof, over_tls: str) -> str:
    if not proof.withheld:
        return SET_TOKEN
    return f"{proof.withheld} is set, but is sent only inside TLS; {over_tls}, or set token_file in the URL"


def _label(setting: Setting | None) -> str:
    return setting.label if setting is not None else "none is set"
