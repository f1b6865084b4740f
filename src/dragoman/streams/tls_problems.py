"""Error sentences about TLS: a cause, and what to do next."""

from __future__ import annotations

import ssl
from typing import Final

BEGINNING_BYTES: Final = 8  # enough to identify a protocol
ALERT_OF_WRONG_PROTOCOL: Final = bytes.fromhex("15 03 01 00 02 02 46")  # fatal, protocol_version

RESUMED: Final = (
    "the client resumed an earlier session, which skips the check of its certificate; its next connection cannot"
)

NATS: Final = "NATS"
_PLAIN_PROTOCOLS: Final = (
    (b"\xff", "ZMTP"),
    (b"\x00SP\x00", "SP, the protocol of nanomsg and NNG,"),
    (b"HTTP/", "HTTP"),
    (b"SSH-", "SSH"),
    (b"INFO {", NATS),
    *((method, "HTTP") for method in (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"PATCH ", b"OPTIONS ")),
)
# Alerts by which one side refuses the certificate of the other.
_CERTIFICATE_ALERTS: Final = frozenset(
    {
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_ACCESS_DENIED",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "TLSV1_ALERT_DECRYPT_ERROR",
    }
)
_VERSION_PROBLEMS: Final = frozenset(
    {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW", "NO_PROTOCOLS_AVAILABLE"}
)
_CIPHER_PROBLEMS: Final = frozenset({"NO_SHARED_CIPHER", "SSLV3_ALERT_HANDSHAKE_FAILURE"})
# Codes of X509_verify_cert_error_string.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_WRONG_NAMES: Final = (62, 64)  # of a host, of an IP address
_UNKNOWN_ISSUERS: Final = (2, 18, 19, 20, 21)

_UNKNOWN: Final = "the broker does not know this certificate"
_REQUIRED: Final = "the broker requires a certificate"
REFUSED_BY_BROKER: Final = (_UNKNOWN, _REQUIRED)  # beginnings of sentences about a refused client


def tls_problem(error: ssl.SSLError, beginning: bytes, is_server: bool) -> str:
    """Return a sentence about an error of TLS. `beginning`: the first bytes of the remote side."""
    plain = plain_protocol(beginning)
    if plain is not None:
        return plain_peer(plain, is_server)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _client_refused(error) if is_server else _server_refused(error)
    reason = error.reason or ""
    if reason == "HTTP_REQUEST":
        return plain_peer("HTTP", is_server)
    if reason == "WRONG_VERSION_NUMBER":
        return f"the {'peer' if is_server else 'port'} speaks a protocol without TLS: check the address"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has shown no certificate, and client_ca= requires one: the client needs cert= and key="
    if reason in _CERTIFICATE_ALERTS:
        alert = reason.partition("_ALERT_")[2].lower().replace("_", " ")
        if is_server:
            return (
                f"the client rejected the certificate of this listener ({alert}): "
                "check its ca= and the name that it connects to"
            )
        if reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED":
            return f"{_REQUIRED}: name one that it accepts with cert= and key="
        return (
            f"{_UNKNOWN} ({alert}): name one that it accepts with cert= and key=, "
            "or add this one to the file of client_ca= at the broker"
        )
    if reason in _VERSION_PROBLEMS:
        return "the peer has no TLS version that is allowed here: native needs TLS 1.3, other dialects 1.2 or newer"
    if reason in _CIPHER_PROBLEMS:
        other = "" if is_server else ", or it requires a certificate of this side (cert= and key=)"
        return f"the peer has no TLS cipher in common with this side: ECDHE with AES-GCM or ChaCha20 is allowed{other}"
    shown = reason.lower().replace("_", " ") or str(error)
    return f"TLS failed: {shown}"


def plain_protocol(beginning: bytes) -> str | None:
    """Return the name of a protocol without TLS that begins so, or None."""
    for known, name in _PLAIN_PROTOCOLS:
        if beginning.startswith(known):
            return name
    return None


def plain_peer(protocol: str, is_server: bool) -> str:
    if is_server:
        return f"the peer speaks {protocol} without TLS: its address needs +tls, or https for HTTP"
    if protocol == NATS:
        return "the NATS server sends INFO before TLS: remove tls_first=true from the address"
    return f"the port speaks {protocol} without TLS: write +tcp instead of +tls in the address, or http for https"


def ended_in_handshake(problem: str, beginning: bytes, is_server: bool) -> str:
    """Return a sentence about a connection that ended before TLS was ready."""
    if not beginning and not is_server:
        return f"{problem} without a TLS handshake: the port may speak a protocol without TLS; check the address"
    return f"{problem} during the TLS handshake"


def ended_before_greeting(problem: str) -> str:
    """Return a sentence about a connection that ended without a byte of the greeting that comes before TLS (NATS)."""
    return f"{problem} without INFO: the server may expect TLS first (tls_first=true)"


def no_application_protocol(required: str, is_server: bool) -> str:
    """Return a sentence about a handshake without the required application protocol (ALPN)."""
    if is_server:
        return f"the client did not offer the application protocol {required} (ALPN): this port speaks native+tls"
    return f"the port did not accept the application protocol {required} (ALPN): it is not a listener of native+tls"


def _server_refused(error: ssl.SSLCertVerificationError) -> str:
    """Return a sentence about the certificate of a broker that a client does not accept."""
    code = error.verify_code
    if code in _WRONG_NAMES:
        wrong = error.verify_message.rstrip(".")
        return (
            f"the certificate of the broker is for another name: {wrong}; "
            "connect to a name of the certificate, or write it as server_name="
        )
    if code == _EXPIRED:
        return "the certificate of the broker has expired: renew it there and restart or reload the broker"
    if code == _NOT_YET_VALID:
        return "the certificate of the broker is not valid yet: compare the clocks of both machines"
    if code in _UNKNOWN_ISSUERS:
        return (
            f"the certificate of the broker has an unknown issuer ({error.verify_message}): "
            "name the file of its certificate authority, or of this certificate itself, with ca="
        )
    return f"the certificate of the broker is not accepted: {error.verify_message}"


def _client_refused(error: ssl.SSLCertVerificationError) -> str:
    """Return a sentence about the certificate of a client that a listener does not accept."""
    if error.verify_code == _EXPIRED:
        return "the certificate of the client has expired: the client needs a new one"
    if error.verify_code in _UNKNOWN_ISSUERS:
        return (
            f"the certificate of the client has an unknown issuer ({error.verify_message}): "
            "add the certificate or its certificate authority to the file of client_ca="
        )
    return f"the certificate of the client is not accepted: {error.verify_message}"
