"""Fuzz target: nkeys and files of credentials. The first byte selects the reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.carriers.nats_keys import KeyPair, read_any_seed, read_credentials, read_seed

READERS: Final[tuple[Callable[[str], KeyPair], ...]] = (read_seed, read_any_seed)


def test_one_input(data: bytes) -> None:
    choice = data[0] if data else 0
    text = data[1:].decode("utf-8", "replace")
    try:
        if choice & 2:
            jwt, key = read_credentials(text)
            assert jwt.count(".") == 2
            assert jwt in text
        else:
            key = READERS[choice & 1](text)
    except ValueError as error:
        check_secrecy(str(error), text)
        return
    assert key.seed in text
    again = read_any_seed(key.seed)
    assert (again.public, again.kind) == (key.public, key.kind)
    assert len(key.sign(data)) == 64
    assert key.seed not in repr(key)


def check_secrecy(error: str, text: str) -> None:
    """Check that an error quotes no part of a key (I19)."""
    for word in text.split():
        assert len(word) < 12 or word not in error
