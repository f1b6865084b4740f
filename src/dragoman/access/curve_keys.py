"""CURVE keys as text: 64 hex digits, 40 characters of Z85, and ZeroMQ certificates. Errors never quote a key."""

from __future__ import annotations

import re

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")
_VALUE = re.compile(r"^[ \t]*(public|secret)-key[ \t]*=[ \t]*[\"']?([^\"'\s]*)[\"']?[ \t]*$", re.MULTILINE)


def parse_key(text: str) -> bytes:
    """Read a key from 64 hex digits or 40 characters of Z85. Raises ValueError."""
    if _HEX_KEY.fullmatch(text):
        return bytes.fromhex(text)
    if len(text) == 40 and all(each in Z85 for each in text):
        numbers = [_number(text[at : at + 5]) for at in range(0, 40, 5)]
        if max(numbers) < 2**32:
            return b"".join(each.to_bytes(4, "big") for each in numbers)
    raise ValueError("a key is 64 hex digits or 40 characters of Z85")


def _number(digits: str) -> int:
    number = 0
    for each in digits:
        number = number * 85 + Z85.index(each)
    return number


def key_hex(key: bytes) -> str:
    return key.hex()


def certificate_text(public: bytes, secret: bytes | None, name: str = "") -> str:
    """A ZeroMQ certificate, as pyzmq's `load_certificate` reads it. `name` goes into its metadata."""
    kind = "Public Certificate" if secret is None else "**Secret** Certificate: keep it on this machine, with mode 0600"
    lines = [f"#   ZeroMQ CURVE {kind}", "metadata", *([f'    name = "{name}"'] if name else [])]
    lines += ["curve", f'    public-key = "{_z85(public)}"']
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
