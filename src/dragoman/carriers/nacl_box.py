"""Boxes of NaCl (X25519, XSalsa20, Poly1305), made and opened in place by PyNaCl.

A box is a tag of 16 bytes and the encrypted text. PyNaCl's bindings copy each text several times, so its extension
module is called directly (`nacl._sodium`), which takes half of the time for small boxes and copies large ones never.
That name is private to PyNaCl, and older versions lack the two functions: then the bindings are used.

PyNaCl is imported by the first call, so that only programs with CURVE load it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

TAG: Final = 16  # bytes
NONCE: Final = 24  # bytes
SMALL: Final = 1024  # bytes; boxes up to this size go through a buffer that each key has


class SharedKey:
    """The key that two key pairs have in common, used by one connection.

    `seal` and `open` change a buffer in place. `sealed` and `opened` are quicker for small texts.
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, buffer: bytearray, at: int, size: int, nonce: bytes) -> None:
        """Encrypt the `size` bytes of text after the place of the tag. `at`: the place of the tag, 16 bytes."""
        raise NotImplementedError

    def open(self, buffer: bytearray, at: int, size: int, nonce: bytes) -> bool:
        """Decrypt the text of the box of `size` bytes at `at`. Returns False, and changes nothing, if it is forged."""
        raise NotImplementedError

    def sealed(self, text: bytes, nonce: bytes) -> bytes:
        """Return a text as a box."""
        buffer = bytearray(TAG) + text
        self.seal(buffer, 0, len(text), nonce)
        return bytes(buffer)

    def opened(self, box: bytes, nonce: bytes) -> bytes | None:
        """Return the text of a box, or None if it is forged."""
        buffer = bytearray(box)
        return bytes(buffer[TAG:]) if self.open(buffer, 0, len(box), nonce) else None


class DirectKey(SharedKey):
    """Calls the functions of libsodium without a layer in between."""

    __slots__ = ("_from_buffer", "_open", "_pointer", "_seal", "_view")

    def __init__(self, key: bytes, sodium: Any) -> None:
        super().__init__(key)
        self._from_buffer = sodium.ffi.from_buffer
        self._seal = sodium.lib.crypto_box_easy_afternm
        self._open = sodium.lib.crypto_box_open_easy_afternm
        buffer = bytearray(SMALL)
        self._view = memoryview(buffer)
        self._pointer = sodium.ffi.from_buffer("unsigned char[]", buffer)

    def sealed(self, text: bytes, nonce: bytes) -> bytes:
        size = len(text)
        if size > SMALL - TAG:
            return super().sealed(text, nonce)
        assert len(nonce) == NONCE
        failed = self._seal(self._pointer, text, size, nonce, self._key)
        assert not failed, "libsodium cannot encrypt this"
        return bytes(self._view[: TAG + size])

    def opened(self, box: bytes, nonce: bytes) -> bytes | None:
        size = len(box)
        if not TAG <= size <= SMALL:
            return super().opened(box, nonce)
        assert len(nonce) == NONCE
        if self._open(self._pointer, box, size, nonce, self._key):
            return None
        return bytes(self._view[: size - TAG])

    def seal(self, buffer: bytearray, at: int, size: int, nonce: bytes) -> None:
        assert at >= 0
        assert size >= 0
        assert at + TAG + size <= len(buffer)
        assert len(nonce) == NONCE
        whole = self._from_buffer("unsigned char[]", buffer)  # keeps the buffer in its place while it exists
        box = whole + at
        failed = self._seal(box, box + TAG, size, nonce, self._key)
        assert not failed, "libsodium cannot encrypt this"

    def open(self, buffer: bytearray, at: int, size: int, nonce: bytes) -> bool:
        if size < TAG:
            return False
        assert at >= 0
        assert at + size <= len(buffer)
        assert len(nonce) == NONCE
        whole = self._from_buffer("unsigned char[]", buffer)
        box = whole + at
        return not self._open(box + TAG, box, size, nonce, self._key)


class BoundKey(SharedKey):
    """Calls the bindings of PyNaCl, which every version has."""

    __slots__ = ()

    def seal(self, buffer: bytearray, at: int, size: int, nonce: bytes) -> None:
        from nacl.bindings import crypto_box_afternm

        end = at + TAG + size
        buffer[at:end] = crypto_box_afternm(bytes(buffer[at + TAG : end]), nonce, self._key)

    def open(self, buffer: bytearray, at: int, size: int, nonce: bytes) -> bool:
        from nacl.bindings import crypto_box_open_afternm
        from nacl.exceptions import CryptoError

        if size < TAG:
            return False
        end = at + size
        try:
            buffer[at + TAG : end] = crypto_box_open_afternm(bytes(buffer[at:end]), nonce, self._key)
        except CryptoError:
            return False
        return True


def shared_key(public: bytes, secret: bytes) -> SharedKey | None:
    """Return the shared key of a public and a secret key, or None for a public key that hides nothing (low order)."""
    from nacl.bindings import crypto_box_beforenm

    try:
        key = crypto_box_beforenm(public, secret)
    except RuntimeError:
        return None
    sodium = direct_sodium()
    return BoundKey(key) if sodium is None else DirectKey(key, sodium)


@cache
def direct_sodium() -> Any:
    """Return PyNaCl's extension module, or None if it lacks the functions that `DirectKey` calls."""
    import nacl.bindings  # noqa: F401  # initialises libsodium

    try:
        from nacl import _sodium

        return _sodium if hasattr(_sodium.lib, "crypto_box_open_easy_afternm") else None
    except ImportError:
        return None


def key_pair(seed: bytes) -> tuple[bytes, bytes]:
    """Return the public and the secret key made from 32 random bytes."""
    from nacl.bindings import crypto_box_seed_keypair

    return crypto_box_seed_keypair(seed)


def public_key_of(secret: bytes) -> bytes:
    from nacl.bindings import crypto_scalarmult_base

    return crypto_scalarmult_base(secret)
