"""Addresses in the commands that `dragoman serve` suggests."""

from __future__ import annotations

import pytest

from dragoman.cli.serve import _address


@pytest.mark.parametrize(
    ("dialect", "place", "options", "url"),
    [
        ("native", "tcp://127.0.0.1:7400", {}, "tcp://127.0.0.1:7400"),
        ("native", "ipc:///tmp/n.sock", {}, "ipc:///tmp/n.sock"),
        ("majordomo", "tcp://127.0.0.1:7406", {}, "majordomo+tcp://127.0.0.1:7406"),
        (
            "pingpong",
            "tcp://127.0.0.1:7401",
            {"service": "a b"},
            "'pingpong+tcp://127.0.0.1:7401?service=a%20b'",
        ),
    ],
)
def test_an_address_is_as_users_write_it(dialect: str, place: str, options: dict[str, str], url: str) -> None:
    assert _address(dialect, place, options, ("service",)) == url
