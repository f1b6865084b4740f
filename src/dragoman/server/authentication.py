"""Authentication: the principal behind the credentials of a connection or of a request.

`Authentication` has the access table of the moment and looks credentials up in it. `ListenerAuth` decides which
credentials a listener asks for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.principal_file import PrincipalEntry
from dragoman.access.table import AccessTable
from dragoman.access.tokens import token_hash
from dragoman.carriers.carrier import Carrier
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_curve import CurveZmtp
from dragoman.carriers.zmtp_curve_handshake import CurveServer
from dragoman.carriers.zmtp_handshake import NULL, Security
from dragoman.carriers.zmtp_plain import PlainServer
from dragoman.core.rights import AccessChanges, Principal, PrincipalLimits, Principals, Rights
from dragoman.server.clock import random_bytes
from dragoman.streams.certificates import read_certificate

TOKEN_NAME: Final = b"token"  # name with which PLAIN carries a token

LOCAL_USER: Final = "user"  # the kernel reports it

UNKNOWN_CERTIFICATE: Final = "unknown certificate"
UNKNOWN_KEY: Final = "unknown key"
UNKNOWN_TOKEN: Final = "unknown token"  # noqa: S105


class AuthMechanism(Enum):
    """Credentials that a listener asks for, besides certificates. The value is that of the option `auth`."""

    NONE = "none"
    CURVE = "curve"
    TOKEN = "token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Admitted:
    """A principal, and the identity that proved it. Without an identity it is the broker's own user, or `anyone`."""

    principal: Principal
    identity: Identity | None = None

    @property
    def label(self) -> str:
        """Short form of the identity for logs, or an empty string."""
        return self.identity.label if self.identity is not None else ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A connection that is not admitted. `reason` is constant; `detail` has facts and the next step."""

    reason: str
    detail: str
    identity: str = ""  # as in Identity.label


class Authentication:
    """Looks credentials up in the access table. Without a table nobody is found, and `anyone` has all rights."""

    def __init__(self, principals: Principals, wall_clock: Callable[[], float] = time.time) -> None:
        self.local: Final = Admitted(principals.local)
        self.anyone = Admitted(principals.anyone)
        self.table: AccessTable | None = None
        self._principals = principals
        self._wall_clock = wall_clock
        self._curve: CurveServer | None = None
        self.accounts: dict[str, tuple[Rights, PrincipalLimits]] = {}  # of the table, when it was last applied
        self.old_key = b""  # the public key of the broker that is to be given up; empty: there is none
        self.old_key_users: dict[str, float] = {}  # principals that came by it, and when they did so last (Unix time)
        self.when_old_key_used: Callable[[], None] = lambda: None

    def apply(self, table: AccessTable | None, keys: tuple[tuple[bytes, bytes], ...] = ()) -> AccessChanges:
        """Use this table and these CURVE keys of the broker, the newest first, from now on."""
        self._curve = CurveServer(keys, self.knows_curve_key, random_bytes) if keys else None
        old_key = keys[1][0] if len(keys) > 1 else b""
        if old_key != self.old_key:
            self.old_key, self.old_key_users = old_key, {}
        if self.table is None and table is not None:
            self.anyone = Admitted(self._principals.anyone)  # not the one of before: see `is_current`
        self.table = table
        return self.refresh()

    def refresh(self) -> AccessChanges:
        """Apply the rights and limits of the table again, because a principal may have expired."""
        if self.table is None:
            return AccessChanges()
        self.accounts = self.table.accounts(self._wall_clock())
        return self._principals.apply(self.accounts)

    @property
    def next_expiry(self) -> float | None:
        """Seconds until the next principal expires."""
        now = self._wall_clock()
        moment = self.table.next_expiry(now) if self.table is not None else None
        return moment - now if moment is not None else None

    @property
    def has_curve_key(self) -> bool:
        return self._curve is not None

    @property
    def curve_server(self) -> CurveServer:
        """CURVE for the next connection."""
        assert self._curve is not None, "a listener with CURVE needs a key of the broker"
        return self._curve

    def note_old_key(self, principal: Principal) -> None:
        """Remember a principal that knows the broker by its old key."""
        self.old_key_users[principal.name] = self._wall_clock()
        self.when_old_key_used()

    # ---------------------------------------------------------------- credentials

    def by_user(self, uid: int, gids: Iterable[int] = ()) -> Admitted | None:
        """The principal of a local user, by its id or else by its groups."""
        if self.table is None:
            return None
        now = self._wall_clock()
        entry = self.table.by_uid(uid, now)
        if entry is not None:
            return self._admitted(entry, IdentityKind.UID, uid)
        groups = tuple(gids)
        entry = self.table.by_gids(groups, now)
        if entry is None:
            return None
        gid = next(each for each in groups if Identity(IdentityKind.GID, each) in entry.identities)
        return self._admitted(entry, IdentityKind.GID, gid)

    def by_curve(self, key: bytes) -> Admitted | None:
        entry = self.table.by_curve(key, self._wall_clock()) if self.table is not None else None
        return self._admitted(entry, IdentityKind.CURVE, key)

    def by_token(self, token: str) -> Admitted | None:
        entry = self.table.by_token(token, self._wall_clock()) if self.table is not None else None
        return self._admitted(entry, IdentityKind.TOKEN, token_hash(token)) if entry is not None else None

    def by_certificate(self, certificate: bytes) -> Admitted | Rejected:
        """The principal of a certificate (DER) that a trusted authority has signed. Without a table it is `anyone`."""
        if self.table is None:
            return self.anyone
        try:
            facts, now = read_certificate(certificate), self._wall_clock()
        except ValueError as error:
            return Rejected(UNKNOWN_CERTIFICATE, f"it cannot be read ({error}); the client needs another one")
        digest = bytes.fromhex(facts.spki_sha256)
        found = self._admitted(self.table.by_tls_key(digest, now), IdentityKind.TLS_KEY, digest)
        if found is not None:
            return found
        entry = self.table.by_tls_names(facts.names, now)
        if entry is not None:
            name = next(each for each in facts.names if Identity(IdentityKind.TLS_NAME, each) in entry.identities)
            return Admitted(self._principals.named(entry.name), Identity(IdentityKind.TLS_NAME, name))
        names = ", ".join(repr(each) for each in facts.names) or "no name"
        return Rejected(
            UNKNOWN_CERTIFICATE,
            f"the access table has no principal for it ({names}, sha256:{facts.spki_sha256}); "
            "run `dragoman access allow NAME --tls-name …`, or --tls-cert FILE",
            facts.spki_sha256[:8],
        )

    def knows_curve_key(self, key: bytes) -> bool:
        return self.by_curve(key) is not None

    def knows_token(self, name: bytes, password: bytes) -> bool:
        """True if PLAIN carries a token of the table."""
        return name == TOKEN_NAME and self.by_token(password.decode("ascii", "replace")) is not None

    def is_current(self, admitted: Admitted) -> bool:
        """True if this identity still belongs to this principal. Asked again after each change of the table.

        Who was `anyone` when there was no table may be a principal of it, and has to prove that again.
        """
        identity, principal = admitted.identity, admitted.principal
        if identity is None:
            return admitted is self.anyone or principal is not self.anyone.principal
        entry = self.table.entries.get(principal.name) if self.table is not None else None
        return entry is not None and identity in entry.identities and entry.is_valid(self._wall_clock())

    def _admitted(self, entry: PrincipalEntry | None, kind: IdentityKind, value: bytes | int) -> Admitted | None:
        return Admitted(self._principals.named(entry.name), Identity(kind, value)) if entry is not None else None


class ListenerAuth:
    """The credentials that one listener asks for."""

    def __init__(
        self, authentication: Authentication, mechanism: AuthMechanism, *, verifies_certificates: bool, is_open: bool
    ) -> None:
        """`is_open`: peers that prove nothing are `anyone`. Otherwise they are admitted as their local user is."""
        self.authentication = authentication
        self.mechanism = mechanism
        self._verifies_certificates = verifies_certificates
        self._is_open = is_open

    @property
    def asked_for(self) -> str:
        """Name of the credentials that it asks for, in logs and metrics."""
        if self.mechanism is not AuthMechanism.NONE:
            return str(self.mechanism.value)
        if self._verifies_certificates:
            return "tls"
        return "none" if self._is_open else LOCAL_USER

    def security(self) -> Security:
        """The mechanism of ZMTP for the next connection."""
        if self.mechanism is AuthMechanism.CURVE:
            return self.authentication.curve_server
        if self.mechanism is AuthMechanism.TOKEN:
            return PlainServer(self.authentication.knows_token)
        return NULL

    def is_by_old_key(self, carrier: Carrier) -> bool:
        """True if the client knows the broker by its old public key."""
        if self.mechanism is not AuthMechanism.CURVE or not isinstance(carrier, CurveZmtp):
            return False
        return carrier.own_key == self.authentication.old_key

    def rejection(self, certificate: bytes | None) -> Rejected | None:
        """Return the reason to reject a connection whose handshake of TLS is done, before its carrier sends a byte."""
        if not self._verifies_certificates or self.mechanism is not AuthMechanism.NONE or certificate is None:
            return None
        found = self.authentication.by_certificate(certificate)
        return found if isinstance(found, Rejected) else None

    def judge(self, user: Admitted, certificate: bytes | None, carrier: Carrier) -> Admitted | Rejected:
        """Decide about a connection whose handshakes are done. `user` is the local user, as found when it connected."""
        if self.mechanism is AuthMechanism.CURVE and isinstance(carrier, Zmtp):
            found = self.authentication.by_curve(carrier.peer_key)
            return found or Rejected(UNKNOWN_KEY, "its key was removed from the access table during the handshake")
        if self.mechanism is AuthMechanism.TOKEN and isinstance(carrier, Zmtp):
            found = self.authentication.by_token(carrier.peer_token.decode("ascii", "replace"))
            return found or Rejected(UNKNOWN_TOKEN, "its token was removed from the access table during the handshake")
        if self._verifies_certificates:
            if certificate is None:
                return Rejected(UNKNOWN_CERTIFICATE, "it has shown none")
            return self.authentication.by_certificate(certificate)
        return self.authentication.anyone if self._is_open else user
