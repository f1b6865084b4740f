"""CURVE keys as text: both forms, certificates, and pyzmq as the other party."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq
import zmq.auth
from zmq.utils import z85

from dragoman.carriers.curve_keys import (
    certificate_text,
    check_key_pair,
    key_hex,
    key_z85,
    new_key_pair,
    parse_certificate,
    parse_key,
)

# RFC 32's example of eight bytes, four times.
BYTES = bytes.fromhex("864fd26fb559f75b") * 4
Z85 = "HelloWorld" * 4
PUBLIC, SECRET = new_key_pair(bytes(range(32)))


def test_a_key_is_read_in_both_forms() -> None:
    assert parse_key(Z85) == parse_key(BYTES.hex()) == parse_key(f" {BYTES.hex().upper()}\n") == BYTES
    assert (key_hex(BYTES), key_z85(BYTES)) == (BYTES.hex(), Z85)


@pytest.mark.parametrize("number", range(0, 256, 5))
def test_z85_is_that_of_pyzmq(number: int) -> None:
    key = bytes((number + index * 7) % 256 for index in range(32))
    assert key_z85(key).encode() == z85.encode(key)
    assert parse_key(key_z85(key)) == key


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a key of 0 characters"),
        ("abc", "a key of 3 characters"),
        (Z85[1:], "a key of 39 characters"),
        (BYTES.hex()[1:], "a key of 63 characters"),
        ("g" + BYTES.hex()[1:], "not all hex digits"),
        ("\N{FULLWIDTH DIGIT ONE}" * 64, "not all hex digits"),
        (Z85[:-1] + "~", "character 40 of a key is not one of Z85"),
        ("é" + Z85[1:], "character 1 of a key is not one of Z85"),
        ("#" * 40, "stand for no bytes"),
    ],
)
def test_a_text_that_is_no_key_is_refused_and_not_quoted(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_key(text)
    assert "64 hex digits or 40 characters of Z85" in str(caught.value)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(size: int) -> None:
    for function in (key_hex, key_z85, new_key_pair):
        with pytest.raises(ValueError, match=f"a key of {size} bytes; a key has 32"):
            function(bytes(size))


def test_a_key_pair_comes_from_its_seed_and_is_one_for_libzmq() -> None:
    assert new_key_pair(bytes(range(32))) == (PUBLIC, SECRET)
    assert zmq.curve_public(key_z85(SECRET).encode()) == key_z85(PUBLIC).encode()


def test_a_pair_of_two_keys_that_do_not_belong_together_is_refused() -> None:
    check_key_pair((PUBLIC, SECRET))
    with pytest.raises(ValueError, match="does not belong to the secret key"):
        check_key_pair((SECRET, PUBLIC))


@pytest.mark.parametrize("secret", [SECRET, None])
def test_pyzmq_reads_our_key_file(tmp_path: Path, secret: bytes | None) -> None:
    text = certificate_text(PUBLIC, secret, "resize = worker #1")
    file = tmp_path / "worker.key"
    file.write_text(text)
    expected = (key_z85(PUBLIC).encode(), None if secret is None else key_z85(secret).encode())
    assert zmq.auth.load_certificate(file) == expected
    assert parse_certificate(text) == (PUBLIC, secret)
    assert 'name = "resize = worker #1"' in text
    assert ("**Secret**" in text) == (secret is not None)


def test_a_key_file_of_pyzmq_is_read(tmp_path: Path) -> None:
    public_file, secret_file = zmq.auth.create_certificates(tmp_path, "w", {"email": "a@b"})
    public, secret = zmq.auth.load_certificate(secret_file)
    assert secret is not None
    assert parse_certificate(Path(secret_file).read_text()) == (parse_key(public.decode()), parse_key(secret.decode()))
    assert parse_certificate(Path(public_file).read_text()) == (parse_key(public.decode()), None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no public-key in the certificate"),
        (f'# public-key = "{Z85}"', "no public-key in the certificate"),
        (f'curve\n    secret-key = "{Z85}"', "no public-key in the certificate"),
        ("curve\n    public-key", "line 2: public-key without a value"),
        ('curve\n    public-key = "abc"', "line 2: a key of 3 characters"),
        (f"public-key={Z85}\npublic-key={Z85}", "line 2: a second public-key"),
        (f"public-key={Z85}\nsecret-key={key_z85(SECRET)}", "does not belong to its secret-key"),
    ],
)
def test_a_broken_certificate_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_certificate(text)


@pytest.mark.parametrize("name", ["a\nb", 'a"b', "n" * 201, "\0"])
def test_a_name_that_would_break_the_certificate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at most 200 printable characters"):
        certificate_text(PUBLIC, SECRET, name)
