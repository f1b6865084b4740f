"""Fuzz target: files of principals. The file is read as that of `alice` and as that of `anyone`."""

from __future__ import annotations

from math import isfinite

from dragoman.access.identities import read_identity
from dragoman.access.principal_file import read_principal
from dragoman.access.problems import AccessError
from dragoman.core.rights import ANYONE


def test_one_input(data: bytes) -> None:
    check(data, "alice")
    check(data, ANYONE)


def check(data: bytes, name: str) -> None:
    try:
        entry = read_principal(name, data, "principal.toml")
    except AccessError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.line is None or 1 <= problem.line <= data.count(b"\n") + 1
            assert str(problem).startswith("principal.toml")
        return
    assert entry.name == name
    assert not (name == ANYONE and entry.identities)
    assert entry.expires is None or isfinite(entry.expires)
    for identity in entry.identities:
        assert read_identity(identity.kind, identity.in_file) == identity
