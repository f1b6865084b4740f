"""The hash of a certificate's public key, by which a principal is known."""

from __future__ import annotations

from hashlib import sha256

SEQUENCE = 0x30
VERSION = 0xA0  # present in all but the oldest certificates


def public_key_hash(der: bytes) -> bytes:
    """SHA-256 of the SubjectPublicKeyInfo of a certificate in DER. It is the same after a renewal with the same key.
    Raises ValueError."""
    _, start, _ = _element(der, 0, SEQUENCE)  # Certificate
    _, at, end = _element(der, start, SEQUENCE)  # TBSCertificate
    tag, _, after = _element(der, at)
    fields = 5 if tag == VERSION else 4  # serial number, signature, issuer, validity, subject; before them the version
    at = after
    for _ in range(fields):
        at = _element(der, at)[2]
    _, _, after = _element(der, at, SEQUENCE)
    if after > end:
        raise ValueError("the certificate is damaged: its public key ends behind it")
    return sha256(der[at:after]).digest()


def _element(der: bytes, at: int, expected: int | None = None) -> tuple[int, int, int]:
    """The tag of the element at this place, the place of its content, and the place behind it."""
    if at + 2 > len(der) or (expected is not None and der[at] != expected):
        raise ValueError("it is not an X.509 certificate")
    size, start = der[at + 1], at + 2
    if size >= 0x80:
        digits = size & 0x7F
        size = int.from_bytes(der[start : start + digits], "big")
        start += digits
    if not start + size <= len(der):
        raise ValueError("the certificate is damaged: it is cut off")
    return der[at], start, start + size
