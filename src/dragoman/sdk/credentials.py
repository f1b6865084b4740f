"""Credentials as a program gives them to a client or a worker. `proof.py` reads them for an address."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.access.secret import Secret

File = str | os.PathLike[str]


class CredentialError(ValueError):
    """A credential that cannot be used: an argument or an environment variable. The message never has a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS of a client or a worker, with paths of PEM files. `Tls()` verifies the broker's certificate by the
    certificates of the system, as `tls=True` does.

    `cert`, `key`: the certificate of this side and its private key, by default in the same file. `ca`: certificates
    that issue the broker's, or that certificate itself. `server_name`: the name in the broker's certificate, by default
    the host of the address.
    """

    cert: File = ""
    key: File = ""
    ca: File = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The arguments of a client or a worker that prove its identity. Each is also an option of the URL, but `token`."""

    key: File | None = None  # the name of a key of this user, or the path of a key file
    server_key: str | None = None  # the broker's public key
    token: Secret | None = None
    token_file: File | None = None
    tls: Tls | bool | None = None  # None and False: as the URL says


NO_CREDENTIALS = Credentials()


def credentials_of(
    key: File | None = None,
    server_key: str | None = None,
    token: str | Secret | None = None,
    token_file: File | None = None,
    tls: Tls | bool | None = None,
) -> Credentials:
    """Return checked arguments. Raises CredentialError and TypeError."""
    if token is not None and token_file is not None:
        raise CredentialError("the arguments token and token_file are both set; set one of them")
    if not isinstance(tls, Tls | bool | None):
        raise TypeError(f"tls is a {type(tls).__name__}; it must be dragoman.Tls(...) or True")
    return Credentials(key=key, server_key=server_key, token=hidden(token), token_file=token_file, tls=tls)


def hidden(token: str | Secret | None) -> Secret | None:
    """Return the token as an object that never prints. Raises TypeError."""
    if token is None:
        return None
    from dragoman.access.secret import Secret

    if isinstance(token, Secret):
        return token
    if not isinstance(token, str):
        raise TypeError(f"token is of type {type(token).__name__}; it must be text")
    return Secret(token)
