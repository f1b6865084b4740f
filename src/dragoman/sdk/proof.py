"""The proof of identity that a client or a worker sends: a CURVE key, a token, or none.

Each setting comes from the first of these sources that has it: an argument, an option of the URL, an environment
variable. An explicit one, of an argument or a URL, must be usable at the address. One of the environment is ignored
where the dialect has no place for it, so that one environment serves several addresses.

A token is sent only where others cannot read it: inside TLS, on loopback, on a Unix socket (R153). A token of the
environment is not sent to a plain native address, because a listener without tokens rejects it there (R154).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dragoman.carriers.zmtp_handshake import NULL, Security
from dragoman.sdk.address import Address, SocketAddress, TlsAddress, address_error, is_loopback
from dragoman.sdk.credentials import CredentialError, Credentials, hidden

if TYPE_CHECKING:
    from dragoman.access.secret import Secret

TOKEN_VARIABLE = "DRAGOMAN_TOKEN"  # noqa: S105 - a name
VARIABLES = {
    "key": "DRAGOMAN_KEY",
    "server_key": "DRAGOMAN_SERVER_KEY",
    "token": TOKEN_VARIABLE,
    "token_file": "DRAGOMAN_TOKEN_FILE",
}
URL_OPTIONS = ("key", "server_key", "token_file")
NAME_OF_TOKEN = b"token"  # the name in PLAIN
MAX_TOKEN_BYTES = 255  # PLAIN has no more
WHERE_SERVER_KEY_IS = "`dragoman keys list` prints it on the broker's machine (the line of the broker)"


class AcceptedProofs(Protocol):
    """The proofs that the wire of a dialect has a place for; implemented by `dialect_sides.py:Sides`."""

    @property
    def takes_key(self) -> bool: ...

    @property
    def takes_token(self) -> bool: ...

    @property
    def ignores_token(self) -> bool:
        """True if a listener that requires no token ignores one."""


class Source(Enum):
    """The place of a setting."""

    ARGUMENT = "argument"
    URL = "URL"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Setting:
    """One credential and its source. `value`: a name, a path, a public key, or a Secret."""

    name: str
    value: str
    source: Source
    url: str

    @property
    def label(self) -> str:
        """The setting as an error names it."""
        if self.source is Source.ARGUMENT:
            return f"the argument {self.name}"
        return f"{self.name}= in the URL" if self.source is Source.URL else VARIABLES[self.name]

    @property
    def is_explicit(self) -> bool:
        return self.source is not Source.ENVIRONMENT

    def error(self, problem: str) -> ValueError:
        if self.source is Source.URL:
            return address_error(self.url, f"option {self.name}: {problem}")
        return CredentialError(f"{self.label}: {problem}")


@dataclass(frozen=True, slots=True, repr=False)
class Proof:
    """The proof of identity for one address. Errors name the settings that it was made from."""

    security: Security = NULL  # mechanism of ZMTP
    token: Secret | None = None
    own: Setting | None = None  # of the key or the token
    server_key: Setting | None = None
    public_key: str = ""  # of this side, 64 hex digits
    withheld: str = ""  # the environment variable with a token that must not be sent to this address

    @property
    def authorization(self) -> bytes:
        """The header field of HTTP requests; empty without a token."""
        return b"authorization: Bearer %s\r\n" % self.token.reveal() if self.token is not None else b""


NO_PROOF = Proof()


def proof_of(
    address: Address,
    place: SocketAddress,
    accepted: AcceptedProofs,
    credentials: Credentials,
    environment: Mapping[str, str] = os.environ,
) -> Proof:
    """Return the proof for `place`, the part of the address that is dialled. `accepted`: the proofs that the wire of
    the dialect has a place for. Raises AddressError and CredentialError."""
    is_tls = isinstance(place, TlsAddress)
    takes = {
        **dict.fromkeys(("key", "server_key"), accepted.takes_key and not is_tls),
        **dict.fromkeys(("token", "token_file"), accepted.takes_token),
    }
    found = {
        name: _argument(name, credentials, address.url)
        or _url_option(name, address)
        or (_variable(name, environment, address.url) if has_place else None)
        for name, has_place in takes.items()
    }
    key, server_key, token = found["key"], found["server_key"], _one_token(found["token"], found["token_file"])
    for each in (key, server_key):
        if each is not None and not takes["key"]:
            raise _key_without_place(each, address, is_tls, accepted)
    if token is not None and token.is_explicit:
        _check_token_has_place(token, address, place, accepted)
        if key is not None and key.is_explicit:
            raise key.error(f"{token.label} is set, too; a connection has a key or a token, so remove one of them")
        return _by_token(token, accepted, environment)
    if key is not None or server_key is not None:
        return _by_key(key, server_key, environment)
    if token is None:
        return NO_PROOF
    if is_tls or (accepted.ignores_token and is_loopback(place)):
        return _by_token(token, accepted, environment)
    return Proof(withheld=token.label)


def _argument(name: str, credentials: Credentials, url: str) -> Setting | None:
    given = getattr(credentials, name)
    if given is None:
        return None
    value = given if isinstance(given, str) else os.fspath(given)
    if not value:
        raise CredentialError(f"the argument {name} is empty; leave it out, or set a value")
    return Setting(name, value, Source.ARGUMENT, url)


def _url_option(name: str, address: Address) -> Setting | None:
    is_there = name in URL_OPTIONS and name in address.options
    return Setting(name, address.options[name], Source.URL, address.url) if is_there else None


def _variable(name: str, environment: Mapping[str, str], url: str) -> Setting | None:
    value = environment.get(VARIABLES[name], "")
    if not value:
        return None
    secret = hidden(value) if name == "token" else None
    return Setting(name, value if secret is None else secret, Source.ENVIRONMENT, url)


def _one_token(token: Setting | None, file: Setting | None) -> Setting | None:
    """Return the setting of the better source. Both in the environment are an error; an argument excludes the other."""
    if token is None or file is None:
        return token or file
    if token.source is file.source:
        raise file.error(f"{token.label} is set, too; set one of them")
    return token if token.source is Source.ARGUMENT else file


def _key_without_place(key: Setting, address: Address, is_tls: bool, accepted: AcceptedProofs) -> ValueError:
    if is_tls:
        other = "set cert= and key= in the URL, tls=Tls(cert=, key=), or a token"
        return key.error(f"it is for CURVE, which has no place inside TLS; {other}")
    other = "set a token" if accepted.takes_token else "use TLS with a certificate (cert= and key=)"
    return key.error(f"{address.dialect} has no keys; {other}")


def _check_token_has_place(token: Setting, address: Address, place: SocketAddress, accepted: AcceptedProofs) -> None:
    if not accepted.takes_token:
        other = "set a key (key= and server_key=)" if accepted.takes_key else "use TLS with a certificate"
        raise token.error(f"{address.dialect} has no tokens; {other}")
    if not isinstance(place, TlsAddress) and not is_loopback(place):
        other = "use tls://, or a key (key= and server_key=)" if accepted.takes_key else "use https://"
        raise token.error(f"a token would be readable by everybody on the way to {place}; {other}")


# -------------------------------------------------------------------- keys


def _by_key(key: Setting | None, server_key: Setting | None, environment: Mapping[str, str]) -> Proof:
    if server_key is None:
        assert key is not None
        raise key.error(
            "the broker's public key is missing: set server_key, as an argument, in the URL, or as "
            f"DRAGOMAN_SERVER_KEY; {WHERE_SERVER_KEY_IS}"
        )
    if key is None:
        raise server_key.error(
            "a key of this side is missing: make one with `dragoman keys new NAME`, and set key to its name, as an "
            "argument, in the URL, or as DRAGOMAN_KEY"
        )
    from dragoman.access.keys import read_key_file
    from dragoman.access.private_files import own_uid
    from dragoman.access.problems import AccessError
    from dragoman.carriers.curve_keys import key_hex, parse_key
    from dragoman.carriers.zmtp_curve_handshake import CurveClient

    try:
        server = parse_key(server_key.value)
    except ValueError as error:
        raise server_key.error(f"{error}; {WHERE_SERVER_KEY_IS}") from None
    path = _key_path(key, environment)
    try:
        pair = read_key_file(path, own_uid(), is_credential=_is_credential(path, environment))
    except AccessError as error:
        raise key.error(str(error)) from None
    try:
        security = CurveClient((pair.public, pair.secret.reveal()), server, os.urandom)
    except ValueError as error:
        raise server_key.error(f"{error}; {WHERE_SERVER_KEY_IS}") from None
    return Proof(security, own=key, server_key=server_key, public_key=key_hex(pair.public))


def _key_path(key: Setting, environment: Mapping[str, str]) -> Path:
    """Return the file of a key. A value with a slash or the suffix is a path, any other a name."""
    from dragoman.access.keys import SUFFIX, key_file, user_key_folder
    from dragoman.carriers.curve_keys import parse_key

    try:
        parse_key(key.value)
    except ValueError:
        pass
    else:
        raise key.error(
            "it is the name of a key or the path of its file, never the key itself; see `dragoman keys new`"
        )
    if "/" in key.value or os.sep in key.value or key.value.endswith(SUFFIX):
        return Path(key.value)
    return key_file(user_key_folder(environment), key.value)


# -------------------------------------------------------------------- tokens


def _by_token(setting: Setting, accepted: AcceptedProofs, environment: Mapping[str, str]) -> Proof:
    from dragoman.access.secret import Secret

    token = setting.value if isinstance(setting.value, Secret) else _read_token_file(setting, environment)
    if not re.fullmatch(rb"[!-~]{1,%d}" % MAX_TOKEN_BYTES, token.reveal()):
        raise setting.error(
            f"no token: it has 1 to {MAX_TOKEN_BYTES} ASCII characters without spaces; `dragoman token new` prints one"
        )
    if accepted.ignores_token:
        return Proof(token=token, own=setting)
    from dragoman.carriers.zmtp_plain import PlainClient

    return Proof(PlainClient(NAME_OF_TOKEN, token.reveal()), token, own=setting)


def _read_token_file(setting: Setting, environment: Mapping[str, str]) -> Secret:
    from dragoman.access.private_files import check_owner, is_open_to, opened_file, own_uid
    from dragoman.access.problems import AccessError
    from dragoman.access.secret import Secret

    path = Path(setting.value)
    try:
        with opened_file(path) as (file, status):
            if not _is_credential(path, environment):
                check_owner(path, status, own_uid())
                if is_open_to(0o077, status):
                    raise setting.error(f"{path}: other users may read it; run: chmod 600 {path}")
            return Secret(file.read(2 * MAX_TOKEN_BYTES).strip())
    except AccessError as error:
        raise setting.error(str(error)) from None
    except OSError as error:
        problem = error.strerror or str(error)
        raise setting.error(f"{path}: {problem}; write the token to a file with mode 0600 and name it") from None


def _is_credential(path: Path, environment: Mapping[str, str]) -> bool:
    """Return whether systemd has put the file there (`LoadCredential=`); then its mode is that of systemd."""
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    return bool(folder) and path.resolve().is_relative_to(Path(folder).resolve())
