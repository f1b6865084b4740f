"""Fuzz target: certificates in DER and PEM. The bytes are one certificate, and the text of a PEM file."""

from __future__ import annotations

import ssl
from datetime import UTC

from dragoman.streams.certificates import read_certificate, read_pem


def test_one_input(data: bytes) -> None:
    try:
        facts = read_certificate(data)
    except ValueError:
        pass
    else:
        assert all(name and name.isprintable() for name in facts.names)
        assert len(facts.spki_sha256) == 64
        assert facts.not_before.tzinfo is facts.not_after.tzinfo is UTC
        assert read_certificate(data) == facts
    assert read_pem(ssl.DER_cert_to_PEM_cert(data)) == [data]
    try:
        ders = read_pem(data.decode("ascii", "replace"))
    except ValueError:
        return
    assert read_pem("".join(map(ssl.DER_cert_to_PEM_cert, ders))) == ders
