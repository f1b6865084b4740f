"""CURVE keys as text: 64 hex digits, 40 characters of Z85, and ZeroMQ certificates.

A key has 32 bytes. Z85 (RFC 32 of the ZeroMQ project) writes four bytes as five characters; it is the form of libzmq
and of certificates. A certificate is the text of a file that `zmq.auth.load_certificate` of pyzmq reads: a section
`metadata`, and a section `curve` with a `public-key` and, in a secret certificate, a `secret-key`.

Errors are ValueErrors. They never quote a key, because it may be a secret one.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from dragoman.carriers import nacl_box

KEY_BYTES: Final = 32
HEX_DIGITS: Final = 2 * KEY_BYTES
Z85_CHARACTERS: Final = 40
MAX_NAME: Final = 200  # characters of the name in a certificate

_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85: Final = bytes.maketrans(_B85, _Z85)
_FROM_Z85: Final = bytes.maketrans(_Z85, _B85)
_FORMS: Final = f"a key is {HEX_DIGITS} hex digits or {Z85_CHARACTERS} characters of Z85"

_HEAD_OF_PAIR: Final = """\
#   ZeroMQ CURVE **Secret** Certificate
#   Keep this file secret: it proves the identity of its holder.
"""
_HEAD: Final = """\
#   ZeroMQ CURVE Public Certificate
#   This file contains no secret.
"""


def parse_key(text: str) -> bytes:
    """Return the key that a text has as hex digits or Z85. Surrounding white space is ignored. Raises ValueError."""
    text = text.strip()
    if len(text) == HEX_DIGITS and re.fullmatch("[0-9a-fA-F]*", text):
        return bytes.fromhex(text)
    if len(text) == Z85_CHARACTERS:
        return _from_z85(text)
    if len(text) == HEX_DIGITS:
        raise ValueError(f"a key of {HEX_DIGITS} characters that are not all hex digits; {_FORMS}")
    raise ValueError(f"a key of {len(text)} characters; {_FORMS}")


def key_hex(key: bytes) -> str:
    """Return a key as 64 hex digits, the form for URLs."""
    return _checked(key).hex()


def key_z85(key: bytes) -> str:
    """Return a key as 40 characters of Z85, the form of libzmq."""
    return base64.b85encode(_checked(key)).translate(_TO_Z85).decode("ascii")


def certificate_text(public: bytes, secret: bytes | None, name: str = "") -> str:
    """Return the text of a certificate, secret if it has the secret key. `name` goes into its metadata."""
    if len(name) > MAX_NAME or not name.isprintable() or '"' in name:
        raise ValueError(
            f"the name of a certificate has at most {MAX_NAME} printable characters, and no quotation mark"
        )
    lines = [_HEAD if secret is None else _HEAD_OF_PAIR, "metadata"]
    if name:
        lines.append(f'    name = "{name}"')
    lines += ["curve", f'    public-key = "{key_z85(public)}"']
    if secret is not None:
        lines.append(f'    secret-key = "{key_z85(secret)}"')
    return "\n".join(lines) + "\n"


def parse_certificate(text: str) -> tuple[bytes, bytes | None]:
    """Return the public key and the secret key, if it has one, of a certificate. Raises ValueError.

    Names in other sections count, too, as for pyzmq. A second key of the same name is an error.
    """
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        name = name.strip()
        if name not in ("public-key", "secret-key"):
            continue
        if not equals:
            raise ValueError(f'line {number}: {name} without a value; write {name} = "..."')
        if name in keys:
            raise ValueError(f"line {number}: a second {name}; a certificate has one")
        try:
            keys[name] = parse_key(value.strip(" \t'\""))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if "public-key" not in keys:
        raise ValueError('no public-key in the certificate; it has a line public-key = "..." in its section curve')
    public, secret = keys["public-key"], keys.get("secret-key")
    if secret is not None and nacl_box.public_key_of(secret) != public:
        raise ValueError("the public-key of the certificate does not belong to its secret-key; make a new key pair")
    return public, secret


def new_key_pair(seed: bytes) -> tuple[bytes, bytes]:
    """Return the public and the secret key for 32 random bytes. The same bytes give the same keys."""
    return nacl_box.key_pair(_checked(seed))


def check_key_pair(pair: tuple[bytes, bytes]) -> None:
    """Raise ValueError unless this is a public key and the secret key that belongs to it."""
    public, secret = pair
    if nacl_box.public_key_of(_checked(secret)) != _checked(public):
        raise ValueError("the public key does not belong to the secret key; both are of the same pair")


def _from_z85(text: str) -> bytes:
    written = text.encode("ascii", "replace")
    wrong = [pos for pos, character in enumerate(written) if character not in _Z85 or text[pos] != chr(character)]
    if wrong:
        raise ValueError(f"character {wrong[0] + 1} of a key is not one of Z85; {_FORMS}")
    try:
        return base64.b85decode(written.translate(_FROM_Z85))
    except ValueError:
        raise ValueError(f"a key of {len(text)} characters of Z85 that stand for no bytes; {_FORMS}") from None


def _checked(key: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes; a key has {KEY_BYTES}")
    return key
