"""Hashes of the public keys of certificates."""

from __future__ import annotations

import base64

import pytest

from case_tables import check_every_row
from dragoman.access.certificates import public_key_hash

# Made with `openssl req -x509 -newkey …`; the hash is that of `openssl pkey -pubout -outform DER` for its key.
MADE_BY_OPENSSL = [
    (
        "P-256",
        "70ad53e2fb1782a9390adfa5162c4e12d74dc8d67188fe60ab9f80bca132f1ab",
        """
MIIBhTCCASugAwIBAgIUZC5MLNqSfJFVMkQkXghgreGXEAQwCgYIKoZIzj0EAwIwGDEWMBQGA1UEAwwNYS5leGFtcGxlLm9yZzAeFw0yNjExMTYx
MTUyMDhaFw0yNjExMTgxMTUyMDhaMBgxFjAUBgNVBAMMDWEuZXhhbXBsZS5vcmcwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQ2ZATlTaD75c7P
ICU2MZTnVkiv9QHNQU7LWl2FvQWS3X/ip03ylKyTj9dI6zRyYvWTs487G706Pj6f4ZNrhRC4o1MwUTAdBgNVHQ4EFgQU6NwVae8fKpsCPs7WPKOt
2YwHkrYwHwYDVR0jBBgwFoAU6NwVae8fKpsCPs7WPKOt2YwHkrYwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBX2PEyXvD8boYe
eVH+d/PInOOQ0ob+2ecqiQjfhRHiRQIhAM7CxoQxwbrtSHecW9Gv5UYjhaPXN172ArW68N+jaVrD
""",
    ),
    (
        "RSA-2048",
        "fde026b14435bba9679628eaf38b7aacb6b291a018bc3d370f3eb271f7163817",
        """
MIIDETCCAfmgAwIBAgIUSFkAeFUMd1HHtOeCOp8bo3tAM9swDQYJKoZIhvcNAQELBQAwGDEWMBQGA1UEAwwNYS5leGFtcGxlLm9yZzAeFw0yNjEx
MTYxMTUyMTBaFw0yNjExMTgxMTUyMTBaMBgxFjAUBgNVBAMMDWEuZXhhbXBsZS5vcmcwggEiMA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQDX
qnqNw17EDiXSMmuO+ABVv4R58+wnowb7kptEZTnX4+l392OpnAMggqQO4o66znEdz5lfVWW1IiULd6fVEJqXzfNX6TCraKA1W+gIQnPuAYotqQIz
1BvPVUIHZIqy69mVwHcH71rc671wyslr5fGFKwbC6nkLd173DDNZg2Zdt6IfJe9TvV6Gp+9GQm/01BI8eDp0vC/jBdxcr3Ao1Bz5xa6FO2cjOl2X
t66TpHZz05YjFyeC5d/Y5QPYniPBQPjWkKWhTAdltBJqJGTzfSwRJ29AXwodLU7iguqjp6m9hi2FKapOJoxJyZbBk8ju7qVt5EK2wPeW15H1Ase9
NQOlAgMBAAGjUzBRMB0GA1UdDgQWBBTiIbMZmuO/bsOPsLHd/dMZ+64eQTAfBgNVHSMEGDAWgBTiIbMZmuO/bsOPsLHd/dMZ+64eQTAPBgNVHRMB
Af8EBTADAQH/MA0GCSqGSIb3DQEBCwUAA4IBAQCflbYHON8JJY6zEiw9Gv+7DbclgV0NebYp4anSGK47urxVPUeQg+KFnT3lTn+WIXet4xE/g7Co
VkZRt6X/FRNrpFQtqYJGLZRAjp6AMWpFAq5Q038sDy5ndTFgGAWO4FP+9NVBZq6W5v6MWX9Sz9bkrYbFUTxxddVvQ8sAuyTroLp89dTuN85qEbwQ
irDGl11PXOaVA93VPjz2XdSJIueZZaqUQE5HcKa03Gu5Dx5sJsOTHtlrNRIH+ZEaZYSitviyjKKRAj2hyhhczysN5CSSxVXQGHEddD214gIDetLn
T/BENckg/DNnY1mw6/a0nzDExUy3VLis4H7hu6gPprUo
""",
    ),
    (
        "Ed25519",
        "15d584e70c3f9e42d7fe0362f96bb078ad2509bf84615d1f4f1ea2d41e9922cd",
        """
MIIBRDCB96ADAgECAhR7YgTj9jGYQKxgkXT67DTH4FoHczAFBgMrZXAwGDEWMBQGA1UEAwwNYS5leGFtcGxlLm9yZzAeFw0yNjExMTYxMTUyMTBa
Fw0yNjExMTgxMTUyMTBaMBgxFjAUBgNVBAMMDWEuZXhhbXBsZS5vcmcwKjAFBgMrZXADIQA7n/n7hGx//4YjP0wEQLe6NFB4BkKkJe8WXexCaT85
EqNTMFEwHQYDVR0OBBYEFMKgky+UxWG0TmJZH82B3UsynhNHMB8GA1UdIwQYMBaAFMKgky+UxWG0TmJZH82B3UsynhNHMA8GA1UdEwEB/wQFMAMB
Af8wBQYDK2VwA0EAbptEgz61U+Zf7dheoNa7VAE9r8Vc08kuInBdJENydXY7YVl8BA5gyqNa84QIXpxXVUUY4dpHiRYA368s0fGPAQ==
""",
    ),
]


def test_spki_equals_openssl() -> None:
    def check(_: str, expected: str, certificate: str) -> None:
        assert public_key_hash(base64.b64decode(certificate)).hex() == expected

    check_every_row(check, MADE_BY_OPENSSL)


def test_certificate_that_is_cut_off_is_refused() -> None:
    der = base64.b64decode(MADE_BY_OPENSSL[0][2])
    for end in range(len(der)):
        with pytest.raises(ValueError, match="certificate"):
            public_key_hash(der[:end])


@pytest.mark.parametrize("wrong", [b"", b"0", b"\x30\x00", b"\x30\x84", b"\x31\x02\x30\x00", b"\x30" + b"\xff" * 200])
def test_other_bytes_are_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        public_key_hash(wrong)
