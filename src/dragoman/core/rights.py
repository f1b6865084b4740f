"""Principals: their rights over services, their limits, and the live account of each.

A right is given by patterns: the name of a service, a prefix that ends in `*`, or `*` for all services. Without a
pattern there is no right. There are no patterns that deny.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from dragoman.core.errors import InvariantBroken
from dragoman.core.infinity import inf
from dragoman.core.names import is_name
from dragoman.core.running_account import UNLIMITED, RunningAccount

MAX_PATTERN_BYTES: Final = 128  # as long as the longest name of a service
LOCAL: Final = "local"
ANYONE: Final = "anyone"


class Right(StrEnum):
    """Right of a principal over a service."""

    CALL = "call"  # submit jobs; read, cancel and retry its own
    WORK = "work"  # offer the service and run its jobs
    SEE = "see"  # states of all jobs of the service, its workers and its events; no payloads or results
    ADMINISTER = "administer"  # includes SEE: cancel, retry, pause, purge, drain; payloads and results


# Members by name, as in states.py: a lookup on the enum class is slow.
CALL: Final = Right.CALL
WORK: Final = Right.WORK
SEE: Final = Right.SEE
ADMINISTER: Final = Right.ADMINISTER


def check_pattern(pattern: str) -> None:
    """Raise ValueError if it is not a pattern of services."""
    allowed = "write the name of a service, a prefix that ends in '*', or '*' for all services"
    if "*" in pattern[:-1]:
        raise ValueError(f"pattern {pattern!r} has a '*' before its last character; {allowed}")
    if pattern != "*" and not is_name(pattern.removesuffix("*"), MAX_PATTERN_BYTES):
        raise ValueError(
            f"pattern {pattern!r} is not 1 to {MAX_PATTERN_BYTES} bytes of text without control characters; {allowed}"
        )


@final
class ServicePatterns:
    """A set of services, given by patterns. Immutable."""

    __slots__ = ("_names", "_prefixes", "has_all", "is_empty")

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raises ValueError for an invalid pattern."""
        names: dict[str, None] = {}
        prefixes: dict[str, None] = {}
        for each in patterns:
            check_pattern(each)
            if each.endswith("*"):
                prefixes[each[:-1]] = None
            else:
                names[each] = None
        self.has_all: Final = "" in prefixes
        self.is_empty: Final = not names and not prefixes
        self._names: Final = frozenset(names)
        self._prefixes: Final = tuple(prefixes)

    def has(self, service: str) -> bool:
        return self.has_all or service in self._names or service.startswith(self._prefixes)


@final
class Rights:
    """Rights of a principal over services. Immutable."""

    __slots__ = (
        "_administered",
        "_called",
        "_seen",
        "_worked",
        "administer",
        "administers_all",
        "call",
        "calls_all",
        "see",
        "sees_all",
        "work",
        "works_all",
    )

    def __init__(
        self,
        call: Iterable[str] = (),
        work: Iterable[str] = (),
        see: Iterable[str] = (),
        administer: Iterable[str] = (),
    ) -> None:
        """Each argument has the patterns of one right. Raises ValueError for an invalid pattern."""
        self.call: Final = tuple(call)
        self.work: Final = tuple(work)
        self.see: Final = tuple(see)
        self.administer: Final = tuple(administer)
        self._called: Final = ServicePatterns(self.call)
        self._worked: Final = ServicePatterns(self.work)
        self._seen: Final = ServicePatterns(self.see + self.administer)
        self._administered: Final = ServicePatterns(self.administer)
        self.calls_all: Final = self._called.has_all
        self.works_all: Final = self._worked.has_all
        self.sees_all: Final = self._seen.has_all
        self.administers_all: Final = self._administered.has_all

    def may(self, right: Right, service: str) -> bool:
        """True if the principal has the right over the service."""
        return self._services(right).has(service)

    def may_some(self, right: Right) -> bool:
        """True if there may be a service over which the principal has the right."""
        return not self._services(right).is_empty

    def patterns(self, right: Right) -> tuple[str, ...]:
        """The patterns of one right, as they were given."""
        if right is CALL:
            return self.call
        if right is WORK:
            return self.work
        return self.see if right is SEE else self.administer

    def _services(self, right: Right) -> ServicePatterns:
        if right is CALL:
            return self._called
        if right is WORK:
            return self._worked
        return self._seen if right is SEE else self._administered

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rights) and self._lists() == other._lists()

    def __hash__(self) -> int:
        return hash(self._lists())

    def __repr__(self) -> str:
        return f"Rights(call={self.call}, work={self.work}, see={self.see}, administer={self.administer})"

    def _lists(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        return self.call, self.work, self.see, self.administer


NO_RIGHTS: Final = Rights()
ALL_RIGHTS: Final = Rights(call=("*",), work=("*",), see=("*",), administer=("*",))


@dataclass(frozen=True, slots=True)
class PrincipalLimits:
    """Limits of one principal, over all of its connections. None: no limit besides those of the broker."""

    max_waiting: int | None = 200_000  # jobs that wait, as max_jobs_per_caller
    max_waiting_bytes: int | None = None  # payloads of the jobs that wait
    max_running: int | None = None  # jobs that run
    max_payload: int | None = None  # bytes of one payload
    max_rate: float | None = None  # submits a second
    max_peers: int | None = None  # connections

    def __post_init__(self) -> None:
        counts = (self.max_waiting, self.max_waiting_bytes, self.max_running, self.max_payload, self.max_peers)
        for each in counts:
            if each is not None and each < 1:
                raise ValueError(f"{each} is less than 1")
        if self.max_rate is not None and not 0 < self.max_rate < inf:
            raise ValueError(f"{self.max_rate} is not a finite number above 0")


NO_LIMITS: Final = PrincipalLimits(max_waiting=None)


@final
class Principal(RunningAccount):
    """The account of one principal while the broker runs. Connections and jobs of the principal share this object.

    A reload replaces `rights` and `limits` in it. A principal that was removed has no rights, and keeps its counters:
    its jobs may still run.
    """

    __slots__ = (
        "_rate_left",
        "_rate_time",
        "is_listed",
        "last_turn",
        "limits",
        "name",
        "peers",
        "rights",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, name: str, rights: Rights = NO_RIGHTS, limits: PrincipalLimits = NO_LIMITS) -> None:
        super().__init__()
        self.name: Final = name
        self.rights = rights
        self.is_listed = False  # it is in the present table
        self.waiting = 0  # jobs that wait or are delayed; `core/lifecycle.py` counts them, and those that run
        self.waiting_bytes = 0  # their payloads
        self.last_turn = 0  # number of its last turn at a worker of several services
        self.limits = limits
        self.limit(limits)
        self.peers = 0  # connections
        self._rate_left = 0.0  # submits that are allowed at _rate_time
        self._rate_time = -inf

    def limit(self, limits: PrincipalLimits) -> None:
        """Set the limits. Jobs that wait because of the old ones are dispatched by `RunningLimits.unblock`."""
        self.limits = limits
        self.max_running = UNLIMITED if limits.max_running is None else limits.max_running

    def may(self, right: Right, service: str) -> bool:
        """True if the principal has the right over the service now."""
        return self.rights.may(right, service)

    @property
    def is_gone(self) -> bool:
        """True if the present table does not list it, and it has no rights of its own as `local` has (R142)."""
        return not self.is_listed and self.rights == NO_RIGHTS

    def has_room(self, size: int) -> bool:
        """True if one more job with a payload of this size may wait."""
        limits = self.limits
        return (
            (limits.max_payload is None or size <= limits.max_payload)
            and (limits.max_waiting is None or self.waiting < limits.max_waiting)
            and (limits.max_waiting_bytes is None or self.waiting_bytes + size <= limits.max_waiting_bytes)
        )

    def take_rate(self, now: float) -> bool:
        """Count one submit. Returns False, and counts nothing, if it exceeds `max_rate`.

        A token bucket: up to one second's submits may come at once, and at least one.
        """
        rate = self.limits.max_rate
        if rate is None:
            return True
        passed = max(0.0, now - self._rate_time)
        left = min(max(1.0, rate), self._rate_left + passed * rate)
        self._rate_time = now
        self._rate_left = left - 1.0 if left >= 1.0 else left
        return left >= 1.0

    def give_back_rate(self) -> None:
        """Undo one `take_rate`."""
        if self.limits.max_rate is not None:
            self._rate_left += 1.0

    def __repr__(self) -> str:
        return f"Principal({self.name!r})"


@dataclass(frozen=True, slots=True)
class AccessChanges:
    """Names of the principals that a new table has added, removed and changed, each list in alphabetical order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@final
class Principals:
    """All principals of a broker by name. A principal is never removed: jobs and connections refer to it.

    `local` has all rights, always. `anyone` has all rights until a table is applied, and then those of the table: none
    if the table does not list it.
    """

    __slots__ = ("_by_name", "anyone", "local")

    def __init__(self) -> None:
        self.local: Final = Principal(LOCAL, ALL_RIGHTS)
        self.anyone: Final = Principal(ANYONE, ALL_RIGHTS)
        self._by_name: Final[dict[str, Principal]] = {LOCAL: self.local, ANYONE: self.anyone}

    def __iter__(self) -> Iterator[Principal]:
        return iter(self._by_name.values())

    def find(self, name: str) -> Principal | None:
        return self._by_name.get(name)

    def named(self, name: str) -> Principal:
        """The principal of this name. A new one, such as the owner of a stored job, has no rights."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Principal(name)
        return found

    def apply(self, table: Mapping[str, tuple[Rights, PrincipalLimits]]) -> AccessChanges:
        """Replace the rights and limits of all principals by those of the table. Who is not in it loses all rights."""
        if LOCAL in table:
            raise InvariantBroken(f"{LOCAL!r} is built in and has all rights: a table cannot list it")
        added, removed, changed = [], [], []
        for name in sorted(table):
            rights, limits = table[name]
            principal = self.named(name)
            if not principal.is_listed and principal is not self.anyone:
                added.append(name)
            elif principal.rights != rights or principal.limits != limits:
                changed.append(name)
            principal.rights, principal.is_listed = rights, True
            principal.limit(limits)
        for name in sorted(self._by_name):
            principal = self._by_name[name]
            if name in table or principal is self.local:
                continue
            if principal.is_listed:
                removed.append(name)
            elif principal.rights != NO_RIGHTS:
                changed.append(name)
            principal.rights, principal.is_listed = NO_RIGHTS, False
        return AccessChanges(tuple(added), tuple(removed), tuple(changed))
