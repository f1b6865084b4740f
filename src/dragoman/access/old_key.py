"""Principals that know the broker by its old key: a file in the data folder, which the broker writes for commands."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dragoman.access.private_files import write_file

FILE = "old-key-users"


class OldKeyUsers(msgspec.Struct, frozen=True):
    """The principals that have connected with the old public key of the broker, and when they did so last."""

    key: str = ""  # the old public key, hex digits; empty: there is none
    principals: dict[str, float] = {}  # Unix time by name


def write_old_key_users(data: Path, users: OldKeyUsers) -> None:
    """Write the file to the data folder. Raises OSError."""
    write_file(data / FILE, msgspec.json.encode(users))


def read_old_key_users(data: Path) -> OldKeyUsers:
    """Read the file; nobody if there is none."""
    try:
        return msgspec.json.decode((data / FILE).read_bytes(), type=OldKeyUsers)
    except (OSError, msgspec.DecodeError):
        return OldKeyUsers()
