"""Headers of every response that restrict what a browser does with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Field = tuple[bytes, bytes]

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
NO_STORE: Final[Field] = (b"cache-control", b"no-store")  # assets may be kept


def security_headers(hsts: int = 0) -> list[Field]:
    """Return the headers. `hsts`: seconds for which browsers use TLS only; 0: the header is left out."""
    headers = [
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", POLICY),
        (b"referrer-policy", b"no-referrer"),
    ]
    return [*headers, (b"strict-transport-security", b"max-age=%d" % hsts)] if hsts else headers


def header_lines(headers: Iterable[Field]) -> bytes:
    """Return headers as they are sent."""
    return b"".join(b"%b: %b\r\n" % each for each in headers)
