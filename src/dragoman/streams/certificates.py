"""Facts of an X.509 certificate: key, names and period, read from its DER form."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address

SUBJECT_ALTERNATIVE_NAME = bytes.fromhex("551d11")  # 2.5.29.17
COMMON_NAME = bytes.fromhex("550403")  # 2.5.4.3

# Tags of DER.
_OCTETS, _UTC_TIME = 0x04, 0x17
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1"}  # UTF8, Printable, IA5, Teletex
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_MAIL, _DNS, _URI, _IP = 0x81, 0x82, 0x86, 0x87

_ENDS_EARLY = "not a certificate: its DER form ends early"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Facts of a certificate. `names`: the subject's alternative names, or its common names if it has none."""

    spki_sha256: str  # hash of the public key (SubjectPublicKeyInfo); it survives a renewal with the same key
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime


def read_certificate(der: bytes) -> Certificate:
    """Read the facts of a certificate. Raises ValueError."""
    try:
        return _read_certificate(der)
    except IndexError:
        raise ValueError(_ENDS_EARLY) from None


def read_pem(text: str) -> list[bytes]:
    """Return all certificates of a PEM file as DER. Raises ValueError."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    blocks = [begin + rest.partition(end)[0] + end for rest in text.split(begin)[1:]]
    return [ssl.PEM_cert_to_DER_cert(block) for block in blocks]


def _read_certificate(der: bytes) -> Certificate:
    fields = [each for each in _elements(_first(_first(der))) if each[0] != _VERSION]
    # serial number, algorithm, issuer, validity, subject, public key, and optional fields with tags of their own
    validity, subject, key = fields[3], fields[4], fields[5]
    not_before, not_after = (_time(tag, content) for tag, _, content in _elements(validity[2]))
    alternative: list[str] = []
    for tag, _, content in fields[6:]:
        if tag == _EXTENSIONS:
            alternative += _alternative_names(content)
    names = alternative or list(_common_names(subject[2]))
    return Certificate(hashlib.sha256(key[1]).hexdigest(), tuple(names), not_before, not_after)


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, whole element and content of each element. Raises ValueError."""
    at = 0
    while at < len(data):
        length, start = data[at + 1], at + 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[at + 2 : start], "big")
        if start + length > len(data):
            raise ValueError(_ENDS_EARLY)
        yield data[at], data[at : start + length], data[start : start + length]
        at = start + length


def _first(data: bytes) -> bytes:
    """Return the content of the first element. Raises ValueError."""
    for _, _, content in _elements(data):
        return content
    raise ValueError(_ENDS_EARLY)


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _alternative_names(extensions: bytes) -> Iterator[str]:
    for _, _, extension in _elements(_first(extensions)):
        parts = [(tag, content) for tag, _, content in _elements(extension)]
        if parts[0][1] != SUBJECT_ALTERNATIVE_NAME or parts[-1][0] != _OCTETS:
            continue
        for tag, _, content in _elements(_first(parts[-1][1])):
            if tag in (_MAIL, _DNS, _URI):
                yield from _printable(content, "ascii")
            elif tag == _IP and len(content) in (4, 16):
                yield str(ip_address(content))


def _common_names(subject: bytes) -> Iterator[str]:
    for _, _, group in _elements(subject):
        for _, _, pair in _elements(group):
            (_, _, kind), (tag, _, value) = _elements(pair)
            if kind == COMMON_NAME and tag in _TEXTS:
                yield from _printable(value, _TEXTS[tag])


def _printable(raw: bytes, encoding: str) -> Iterator[str]:
    """Yield the text, unless it has control characters or another encoding: such a name identifies nothing."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return
    if text and text.isprintable():
        yield text
