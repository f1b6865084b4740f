"""Tokens and passwords in the target of a request."""

from __future__ import annotations

from case_tables import check_every_row
from dragoman.http.url_secrets import has_secret

TOKEN = b"dgm_" + b"a" * 43


def test_a_secret_is_found_wherever_it_is() -> None:
    def check(target: bytes, is_found: bool) -> None:
        assert has_secret(target) is is_found

    rows = [
        (b"/v1/services/" + TOKEN, True),
        (b"/v1/services/%64gm_" + TOKEN[4:], True),
        (b"/v1/services/" + TOKEN + b"?a=1", True),
        (b"/v1/services/dgm_", False),
        (b"/v1/services/mail", False),
        (b"/v1/jobs?service=" + TOKEN, True),
        (b"/v1/jobs?token=x", True),
        (b"/v1/jobs?Access_Token=x", True),
        (b"/v1/jobs?key=x", False),
        (b"http://name:password@host/v1/jobs", True),
        (b"http://host/v1/jobs?a=b@c", False),
        (b"/v1/jobs?a=http://name@host/", False),
    ]
    check_every_row(check, rows)
