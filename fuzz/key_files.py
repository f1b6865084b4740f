"""Fuzz target: CURVE keys and certificates as text. The bytes are a key, and the text of a certificate."""

from __future__ import annotations

from contextlib import suppress

from dragoman.carriers.curve_keys import (
    KEY_BYTES,
    certificate_text,
    check_key_pair,
    key_hex,
    key_z85,
    new_key_pair,
    parse_certificate,
    parse_key,
)


def test_one_input(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(ValueError):
        check_key(parse_key(text))
    with suppress(ValueError):
        public, secret = parse_certificate(text)
        check_certificate(public, secret)
    if len(data) == KEY_BYTES:
        check_key(data)
        check_certificate(*new_key_pair(data))


def check_key(key: bytes) -> None:
    try:
        assert len(key) == KEY_BYTES
        assert parse_key(key_hex(key)) == parse_key(key_z85(key)) == key
    except ValueError as error:
        raise AssertionError(f"a key is not read again: {error}") from error


def check_certificate(public: bytes, secret: bytes | None) -> None:
    try:
        if secret is not None:
            check_key_pair((public, secret))
        assert parse_certificate(certificate_text(public, secret, "name")) == (public, secret)
    except ValueError as error:
        raise AssertionError(f"a certificate is not read again: {error}") from error
