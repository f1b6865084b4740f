"""nkeys and files of credentials of NATS."""

from __future__ import annotations

import pytest
from nacl.signing import VerifyKey

from case_tables import check_every_row
from dragoman.carriers.nats_keys import (
    ACCOUNT,
    OPERATOR,
    USER,
    KeyPair,
    encode_public,
    read_any_seed,
    read_credentials,
    read_seed,
)

# The key in the documentation of NATS (Configuration, NKey authentication).
DOCUMENTED_SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
DOCUMENTED_PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"

# As `nsc generate creds` writes it.
CREDENTIALS = f"""-----BEGIN NATS USER JWT-----
eyJ0eXAiOiJKV1QifQ.eyJqdGkiOiJYIn0.c2lnbmF0dXJl-_
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.
NKEYs are sensitive and should be treated as secrets.

-----BEGIN USER NKEY SEED-----
{DOCUMENTED_SEED}
------END USER NKEY SEED------

*************************************************************
"""


def test_the_documented_key_is_read() -> None:
    key = read_seed(f"  {DOCUMENTED_SEED}\n")
    assert (key.public, key.kind, key.seed) == (DOCUMENTED_PUBLIC, USER, DOCUMENTED_SEED)


def test_a_signature_is_that_of_the_key() -> None:
    key = KeyPair(USER, bytes(range(32)))
    signature = key.sign(b"nonce")
    public = VerifyKey(bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"))
    assert public.verify(b"nonce", signature) == b"nonce"
    assert key.public == encode_public(USER, bytes(public))


def test_every_kind_of_key_comes_back() -> None:
    def check(kind: int, letters: str) -> None:
        key = KeyPair(kind, b"\x07" * 32)
        assert (key.seed[:2], key.public[:1], len(key.seed), len(key.public)) == (letters, letters[1], 58, 56)
        assert read_any_seed(key.seed).public == key.public

    check_every_row(check, [(USER, "SU"), (ACCOUNT, "SA"), (OPERATOR, "SO")])


def test_wrong_seeds_are_refused_and_not_quoted() -> None:
    def check(text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            read_seed(text)
        assert text[4:12] not in str(caught.value) or len(text) < 12

    other = KeyPair(ACCOUNT, bytes(32)).seed
    wrong_sum = DOCUMENTED_SEED[:-1] + "A"
    check_every_row(
        check,
        [
            ("", "does not begin with SU"),
            (other, "does not begin with SU"),
            (DOCUMENTED_PUBLIC, "does not begin with SU"),
            (DOCUMENTED_SEED.lower(), "does not begin with SU"),
            (wrong_sum, "checksum is wrong"),
            (DOCUMENTED_SEED[:-1] + "Z", "checksum is wrong"),  # the bits behind the checksum are not 0
            (DOCUMENTED_SEED[:-8], "checksum is wrong|characters"),
            ("SU" + DOCUMENTED_SEED, "checksum is wrong|characters"),
            ("SU!" + DOCUMENTED_SEED, "A to Z"),
            ("SUA", "characters"),
        ],
    )
    with pytest.raises(ValueError, match="a seed has 32"):
        KeyPair(USER, b"short")
    with pytest.raises(ValueError, match="unknown kind"):
        KeyPair(7, bytes(32))


def test_a_file_of_credentials_is_read() -> None:
    for text in (CREDENTIALS, CREDENTIALS.replace("\n", "\r\n")):
        jwt, key = read_credentials(text)
        assert jwt == "eyJ0eXAiOiJKV1QifQ.eyJqdGkiOiJYIn0.c2lnbmF0dXJl-_"
        assert key.public == DOCUMENTED_PUBLIC


def test_wrong_files_of_credentials_are_refused_and_not_quoted() -> None:
    def check(text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            read_credentials(text)
        assert DOCUMENTED_SEED not in str(caught.value)

    check_every_row(
        check,
        [
            ("", "0 blocks"),
            (DOCUMENTED_SEED, "0 blocks"),
            (CREDENTIALS[: CREDENTIALS.index("*")], "1 blocks"),
            (CREDENTIALS.replace("eyJ0eXAiOiJKV1QifQ.", ""), "not a JWT"),
            (CREDENTIALS.replace(DOCUMENTED_SEED, DOCUMENTED_PUBLIC), "does not begin with SU"),
        ],
    )


def test_a_key_does_not_show_its_secret() -> None:
    assert repr(read_seed(DOCUMENTED_SEED)) == f"KeyPair({DOCUMENTED_PUBLIC})"
