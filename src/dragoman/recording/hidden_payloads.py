"""Replaces payloads by letters and digits that depend on a key.

Equal payloads become equal replacements of the same length, so that idempotency keys and repeated requests behave as
they did. The key is random and is written nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b, shake_256
from typing import Any, Final

from dragoman.carriers.carrier import Frame
from dragoman.core.failure import Failure
from dragoman.core.kept_jobs import digest
from dragoman.dialects.hidden_fields import hide_text

LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"
TABLE: Final = bytes(LETTERS[value % len(LETTERS)] for value in range(256))


class HiddenPayloads:
    """Replaces payloads, or copies them if `key` is None.

    `found` is called when a payload of a stored job of an earlier run occurs, with the keyed digest under which that
    job was recorded, and the digest of the replacement.
    """

    def __init__(self, key: bytes | None, found: Callable[[bytes, bytes], None]) -> None:
        self._key = key
        self._found = found
        self._stored: set[bytes] = set()  # digests of payloads that an earlier run has stored

    def __call__(self, payload: Frame) -> bytes:
        if self._key is None or not payload:
            return bytes(payload)
        original = digest(payload)
        hidden = shake_256(self._key + original).digest(len(payload)).translate(TABLE)
        if original in self._stored:
            self._stored.remove(original)
            self._found(self._keyed(original), digest(hidden))
        return hidden

    @property
    def is_off(self) -> bool:
        """True if payloads are recorded as they are."""
        return self._key is None

    def text(self, text: str) -> str:
        return text if self._key is None else hide_text(text, self)

    def failure(self, failure: Failure | None) -> tuple[Any, ...] | None:
        """Return the fields of a failure: its message and its traceback are replaced, all else stays."""
        if failure is None:
            return None
        texts = self.text(failure.message), self.text(failure.traceback)
        return failure.type, *texts, failure.retry_in, failure.unknown, failure.known

    def stored_digest(self, original: bytes) -> bytes:
        """Return the digest of a stored payload as it is recorded."""
        if self._key is None or not original:
            return original
        self._stored.add(original)
        return self._keyed(original)

    def _keyed(self, original: bytes) -> bytes:
        assert self._key is not None
        return blake2b(original, key=self._key, digest_size=16).digest()
