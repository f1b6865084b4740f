"""CURVE keys in files that have the form of ZeroMQ certificates.

A file `NAME.key_secret` has the public and the secret key. It is accessible only to its owner, in a folder that is.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dragoman.access.private_files import check_owner, checked_folder, opened_file, write_file
from dragoman.access.problems import access_error
from dragoman.access.secret import Secret

SUFFIX = ".key_secret"  # as pyzmq names such files
BROKER = "broker"
OLD_BROKER = "broker-old"
MAX_BYTES = 65_536

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")
_VALUE = re.compile(r"^[ \t]*(public|secret)-key[ \t]*=[ \t]*[\"']?([^\"'\s]*)[\"']?[ \t]*$", re.MULTILINE)


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


def new_key_file(path: Path, seed: bytes, comment: str) -> KeyPair:
    """Make a key from 32 random bytes, and write it to a new file. Raises FileExistsError."""
    public, secret = new_key_pair(seed)
    write_file(path, certificate_text(public, secret, comment).encode(), replace=False)
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
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise access_error(path, f"other users may use it; run: chmod {mode} {path}")


# The form of keys and certificates.


def parse_key(text: str) -> bytes:
    """Read a key from 64 hex digits or 40 characters of Z85. Raises ValueError."""
    if _HEX_KEY.fullmatch(text):
        return bytes.fromhex(text)
    if len(text) == 40 and all(each in Z85 for each in text):
        numbers = [_number(text[at : at + 5]) for at in range(0, 40, 5)]
        if max(numbers) < 2**32:
            return b"".join(each.to_bytes(4, "big") for each in numbers)
    raise ValueError("a key is 64 hex digits, or 40 characters of Z85")


def _number(digits: str) -> int:
    number = 0
    for each in digits:
        number = number * 85 + Z85.index(each)
    return number


def key_hex(key: bytes) -> str:
    return key.hex()


def certificate_text(public: bytes, secret: bytes | None, comment: str = "") -> str:
    """A ZeroMQ certificate, as pyzmq's `load_certificate` reads it."""
    kind = "public" if secret is None else "SECRET: keep this file on this machine, with mode 0600"
    lines = [f"# CURVE key, {kind}", *([f"# {comment}"] if comment else []), "metadata", "curve"]
    lines += [f'    public-key = "{_z85(public)}"']
    lines += [f'    secret-key = "{_z85(secret)}"'] if secret is not None else []
    return "\n".join(lines) + "\n"


def _z85(key: bytes) -> str:
    text = ""
    for at in range(0, len(key), 4):
        number = int.from_bytes(key[at : at + 4], "big")
        text += "".join(Z85[number // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return text


def parse_certificate(text: str) -> tuple[bytes, bytes | None]:
    """Read the public and, if present, the secret key of a ZeroMQ certificate. Raises ValueError, without the keys."""
    found: dict[str, bytes] = {}
    for kind, value in _VALUE.findall(text):
        try:
            found.setdefault(kind, parse_key(value))
        except ValueError:
            raise ValueError(f"its {kind}-key is not 40 characters of Z85; make a new file") from None
    if "public" not in found:
        raise ValueError("is not a ZeroMQ certificate: it has no line with public-key")
    return found["public"], found.get("secret")


def new_key_pair(seed: bytes) -> tuple[bytes, bytes]:
    """The public and the secret key for 32 random bytes."""
    from nacl.bindings import crypto_box_seed_keypair

    public, secret = crypto_box_seed_keypair(seed)
    return public, secret
