"""Keys of NATS (*nkeys*) and files of credentials: how a client proves who it is without showing a secret.

An nkey is an Ed25519 key as text in base32 without padding. A public key is a byte for its kind, 32 bytes, and a
checksum (CRC-16, little-endian). A *seed*, the secret form, begins with two bytes: the kind `seed` in the upper five
bits of the first, and the kind of key in the next eight bits. So the seed of a user begins with `SU`, and its public
key with `U`. A file of credentials (`.creds`) has two blocks between lines of dashes: the JWT of a user, and its seed.

The server sends a nonce in INFO, and the client its signature in CONNECT. Errors are ValueErrors. They never quote a
key or a part of it. PyNaCl is imported by the first signature.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

KEY_BYTES: Final = 32
SEED: Final = 18 << 3
USER: Final = 20 << 3  # U
ACCOUNT: Final = 0  # A
OPERATOR: Final = 14 << 3  # O

KIND_NAMES: Final = {USER: "user", ACCOUNT: "account", OPERATOR: "operator", 13 << 3: "server", 2 << 3: "cluster"}
BASE32: Final = re.compile("[A-Z2-7]+")
BLOCK: Final = re.compile(r"-{3,}[^\r\n]*-{3,}\r?\n\s*([\w\-.=]+)\s*\r?\n-{3,}[^\r\n]*-{3,}")
JWT: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


class KeyPair:
    """An Ed25519 key that signs. It is shown without its secret."""

    __slots__ = ("_secret", "kind", "public")

    def __init__(self, kind: int, seed: bytes) -> None:
        """`seed`: 32 random bytes; the same bytes give the same key."""
        from nacl.bindings import crypto_sign_seed_keypair

        if kind not in KIND_NAMES:
            raise ValueError(f"a key of the unknown kind {kind}; known are {', '.join(KIND_NAMES.values())}")
        if len(seed) != KEY_BYTES:
            raise ValueError(f"a seed of {len(seed)} bytes; a seed has {KEY_BYTES}")
        public, self._secret = crypto_sign_seed_keypair(seed)
        self.kind = kind
        self.public = encode_public(kind, public)

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"

    def sign(self, text: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        from nacl.bindings import crypto_sign

        return crypto_sign(text, self._secret)[:64]

    @property
    def seed(self) -> str:
        """The secret form of this key as text."""
        raw = bytes((SEED | self.kind >> 5, (self.kind & 31) << 3)) + self._secret[:KEY_BYTES]
        return _to_base32(raw)


def read_seed(text: str) -> KeyPair:
    """Read the seed of a user; surrounding white space is ignored. Raises ValueError."""
    found = text.strip()
    if not found.startswith("SU"):
        raise ValueError("a seed that does not begin with SU; name the file of a user's nkey")
    return read_any_seed(found)


def read_any_seed(text: str) -> KeyPair:
    """Read the seed of a key of any kind. Raises ValueError."""
    raw = _from_base32(text.strip())
    if len(raw) != 2 + KEY_BYTES or raw[0] & 0xF8 != SEED or raw[1] & 7:
        raise ValueError(f"a seed of {len(text.strip())} characters that is not valid; an nkey's seed has 58")
    return KeyPair((raw[0] & 7) << 5 | raw[1] >> 3, raw[2:])


def read_credentials(text: str) -> tuple[str, KeyPair]:
    """Read a file of credentials: the JWT of a user and its key. Raises ValueError."""
    blocks = BLOCK.findall(text)
    if len(blocks) != 2:
        raise ValueError(f"{len(blocks)} blocks between lines of dashes; a file of credentials has a JWT and a seed")
    if JWT.fullmatch(blocks[0]) is None:
        raise ValueError("the first block is not a JWT; a file of credentials begins with the JWT of a user")
    return blocks[0], read_seed(blocks[1])


def encode_public(kind: int, key: bytes) -> str:
    """Return the public form of a key as text."""
    return _to_base32(bytes((kind,)) + key)


def _to_base32(raw: bytes) -> str:
    whole = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(whole).decode("ascii").rstrip("=")


def _from_base32(text: str) -> bytes:
    """Decode, and check the checksum. Raises ValueError."""
    if BASE32.fullmatch(text) is None:
        raise ValueError(f"a key of {len(text)} characters that are not all A to Z and 2 to 7; copy the key as it is")
    try:
        whole = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raise ValueError(f"a key of {len(text)} characters; a seed has 58, a public key 56") from None
    raw, sum_bytes = whole[:-2], whole[-2:]
    if binascii.crc_hqx(raw, 0) != int.from_bytes(sum_bytes, "little") or _to_base32(raw) != text:
        raise ValueError("a key whose checksum is wrong; copy the key again")
    return raw
