"""Protection of one listener: TLS, the credentials that it asks for, and the local users that it admits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dragoman.access.identities import IdentityKind
from dragoman.carriers.curve_keys import key_hex
from dragoman.dialects.catalogue import Dialect
from dragoman.sdk.address import (
    Address,
    SocketAddress,
    TlsAddress,
    UnixAddress,
    address_error,
    is_loopback,
    read_options,
    verifies_clients,
)
from dragoman.server.authentication import Authentication, AuthMechanism, ListenerAuth
from dragoman.server.local_peers import LocalAccess, LoopbackOptions, LoopbackRule, UnixOptions
from dragoman.streams.tls_context import ListenerTls, TlsFileError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """Options of listeners whose clients can show credentials within the protocol."""

    auth: AuthMechanism = AuthMechanism.NONE


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Options of listeners whose clients can show tokens."""

    cleartext: bool = False  # tokens may come without TLS from other machines


def security_options(dialect: Dialect) -> tuple[type[Any], ...]:
    """Return the kinds of options for the security of a dialect's listeners."""
    kinds: list[type[Any]] = []
    if dialect.auth:
        kinds.append(AuthOptions)
    if AuthMechanism.TOKEN.value in dialect.auth:
        kinds.append(TokenOptions)
    if dialect.transports != ("unix",):  # else the dialect has its own options for users and files (R84)
        kinds.append(LoopbackOptions)
    if "ipc" in dialect.transports:
        kinds.append(UnixOptions)
    return tuple(kinds)


def identity_kinds(address: Address, dialect: Dialect) -> tuple[IdentityKind, ...]:
    """Return the kinds of identities by which a principal can connect to this listener."""
    kinds: tuple[IdentityKind, ...] = ()
    if verifies_clients(address.place):
        kinds += (IdentityKind.TLS_NAME, IdentityKind.TLS_KEY)
    mechanism = address.options.get("auth") if dialect.auth else None
    if mechanism in dialect.auth:
        # A request of HTTP shows a token, or its connection a certificate. Elsewhere both are asked for, and the
        # certificate does not decide.
        return (*(kinds if dialect.auth_by_request else ()), IdentityKind(mechanism))
    if not kinds and is_loopback(address.place) and LoopbackOptions in security_options(dialect):
        is_file = isinstance(address.place, UnixAddress)
        return (IdentityKind.UID, IdentityKind.GID) if is_file else (IdentityKind.UID,)
    return kinds


class ListenerSecurity:
    """Protection of the sockets of one listener. Raises AddressError for options that cannot protect it."""

    def __init__(self, address: Address, dialect: Dialect, authentication: Authentication, *, insecure: bool) -> None:
        self._address = address
        self._authentication = authentication
        self._insecure = insecure
        self._kinds = security_options(dialect)
        self._mechanism = self._read(AuthOptions).auth
        self._cleartext = self._read(TokenOptions).cleartext
        if self._mechanism is not AuthMechanism.NONE and insecure:
            raise self._error(f"insecure=true and auth={self._mechanism.value} exclude each other; remove one of them")
        if self._cleartext and self._mechanism is not AuthMechanism.TOKEN:
            raise self._error("cleartext=true has no effect without auth=token; remove it, or add that")
        if self._mechanism is not AuthMechanism.NONE and self._mechanism.value not in dialect.auth:
            allowed = " or ".join(f"auth={each}" for each in dialect.auth)
            raise self._error(f"{dialect.title} has no auth={self._mechanism.value}; write {allowed}, or leave it out")
        if self._mechanism is AuthMechanism.CURVE and isinstance(address.place, TlsAddress):
            raise self._error("auth=curve has no place inside TLS; write auth=token or client_ca=FILE, or +tcp")
        # Then a certificate is optional: the connection may have none, and its requests show tokens.
        self.asks_tokens_of_requests = dialect.auth_by_request and self._mechanism is AuthMechanism.TOKEN
        self.tls = self._make_tls()
        self._check_table()

    def _read(self, kind: type[T]) -> T:
        """Read one kind of options; the defaults if the dialect does not have them."""
        given = self._address.options if kind in self._kinds else {}
        return read_options(kind, given, self._address.url, also=given)

    def _error(self, problem: str) -> Exception:
        return address_error(self._address.url, problem)

    def _make_tls(self) -> ListenerTls | None:
        """Return TLS with the files of the address, or None if it has no TLS."""
        place = self._address.place
        if not isinstance(place, TlsAddress):
            return None
        try:
            tls = ListenerTls(place.tls, is_optional=self.asks_tokens_of_requests)
        except TlsFileError as error:
            raise self._error(str(error)) from None
        tls.listener = str(place)
        return tls

    def _check_table(self) -> None:
        """Reject a listener that asks for credentials which no principal has: no client could use it."""
        table = self._authentication.table
        asked: list[tuple[tuple[IdentityKind, ...], str, str]] = []
        if self._mechanism is AuthMechanism.CURVE:
            asked.append(((IdentityKind.CURVE,), "auth=curve", "dragoman keys allow NAME KEY --work …"))
        if self._mechanism is AuthMechanism.TOKEN:
            asked.append(((IdentityKind.TOKEN,), "auth=token", "dragoman token new NAME --call …"))
        if verifies_clients(self._address.place) and table is not None and not asked:
            both = (IdentityKind.TLS_NAME, IdentityKind.TLS_KEY)
            asked.append((both, "client_ca", "dragoman access allow NAME --tls-name …"))
        for kinds, option, command in asked:
            if table is None or not any(table.has(kind) for kind in kinds):
                raise self._error(f"no principal of the access table can use {option}; run `{command}` first")
        if self._mechanism is AuthMechanism.CURVE and not self._authentication.has_curve_key:
            raise self._error("auth=curve needs a key of the broker; run `dragoman keys new --broker` first")

    # ---------------------------------------------------------------- one socket

    def auth(self, place: SocketAddress) -> ListenerAuth | None:
        """Return the credentials that a socket at this address asks for; None: those of local users suffice. Rejects a
        socket off loopback whose clients prove nothing, without `insecure=true` (T1)."""
        asks_certificate = verifies_clients(place)
        if not is_loopback(place):
            if self._mechanism is AuthMechanism.NONE and not asks_certificate and not self._insecure:
                raise self._error(
                    "it listens off loopback, where anyone can submit jobs and return results; use auth=curve, "
                    "auth=token with TLS, or +tls with client_ca=FILE; insecure=true in the URL opens it to everybody"
                )
            is_readable = not isinstance(place, TlsAddress) and not self._cleartext
            if self._mechanism is AuthMechanism.TOKEN and is_readable:
                raise self._error(
                    "tokens would be readable on the way; use TLS (+tls or https with cert=FILE), or write "
                    "cleartext=true in the URL if a proxy encrypts, or nobody else is in this network"
                )
        is_open = self.is_open_at(place)
        if self._mechanism is AuthMechanism.NONE and not asks_certificate and not is_open:
            return None
        return ListenerAuth(
            self._authentication, self._mechanism, verifies_certificates=asks_certificate, is_open=is_open
        )

    def is_open_at(self, place: SocketAddress) -> bool:
        """True if everybody who reaches a socket at this address is admitted, without any proof."""
        asks = self._mechanism is not AuthMechanism.NONE or verifies_clients(place)
        return self._insecure and not is_loopback(place) and not asks

    @property
    def notes(self) -> tuple[str, ...]:
        """Information for the operator: what clients of this listener need."""
        if self._mechanism is AuthMechanism.CURVE:
            public = key_hex(self._authentication.curve_server.keys[0][0])
            return (f"clients and workers need ?server_key={public}&key=NAME in their address",)
        if self._mechanism is AuthMechanism.TOKEN:
            return ("clients and workers need a token",)
        return ("clients and workers need a certificate",) if verifies_clients(self._address.place) else ()

    def local_access(self, places: Sequence[SocketAddress]) -> LocalAccess:
        """Return the access of local users. Raises AddressError if an option has no effect, or cannot be applied."""
        given = self._address.options
        if LoopbackOptions not in self._kinds:
            return LocalAccess(LoopbackRule.ANYONE)
        loopback = self._read(LoopbackOptions).loopback
        if "loopback" in given and not any(is_loopback(place) for place in places):
            raise self._error(
                f"loopback={loopback.value} has no effect off loopback; leave it out, or listen on 127.0.0.1"
            )
        if "loopback" not in given and self._mechanism is not AuthMechanism.NONE:
            loopback = LoopbackRule.ANYONE  # the credentials decide
        access = LocalAccess(loopback, is_default="loopback" not in given)
        if UnixOptions not in self._kinds or not ("mode" in given or "group" in given):
            return access
        if not any(isinstance(place, UnixAddress) for place in places):
            raise self._error("mode= and group= are for Unix sockets; leave them out, or listen on ipc://")
        unix = self._read(UnixOptions)
        try:
            return replace(access, mode=unix.file_mode(), group=unix.group_id())
        except ValueError as error:
            raise self._error(str(error)) from None
