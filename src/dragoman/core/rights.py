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
from dragoman.core.principal_share import PrincipalShare
from dragoman.core.running_account import UNLIMITED, RunningAccount

MAX_PATTERN_BYTES: Final = 128  # as long as the longest name of a service
DEFAULT_WAITING: Final = 200_000  # jobs, as max_jobs_per_caller
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
        raise ValueError(f"pattern {pattern!r} is not 1 to {MAX_PATTERN_BYTES} bytes of visible text; {allowed}")


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

    max_waiting: int | None = DEFAULT_WAITING  # jobs that wait
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

    @property
    def shared_waiting(self) -> int | None:
        """The `max_waiting` that holds for all brokers of a cluster together; None: it has none. The default protects
        the memory of each broker, and holds at each."""
        return None if self.max_waiting == DEFAULT_WAITING else self.max_waiting

    @property
    def limit_waiting(self) -> bool:
        """True if what waits is limited for all brokers of a cluster together."""
        return self.shared_waiting is not None or self.max_waiting_bytes is not None

    @property
    def are_shared(self) -> bool:
        """True if one of them holds for all brokers of a cluster together."""
        counts = (self.shared_waiting, self.max_waiting_bytes, self.max_running, self.max_peers)
        return self.max_rate is not None or any(each is not None for each in counts)


NO_LIMITS: Final = PrincipalLimits(max_waiting=None)


def lowest(limits: PrincipalLimits, others: Iterable[PrincipalLimits]) -> PrincipalLimits:
    """Return the lowest of each limit."""
    for other in others:
        limits = PrincipalLimits(
            _lower(limits.max_waiting, other.max_waiting),
            _lower(limits.max_waiting_bytes, other.max_waiting_bytes),
            _lower(limits.max_running, other.max_running),
            _lower(limits.max_payload, other.max_payload),
            other.max_rate if limits.max_rate is None else min(limits.max_rate, other.max_rate or limits.max_rate),
            _lower(limits.max_peers, other.max_peers),
        )
    return limits


def _lower(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


@final
class Principal(RunningAccount):
    """The account of one principal while the broker runs. Connections and jobs of the principal share this object.

    A reload replaces `rights` and `limits` in it. A principal that was removed has no rights, and keeps its counters:
    its jobs may still run. In a cluster, limits hold for all brokers together: `max_running` and its siblings are what
    this broker may use of them.
    """

    # fmt: off
    __slots__ = (
        "_rate_left", "_rate_time", "bytes", "elsewhere", "is_listed", "last_turn", "limits", "max_peers", "max_rate",
        "max_waiting", "max_waiting_bytes", "name", "own_limits", "peers", "rights", "share", "submits", "taken",
        "waiting", "waiting_bytes",
    )
    # fmt: on

    def __init__(self, name: str, rights: Rights = NO_RIGHTS, limits: PrincipalLimits = NO_LIMITS) -> None:
        super().__init__()
        self.name: Final = name
        self.rights = rights
        self.is_listed = False  # it is in the present table
        self.waiting = 0  # jobs that wait or are delayed; `core/lifecycle.py` counts them, and those that run
        self.waiting_bytes = 0  # their payloads
        self.bytes = 0  # payloads of all its jobs that are present
        self.taken = 0  # running jobs that other brokers of the cluster count
        self.last_turn = 0  # number of its last turn at a worker of several services
        self.elsewhere: dict[str, PrincipalLimits] = {}  # in other tables, by broker of the cluster
        self.share: PrincipalShare | None = None  # None: no cluster, or none of its limits is shared
        self.peers = 0  # connections
        self.submits = 0  # submits so far, if their rate is limited; also those that were refused for it
        self._rate_left = 0.0  # submits that are allowed at _rate_time
        self._rate_time = -inf
        self.limit(limits)

    def limit(self, limits: PrincipalLimits) -> None:
        """Set the limits. Jobs that wait because of the old ones are dispatched by `RunningLimits.unblock`."""
        self.own_limits = limits
        self.update_limits()

    def update_limits(self) -> None:
        """Compute what this broker may use. Jobs that wait are dispatched by the caller, as with `limit`."""
        self.limits = limits = lowest(self.own_limits, self.elsewhere.values()) if self.elsewhere else self.own_limits
        share = self.share
        self.max_running = UNLIMITED if limits.max_running is None else limits.max_running
        self.max_waiting = UNLIMITED if limits.max_waiting is None else limits.max_waiting
        self.max_waiting_bytes = UNLIMITED if limits.max_waiting_bytes is None else limits.max_waiting_bytes
        self.max_rate = limits.max_rate or 0.0  # 0: no limit
        self.max_peers = UNLIMITED if limits.max_peers is None else limits.max_peers
        if share is None:
            return
        if limits.max_running is not None:
            self.max_running = share.count_running(limits.max_running)
        if limits.shared_waiting is not None:
            self.max_waiting = share.count(limits.shared_waiting, share.waiting)
        if limits.max_waiting_bytes is not None:
            self.max_waiting_bytes = share.count(limits.max_waiting_bytes, share.waiting_bytes)
        if limits.max_peers is not None:
            self.max_peers = share.count(limits.max_peers, share.peers)
        if limits.max_rate is not None:
            self.max_rate = (share.rate if share.is_granted else 0.0) or limits.max_rate / share.parts

    def begin_batch(self) -> None:
        """Let the jobs of a batch use all that other brokers of the cluster leave, until `end_batch`: it must not be
        refused because what is left is divided."""
        share, limits = self.share, self.limits
        if share is not None and share.is_granted:
            if limits.shared_waiting is not None:
                self.max_waiting = share.count(limits.shared_waiting, share.batch)
            if limits.max_waiting_bytes is not None:
                self.max_waiting_bytes = share.count(limits.max_waiting_bytes, share.batch_bytes)

    def end_batch(self) -> None:
        if self.share is not None:
            self.update_limits()

    def suspend(self) -> None:
        """Start no more jobs until the next grant."""
        if self.share is not None:
            self.share.slots = 0
            self.update_limits()

    def lapse(self) -> None:
        """Use the share no more: it is not confirmed."""
        if self.share is not None and self.share.is_granted:
            self.share.is_granted = False
            self.update_limits()

    def may(self, right: Right, service: str) -> bool:
        """True if the principal has the right over the service now."""
        return self.rights.may(right, service)

    @property
    def is_gone(self) -> bool:
        """True if the present table does not list it, and it has no rights of its own as `local` has (R142)."""
        return not self.is_listed and self.rights == NO_RIGHTS

    def has_room(self, size: int) -> bool:
        """True if one more job with a payload of this size may wait."""
        most = self.limits.max_payload
        return (
            (most is None or size <= most)
            and self.waiting < self.max_waiting
            and self.waiting_bytes + size <= self.max_waiting_bytes
        )

    def take_rate(self, now: float) -> bool:
        """Count one submit. Returns False, and counts nothing, if it exceeds `max_rate`.

        A token bucket: up to one second's submits may come at once, and at least one.
        """
        rate = self.max_rate
        if not rate:
            return True
        self.submits += 1
        passed = max(0.0, now - self._rate_time)
        left = min(max(1.0, rate), self._rate_left + passed * rate)
        self._rate_time = now
        self._rate_left = left - 1.0 if left >= 1.0 else left
        return left >= 1.0

    def give_back_rate(self) -> None:
        """Undo one `take_rate`."""
        if self.max_rate:
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

    __slots__ = ("_by_name", "anyone", "are_shared", "brokers", "local", "shared")

    def __init__(self) -> None:
        self.are_shared = False  # limits hold for all brokers of a cluster together
        self.shared: dict[str, Principal] = {}  # principals with such limits
        self.brokers = 1  # of the cluster
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
            elif principal.rights != rights or principal.own_limits != limits:
                changed.append(name)
            principal.rights, principal.is_listed = rights, True
            principal.limit(limits)
            self._share(principal)
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

    # ---------------------------------------------------------------- limits in a cluster

    def share(self) -> None:
        """Let limits hold for all brokers of a cluster together, from now on."""
        self.are_shared = True
        for principal in self._by_name.values():
            self._share(principal)

    def limit_elsewhere(self, broker: str, table: Mapping[str, PrincipalLimits]) -> list[Principal]:
        """Replace the limits in the table of another broker. Returns the principals whose limits may be higher now."""
        for name in table:
            self.named(name)
        changed: list[Principal] = []
        for name, principal in self._by_name.items():
            limits = table.get(name) if principal is not self.local else None
            if limits == principal.elsewhere.get(broker):
                continue
            if limits is None:
                del principal.elsewhere[broker]
            else:
                principal.elsewhere[broker] = limits
            principal.update_limits()
            self._share(principal)
            changed.append(principal)
        return changed

    def _share(self, principal: Principal) -> None:
        """Give a principal a share of its limits, or take it away."""
        if not self.are_shared or principal.limits.are_shared == (principal.share is not None):
            return
        if principal.share is None:
            principal.share = PrincipalShare(self.brokers)
            self.shared[principal.name] = principal
        else:
            principal.share = None
            del self.shared[principal.name]
        principal.update_limits()
