"""CONNECT of NATS: the settings of a connection, and the credentials by which a client proves who it is.

Credentials are of four kinds. A token and a password are secrets that travel as they are: `is_secret` tells the caller
to send them only where nobody else can read them (R112). An nkey, with or without the JWT of a user, signs the nonce of
INFO and reveals nothing. No object here shows its secret in `repr`, and no error quotes it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats_info import ServerInfo
from dragoman.carriers.nats_keys import KeyPair

LANGUAGE: Final = "python"


class Credentials:
    """No credentials: the server admits everybody, or knows the client by its certificate."""

    __slots__ = ()

    @property
    def is_secret(self) -> bool:
        """True if CONNECT has a secret that a listener on the network could use."""
        return False

    def fields(self, info: ServerInfo) -> dict[str, str]:
        """Return the fields of CONNECT. Raises Malformed if the server offers no nonce to sign."""
        return {}


class TokenCredentials(Credentials):
    """A token that all clients of the server share."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        self._token = token

    @property
    def is_secret(self) -> bool:
        return True

    def fields(self, info: ServerInfo) -> dict[str, str]:
        return {"auth_token": self._token}


class PasswordCredentials(Credentials):
    """A user and a password."""

    __slots__ = ("_password", "_user")

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    @property
    def is_secret(self) -> bool:
        return True

    def fields(self, info: ServerInfo) -> dict[str, str]:
        return {"user": self._user, "pass": self._password}


class KeyCredentials(Credentials):
    """The key of a user, and its JWT if the server knows accounts only (a file of credentials has both)."""

    __slots__ = ("_jwt", "_key")

    def __init__(self, key: KeyPair, jwt: str = "") -> None:
        self._key = key
        self._jwt = jwt

    def fields(self, info: ServerInfo) -> dict[str, str]:
        if not info.nonce:
            raise Malformed("no nonce", "the server has no nkeys or JWTs set up; use a token or a password, or none")
        signature = base64.urlsafe_b64encode(self._key.sign(info.nonce.encode())).rstrip(b"=").decode("ascii")
        shown = {"jwt": self._jwt} if self._jwt else {"nkey": self._key.public}
        return {**shown, "sig": signature}


NO_CREDENTIALS: Final = Credentials()


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Settings of a connection."""

    name: str = ""  # shown by the server's monitoring
    version: str = ""  # of this program, shown likewise
    echoes: bool = False  # the server also delivers this connection's own messages to it
    credentials: Credentials = NO_CREDENTIALS


NO_OPTIONS: Final = ConnectOptions()


def connect_line(options: ConnectOptions, info: ServerInfo, *, is_encrypted: bool) -> bytes:
    """Return CONNECT for a server. Raises Malformed if the server cannot accept these credentials."""
    fields: dict[str, object] = {
        "verbose": False,
        "pedantic": False,
        "tls_required": is_encrypted,
        "name": options.name,
        "lang": LANGUAGE,
        "version": options.version,
        "protocol": 1,  # INFO may come again
        "echo": options.echoes,
        "headers": info.has_headers,
        "no_responders": info.has_headers,
    }
    fields |= options.credentials.fields(info)
    return b"CONNECT " + json.dumps(fields, separators=(",", ":")).encode() + b"\r\n"
