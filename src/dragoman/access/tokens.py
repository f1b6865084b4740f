"""Bearer tokens: 256 random bits as text. Only their hashes are stored.

The hash is SHA-256 and not a slow one: 256 random bits cannot be guessed at any speed, and a slow hash would cost the
broker milliseconds for each request of a stranger.
"""

from __future__ import annotations

import base64
from hashlib import sha256

from dragoman.access.secret import Secret

PREFIX = "dgm_"
RANDOM_BYTES = 32


def new_token(random: bytes) -> Secret:
    """A token of 32 random bytes: `dgm_` and 43 characters of base64url."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a token needs {RANDOM_BYTES} random bytes, not {len(random)}")
    return Secret(PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode())


def token_hash(token: str) -> bytes:
    """The hash of a token as a client sent it: any text."""
    return sha256(token.encode("utf-8", "replace")).digest()
