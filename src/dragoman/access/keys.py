"""CURVE keys in files that have the form of ZeroMQ certificates.

A file `NAME.key_secret` has the public and the secret key. It is accessible only to its owner, in a folder that is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dragoman.access.private_files import check_owner, checked_folder, is_open_to, opened_file, write_file
from dragoman.access.problems import access_error
from dragoman.access.secret import Secret
from dragoman.carriers.curve_keys import certificate_text, new_key_pair, parse_certificate

SUFFIX = ".key_secret"  # as pyzmq names such files
BROKER = "broker"
OLD_BROKER = "broker-old"
MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A long-term key of CURVE."""

    public: bytes
    secret: Secret


def user_key_folder(environment: Mapping[str, str]) -> Path:
    """The folder of a user's own keys: `$XDG_CONFIG_HOME/dragoman/keys`, else `~/.config/dragoman/keys`."""
    found = environment.get("XDG_CONFIG_HOME", "")
    config = Path(found) if os.path.isabs(found) else Path(environment.get("HOME") or Path.home()) / ".config"
    return config / "dragoman" / "keys"


def broker_key_folder(data: Path) -> Path:
    """The folder of the broker's own keys: `broker`, and `broker-old` while clients change to a new one."""
    return data / "keys"


def key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}{SUFFIX}"


def new_key_file(folder: Path, name: str, seed: bytes) -> KeyPair:
    """Make a key from 32 random bytes, and write it to a new file. Raises FileExistsError."""
    public, secret = new_key_pair(seed)
    write_file(key_file(folder, name), certificate_text(public, secret, name).encode(), replace=False)
    return KeyPair(public, Secret(secret))


def read_key_file(path: Path, uid: int, *, is_credential: bool = False) -> KeyPair:
    """Read a secret key. Raises AccessError if users other than `uid` and root could read it.

    `is_credential`: systemd has put it there (`$CREDENTIALS_DIRECTORY`), and is responsible for its mode.
    """
    try:
        with opened_file(path) as (file, found):
            if not is_credential:
                _check_private(path, found, uid)
                _check_private(path.parent, os.stat(path.parent), uid)
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        advice = "make one with `dragoman keys new`, or name another file"
        raise access_error(path, f"cannot be read: {error.strerror or error}; {advice}") from None
    try:
        public, secret = parse_certificate(text)
    except ValueError as error:
        raise access_error(path, str(error)) from None
    if secret is None:
        raise access_error(path, f"has no secret key; name the file that ends in {SUFFIX}")
    return KeyPair(public, Secret(secret))


def keys_in(folder: Path, uid: int) -> dict[str, KeyPair]:
    """The keys in a folder by name; none if there is no folder."""
    if not folder.is_dir():
        return {}
    names = sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
    return {name: read_key_file(key_file(folder, name), uid) for name in names}


def rotate_broker_key(folder: Path) -> None:
    """Make the broker's key its old one, so that the next key can be made. The one before that is deleted."""
    with checked_folder(folder) as handle:
        names = [key_file(folder, name).name for name in (BROKER, OLD_BROKER)]
        os.replace(*names, src_dir_fd=handle, dst_dir_fd=handle)
        os.fsync(handle)


def _check_private(path: Path, found: os.stat_result, uid: int) -> None:
    check_owner(path, found, uid)
    if is_open_to(0o077, found):
        mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise access_error(path, f"other users may use it; run: chmod {mode} {path}")
