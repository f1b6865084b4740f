"""Protection of one listener: TLS, the credentials that it asks for, and the local users that it admits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragoman.access.identities import IdentityKind
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


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """Options of listeners whose clients can show credentials within the protocol."""

    auth: AuthMechanism = AuthMechanism.NONE


def security_options(dialect: Dialect) -> tuple[type[Any], ...]:
    """Return the kinds of options for the security of a dialect's listeners."""
    kinds: list[type[Any]] = []
    if dialect.auth:
        kinds.append(AuthOptions)
    if dialect.transports != ("unix",):  # else the dialect has its own options for users and files (R84)
        kinds.append(LoopbackOptions)
    if "ipc" in dialect.transports:
        kinds.append(UnixOptions)
    return tuple(kinds)


class ListenerSecurity:
    """Protection of the sockets of one listener. Raises AddressError for options that cannot protect it."""

    def __init__(self, address: Address, dialect: Dialect, authentication: Authentication, *, insecure: bool) -> None:
        self._address = address
        self._authentication = authentication
        self._insecure = insecure
        self._kinds = security_options(dialect)
        self._mechanism = AuthMechanism.NONE
        if AuthOptions in self._kinds:
            self._mechanism = read_options(AuthOptions, address.options, address.url, also=address.options).auth
        if self._mechanism is not AuthMechanism.NONE and self._mechanism.value not in dialect.auth:
            allowed = " or ".join(f"auth={each}" for each in dialect.auth)
            raise self._error(f"{dialect.title} has no auth={self._mechanism.value}; write {allowed}, or leave it out")
        # Then a certificate is optional: the connection may have none, and its requests show tokens.
        self.asks_tokens_of_requests = dialect.auth_by_request and self._mechanism is AuthMechanism.TOKEN
        self.tls = self._make_tls()
        self._check_table()

    def _error(self, problem: str) -> Exception:
        return address_error(self._address.url, problem)

    def _make_tls(self) -> ListenerTls | None:
        """Return TLS with the files of the address, or None if it has no TLS."""
        place = self._address.place
        if not isinstance(place, TlsAddress):
            return None
        try:
            return ListenerTls(place.tls, is_optional=self.asks_tokens_of_requests)
        except TlsFileError as error:
            raise self._error(str(error)) from None

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
        is_private = is_loopback(place) or isinstance(place, TlsAddress)
        if not self._insecure and not is_loopback(place):
            if self._mechanism is AuthMechanism.NONE and not asks_certificate:
                raise self._error(
                    "it listens off loopback, where anyone can submit jobs and return results; use auth=curve, "
                    "auth=token with TLS, or +tls with client_ca=FILE; insecure=true in the URL opens it to everybody"
                )
            if self._mechanism is AuthMechanism.TOKEN and not is_private:
                raise self._error(
                    "tokens would be readable on the way; use TLS (+tls or https with cert=FILE), or write "
                    "insecure=true in the URL if something in front of the broker encrypts"
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

    def local_access(self, places: Sequence[SocketAddress]) -> LocalAccess:
        """Return the access of local users. Raises AddressError if an option has no effect, or cannot be applied."""
        address, given = self._address, self._address.options
        if LoopbackOptions not in self._kinds:
            return LocalAccess(LoopbackRule.ANYONE)
        loopback = read_options(LoopbackOptions, given, address.url, also=given).loopback
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
        unix = read_options(UnixOptions, given, address.url, also=given)
        try:
            return replace(access, mode=unix.file_mode(), group=unix.group_id())
        except ValueError as error:
            raise self._error(str(error)) from None
