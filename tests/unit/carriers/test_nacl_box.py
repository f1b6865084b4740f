"""Boxes of NaCl: both ways to PyNaCl give the same bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from nacl.public import Box, PrivateKey, PublicKey

from dragoman.carriers import nacl_box
from dragoman.carriers.nacl_box import BoundKey, DirectKey, SharedKey, key_pair, shared_key

OURS, THEIRS = key_pair(bytes(32)), key_pair(bytes([1]) * 32)
NONCE = bytes(range(24))


def direct() -> SharedKey:
    key = shared_key(THEIRS[0], OURS[1])
    assert isinstance(key, DirectKey), "this PyNaCl lacks the direct functions; the tests need 1.6 or newer"
    return key


def bound() -> SharedKey:
    return BoundKey(direct()._key)


both = pytest.mark.parametrize("make", [direct, bound])


@both
@pytest.mark.parametrize("size", [0, 1, 15, 16, 64, 255, 1007, 1008, 1009, 1024, 1025, 70_000])
def test_a_box_is_that_of_pynacl_and_opens_at_the_other_side(make: Callable[[], SharedKey], size: int) -> None:
    text = bytes(index % 251 for index in range(size))
    box = make().sealed(text, NONCE)
    other_side = Box(PrivateKey(THEIRS[1]), PublicKey(OURS[0]))
    assert box == Box(PrivateKey(OURS[1]), PublicKey(THEIRS[0])).encrypt(text, NONCE).ciphertext
    assert other_side.decrypt(box, NONCE) == text
    assert make().opened(box, NONCE) == text


@both
def test_a_box_is_made_and_opened_in_place_and_its_surroundings_stay(make: Callable[[], SharedKey]) -> None:
    key = make()
    buffer = bytearray(b"before" + bytes(16) + b"the text" + b"after")
    key.seal(buffer, 6, 8, NONCE)
    assert (buffer[:6], buffer[30:]) == (b"before", b"after")
    assert buffer[6:30] == key.sealed(b"the text", NONCE)
    assert key.open(buffer, 6, 24, NONCE)
    assert (buffer[:6], buffer[22:]) == (b"before", b"the textafter")
    del buffer[:22]  # nothing refers to the buffer any more
    assert buffer == b"the textafter"


@both
def test_a_forged_box_does_not_open_and_does_not_change(make: Callable[[], SharedKey]) -> None:
    key = make()
    box = key.sealed(b"the text", NONCE)
    for pos in range(len(box)):
        forged = bytearray(box)
        forged[pos] ^= 1
        before = bytes(forged)
        assert not key.open(forged, 0, len(forged), NONCE)
        assert forged == before
    assert key.opened(box, NONCE[1:] + b"\0") is None
    assert [key.opened(box[:size], NONCE) for size in range(len(box))] == [None] * len(box)


def test_a_place_outside_of_the_buffer_is_never_written() -> None:
    key = direct()
    for make in (key.sealed, key.opened):
        with pytest.raises(AssertionError):
            make(bytes(20), NONCE[1:])
    for at, size, nonce in ((0, 5, NONCE), (-1, 3, NONCE), (1, 4, NONCE), (0, -1, NONCE), (0, 4, NONCE[1:])):
        with pytest.raises(AssertionError):
            key.seal(bytearray(20), at, size, nonce)
    for at, size, nonce in ((0, 21, NONCE), (-1, 20, NONCE), (1, 20, NONCE), (0, 20, NONCE[1:])):
        with pytest.raises(AssertionError):
            key.open(bytearray(20), at, size, nonce)


@pytest.mark.parametrize("public", [bytes(32), b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_a_public_key_of_low_order_has_no_shared_key(public: bytes) -> None:
    assert shared_key(public, OURS[1]) is None


def test_the_bindings_are_used_where_the_extension_lacks_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyNaCl 1.5 has an extension module without them; a later version may rename the module."""
    import nacl

    for extension in (SimpleNamespace(lib=SimpleNamespace()), None):
        nacl_box.direct_sodium.cache_clear()
        with monkeypatch.context() as patch:
            if extension is None:
                patch.delattr(nacl, "_sodium", raising=False)
                patch.setitem(sys.modules, "nacl._sodium", None)
            else:
                patch.setattr(nacl, "_sodium", extension)
            assert isinstance(shared_key(THEIRS[0], OURS[1]), BoundKey)
        nacl_box.direct_sodium.cache_clear()
    assert isinstance(shared_key(THEIRS[0], OURS[1]), DirectKey)


def test_a_program_without_curve_does_not_load_pynacl() -> None:
    program = """
import sys
from dragoman.carriers import curve_keys, nacl_box, zmtp
zmtp.Zmtp("ROUTER")
assert not [name for name in sys.modules if name.split(".")[0] in ("nacl", "_cffi_backend")]
curve_keys.new_key_pair(bytes(32))
assert "nacl" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
