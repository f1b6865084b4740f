"""Access tables for tests that need one, whoever is in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.keys import new_key_file, user_key_folder
from dragoman.access.principal_file import PrincipalEntry
from dragoman.access.table import AccessTable
from dragoman.carriers.curve_keys import new_key_pair
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS, Principals
from dragoman.server.authentication import Authentication


def any_authentication(principals: Principals) -> Authentication:
    """A table with a principal for every kind of identity, and a key of the broker."""
    identities = (
        Identity(IdentityKind.CURVE, bytes(range(32))),
        Identity(IdentityKind.TOKEN, bytes(32)),
        Identity(IdentityKind.TLS_NAME, "example.org"),
        Identity(IdentityKind.UID, 33),
    )
    made = Authentication(principals)
    entry = PrincipalEntry("somebody", "somebody.toml", ALL_RIGHTS, NO_LIMITS, identities)
    made.apply(AccessTable([entry]), (new_key_pair(bytes(32)),))
    return made


def use_keys(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Make keys of these names, for programs of this process."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    keys = user_key_folder(os.environ)
    keys.mkdir(mode=0o700, parents=True)
    for name in names:
        new_key_file(keys, name, os.urandom(32))
