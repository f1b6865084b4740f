"""A secret that never prints: tokens and secret keys."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest


class Secret(str):
    """A secret. In every form it is `secret:` and the first 8 hex digits of its SHA-256: str, repr, formats, JSON, and
    copies for other processes. It is a str of these characters, so that encoders need not know it. Only `reveal` has
    the value."""

    __slots__ = ("_value",)
    _value: bytes

    def __new__(cls, value: str | bytes) -> Secret:
        raw = value.encode() if isinstance(value, str) else bytes(value)
        self = super().__new__(cls, f"secret:{sha256(raw).hexdigest()[:8]}")
        self._value = raw
        return self

    def reveal(self) -> bytes:
        """The value. Never log it, and never make it part of a message."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and compare_digest(self._value, other._value)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self
