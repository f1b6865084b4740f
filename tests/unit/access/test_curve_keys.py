"""CURVE keys as text."""

from __future__ import annotations

import pytest

from dragoman.access.curve_keys import certificate_text, key_hex, new_key_pair, parse_certificate, parse_key

SEED = bytes(range(32))


def test_keys_are_read_as_hex_and_as_z85() -> None:
    public, _ = new_key_pair(SEED)
    assert parse_key(key_hex(public)) == parse_key(key_hex(public).upper()) == public
    assert parse_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7").hex() == (  # from ZeroMQ's manual
        "54fcba24e93249969316fb617c872bb0c1d1ff14800427c594cbfacf1bc2d652"
    )
    for wrong in ("", "0" * 63, "0" * 65, "g" * 64, "0" * 39, "~" * 40, "#" * 40, "é" * 40):
        with pytest.raises(ValueError, match="a key is 64 hex digits or 40 characters of Z85"):
            parse_key(wrong)


def test_certificates_are_read_as_they_are_written() -> None:
    public, secret = new_key_pair(SEED)
    assert parse_certificate(certificate_text(public, secret)) == (public, secret)
    assert parse_certificate(certificate_text(public, None, "a comment")) == (public, None)
