"""Identities of principals: their kinds, and their form in files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dragoman.carriers.curve_keys import key_hex, parse_key

OVERFLOW_ID = 65_534  # the kernel's uid and gid for those that it cannot name: they prove nothing
MAX_ID = 2**32 - 2  # the largest id; the one above means "none" to the kernel
MAX_NAME = 255  # characters of a name in a certificate

_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")


class IdentityKind(StrEnum):
    """Kind of proof. The value is the key in the file of a principal."""

    CURVE = "curve"  # public key of CURVE
    TLS_KEY = "tls_key"  # SHA-256 of the public key (SPKI) of a client certificate
    TLS_NAME = "tls_name"  # name in a client certificate that a trusted authority has signed
    TOKEN = "token"  # noqa: S105  # SHA-256 of a token
    UID = "uid"
    GID = "gid"


@dataclass(frozen=True, slots=True)
class Identity:
    """One proof of a principal: 32 bytes of a key or hash, a name, or a number."""

    kind: IdentityKind
    value: bytes | str | int

    @property
    def in_file(self) -> str | int:
        """The value as it is written in the file of a principal."""
        if not isinstance(self.value, bytes):
            return self.value
        return key_hex(self.value) if self.kind is IdentityKind.CURVE else f"sha256:{self.value.hex()}"

    @property
    def label(self) -> str:
        """Short form for logs and lists: the first 8 hex digits of a key or hash."""
        return self.value.hex()[:8] if isinstance(self.value, bytes) else str(self.value)


def read_identity(kind: IdentityKind, value: object) -> Identity:
    """Read one entry of a list in the file of a principal. Raises ValueError, without the value where it may be a
    secret by mistake."""
    return Identity(kind, _READERS[kind](value))


def _curve(value: object) -> bytes:
    try:
        return parse_key(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(
            "has an entry that is not a public key; write 64 hex digits, or 40 characters of Z85, as printed by "
            "`dragoman keys new`"
        ) from None


def _token(value: object) -> bytes:
    if isinstance(value, str) and value.startswith("dgm_"):
        raise ValueError(
            "has a token itself. A file has only the hash of a token; this one is no longer secret: remove it, and "
            "make another with `dragoman token new`"
        )
    return _hash(value, "as written by `dragoman token new`")


def _tls_key(value: object) -> bytes:
    return _hash(value, "as written by `dragoman access allow --tls-cert FILE`")


def _hash(value: object, source: str) -> bytes:
    found = _HASH.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"has an entry that is not a hash; write 'sha256:' and 64 hex digits, {source}")
    return bytes.fromhex(found[1])


def _tls_name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable() or "*" in value:
        raise ValueError(
            f"has the entry {value!r}; write a name of the certificate as it is there, 1 to {MAX_NAME} printable "
            "characters without '*'"
        )
    return value


def _id(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise ValueError(f"has the entry {value!r}; write a number from 0 to {MAX_ID}, without quotes")
    if value == OVERFLOW_ID:
        raise ValueError(
            f"has the entry {OVERFLOW_ID}, which the kernel reports for every user or group that it cannot name; run "
            "the program under another user"
        )
    return value


_READERS: Mapping[IdentityKind, Callable[[object], bytes | str | int]] = {
    IdentityKind.CURVE: _curve,
    IdentityKind.TLS_KEY: _tls_key,
    IdentityKind.TLS_NAME: _tls_name,
    IdentityKind.TOKEN: _token,
    IdentityKind.UID: _id,
    IdentityKind.GID: _id,
}
