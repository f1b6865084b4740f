"""The table of principals, with lookups by identity. Immutable: a reload makes a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hmac import compare_digest
from types import MappingProxyType

from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.principal_file import PrincipalEntry
from dragoman.access.problems import AccessError, Problem
from dragoman.access.tokens import token_hash
from dragoman.core.rights import PrincipalLimits, Rights

HALF = 16  # bytes of a hash


class AccessTable:
    """All principals of an access folder. `now` is Unix time: a principal that has expired is not found."""

    __slots__ = ("_by_identity", "_tokens", "entries")

    def __init__(self, entries: Iterable[PrincipalEntry]) -> None:
        """Raises AccessError if two principals have the same identity."""
        self.entries: Mapping[str, PrincipalEntry] = MappingProxyType({each.name: each for each in entries})
        self._by_identity: dict[Identity, PrincipalEntry] = {}
        problems = []
        for entry in self.entries.values():
            for identity in entry.identities:
                other = self._by_identity.setdefault(identity, entry)
                if other is not entry:
                    problems.append(Problem(entry.file, None, _taken(identity, other)))
        if problems:
            raise AccessError(problems)
        # Found by half of the hash; the whole is then compared in constant time.
        self._tokens = {
            identity.value[:HALF]: (identity.value, entry)
            for identity, entry in self._by_identity.items()
            if identity.kind is IdentityKind.TOKEN and isinstance(identity.value, bytes)
        }

    def by_curve(self, key: bytes, now: float) -> PrincipalEntry | None:
        """The principal with this public key of 32 bytes."""
        return self._find(IdentityKind.CURVE, key, now)

    def by_tls_key(self, digest: bytes, now: float) -> PrincipalEntry | None:
        """The principal whose certificate has the public key with this SHA-256."""
        return self._find(IdentityKind.TLS_KEY, digest, now)

    def by_tls_names(self, names: Iterable[str], now: float) -> PrincipalEntry | None:
        """The principal with one of the names of a certificate. None if they belong to several principals."""
        return self._only(IdentityKind.TLS_NAME, names, now)

    def by_token(self, token: str, now: float) -> PrincipalEntry | None:
        """The principal with this token. Unknown and expired tokens take the same time."""
        digest = token_hash(token)
        kept, entry = self._tokens.get(digest[:HALF], (bytes(len(digest)), None))
        is_same = compare_digest(digest, kept)
        return entry if entry is not None and is_same and entry.is_valid(now) else None

    def by_uid(self, uid: int, now: float) -> PrincipalEntry | None:
        return self._find(IdentityKind.UID, uid, now)

    def by_gids(self, gids: Iterable[int], now: float) -> PrincipalEntry | None:
        """The principal with one of the groups of a process. None if they belong to several principals."""
        return self._only(IdentityKind.GID, gids, now)

    def has(self, kind: IdentityKind) -> bool:
        """True if a principal has an identity of this kind."""
        return any(each.kind is kind for each in self._by_identity)

    def accounts(self, now: float) -> dict[str, tuple[Rights, PrincipalLimits]]:
        """Rights and limits by name, for `Principals.apply`. A principal that has expired is left out."""
        return {name: (each.rights, each.limits) for name, each in self.entries.items() if each.is_valid(now)}

    def next_expiry(self, now: float) -> float | None:
        """The next moment at which a principal expires."""
        return min(
            (each.expires for each in self.entries.values() if each.expires and now < each.expires), default=None
        )

    def replaced(self, entry: PrincipalEntry) -> AccessTable:
        """The table with this principal added, or replaced. Raises AccessError as the constructor does."""
        return AccessTable({**self.entries, entry.name: entry}.values())

    def _find(self, kind: IdentityKind, value: bytes | str | int, now: float) -> PrincipalEntry | None:
        entry = self._by_identity.get(Identity(kind, value))
        return entry if entry is not None and entry.is_valid(now) else None

    def _only(self, kind: IdentityKind, values: Iterable[str | int], now: float) -> PrincipalEntry | None:
        found = [self._by_identity.get(Identity(kind, each)) for each in values]
        names = {each.name: each for each in found if each is not None and each.is_valid(now)}
        return next(iter(names.values())) if len(names) == 1 else None


def _taken(identity: Identity, other: PrincipalEntry) -> str:
    return (
        f"{identity.kind} has {identity.label}, which {other.file} has, too; an identity belongs to one principal: "
        "remove it from one of the two files"
    )
