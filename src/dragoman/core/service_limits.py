"""Limits of one service: most running jobs, most running jobs of a tenant, and a rate of starts (R182 to R185).

The values come from an operator or from the workers of the service (`core/limiter.py`). In a cluster they hold for all
brokers together: this broker starts as many jobs as one of them has granted it (`cluster/limit_shares.py`).
"""

from __future__ import annotations

from typing import Final, final

from dragoman.core.ids import WorkerId
from dragoman.core.infinity import inf
from dragoman.core.limit_values import NOTHING_GIVEN, NOTHING_SET, LimitSetting, LimitValues
from dragoman.core.running_account import UNLIMITED, RunningAccount

SMOOTHING: Final = 0.1  # seconds; the starts that a rate allows in this time may come at once


class Tenant(RunningAccount):
    """The running jobs of one tenant of a service. Tenants of two principals are unrelated."""

    __slots__ = ("_all", "_key", "has_queue")

    def __init__(self, key: tuple[str, str], tenants: dict[tuple[str, str], Tenant], max_running: int) -> None:
        super().__init__()
        self.max_running = max_running
        self.has_queue = False  # it has a queue of waiting jobs
        self._key = key
        self._all = tenants

    def queue_dropped(self) -> None:
        """Record that its queue of waiting jobs is gone."""
        self.has_queue = False
        if not self.running:
            del self._all[self._key]

    def count(self, change: int) -> None:
        self.running += change
        if not self.running and not self.has_queue:
            del self._all[self._key]


@final
class LimitShare:
    """The part of a service's limits that this broker of a cluster may use."""

    __slots__ = ("moved", "running", "slots", "tenants", "tokens")

    def __init__(self) -> None:
        self.slots = 0  # jobs that may run at once, with those that have moved
        self.moved: dict[tuple[str, str], int] = {}  # running jobs of another broker that still count here
        self.tenants: dict[tuple[str, str], int] = {}  # the same for each tenant; 0 for those that are missing
        self.tokens = 0  # starts that the rate allows
        self.running: dict[str, int] = {}  # running jobs by broker, as last heard


class ServiceLimits(RunningAccount):
    """The limits of one service, and the numbers that they are compared with. Made with the first limit, then kept.

    The rate is a token bucket, kept as the time of the next start (GCRA). Time in which nothing starts fills it with
    the starts of `SMOOTHING` seconds, at least one, and no further: neither a quiet night, nor a pause of the broker,
    nor a jump of its clock allows a burst.
    """

    # fmt: off
    __slots__ = (
        "_began", "alarm", "alarm_number", "by_operator", "declared", "declared_elsewhere", "interval", "is_disputed",
        "is_loading", "max_running_per_tenant", "next_start", "operator", "service", "setting", "share", "taken",
        "tenants", "waits_for_rate",
    )
    # fmt: on

    def __init__(self, service: str, began: float, share: LimitShare | None = None) -> None:
        """`began`: start of the broker, when the bucket was empty. `share`: None without a cluster."""
        super().__init__()
        self.service = service
        self.by_operator = NOTHING_GIVEN
        self.operator = ""  # name of the operator
        self.declared: dict[WorkerId, LimitValues] = {}  # by workers that are connected
        self.declared_elsewhere: dict[str, LimitValues] = {}  # by workers of other brokers: the lowest of each broker
        self.is_disputed = False  # workers differ about a limit that no operator has set
        self.setting = NOTHING_SET  # the limits that follow
        self.max_running_per_tenant = UNLIMITED
        self.tenants: dict[tuple[str, str], Tenant] = {}  # those with running or waiting jobs, by principal and name
        self.is_loading = False  # jobs of an earlier run are being read: those that run are not all counted yet
        self.interval = 0.0  # seconds between two starts; 0: no rate
        self.next_start = -inf  # time from which the rate allows a start
        self.waits_for_rate = False  # that time is in the future; a timer ends this
        self._began = began
        self.share = share
        self.taken: dict[tuple[str, str], int] = {}  # running jobs that other brokers count, by principal and tenant
        self.alarm = inf
        self.alarm_number = 0

    @property
    def is_full(self) -> bool:
        """True if no job of the service may start now."""
        return self.running >= self.max_running or self.waits_for_rate or self.is_loading

    @property
    def limits_tenants(self) -> bool:
        return self.max_running_per_tenant != UNLIMITED

    # ---------------------------------------------------------------- running jobs

    def account_of(self, principal: str, tenant: str) -> Tenant:
        """Return the account of a tenant that gets a queue."""
        account = self._tenant(principal, tenant)
        account.has_queue = True
        return account

    def has_room(self, principal: str, tenant: str) -> bool:
        """True if the tenant may run one more job."""
        account = self.tenants.get((principal, tenant))
        if account is None:
            return self.most_of((principal, tenant)) > 0
        return account.running < account.max_running

    def most_of(self, tenant: tuple[str, str]) -> int:
        """Return the number of jobs of a tenant that may run at once at this broker."""
        share = self.share
        if share is None or self.max_running_per_tenant == UNLIMITED:
            return self.max_running_per_tenant
        return max(0, min(self.max_running_per_tenant, share.tenants.get(tenant, 0)) - share.moved.get(tenant, 0))

    def count(self, principal: str, tenant: str, change: int) -> None:
        """Count a job that begins to run (1), or runs no more (-1)."""
        self.running += change
        self._tenant(principal, tenant).count(change)

    def count_taken(self, principal: str, tenant: str, change: int) -> None:
        """Count a job that another broker counts, and a worker of this one begins to run (1), or runs no more (-1)."""
        key = principal, tenant
        count = self.taken.get(key, 0) + change
        if count:
            self.taken[key] = count
        else:
            self.taken.pop(key, None)

    def _tenant(self, principal: str, tenant: str) -> Tenant:
        key = principal, tenant
        account = self.tenants.get(key)
        if account is None:
            account = self.tenants[key] = Tenant(key, self.tenants, self.most_of(key))
        return account

    # ---------------------------------------------------------------- the values, and the rate

    def set(self, setting: LimitSetting, now: float) -> None:
        """Replace the values. Jobs that waited because of the old ones are dispatched by the caller."""
        self.setting = setting
        self.max_running_per_tenant = setting.max_running_per_tenant or UNLIMITED
        self._set_most()
        interval = setting.rate.interval if setting.rate is not None else 0.0
        if interval != self.interval:
            self.interval = interval
            if interval:  # a longer interval does not apply to starts that are past, a shorter one does
                self.next_start = min(max(self.next_start, self._began + interval), now + interval)
        self.pass_time(now)

    def grant(self, slots: int, tenants: dict[tuple[str, str], int], tokens: int, now: float) -> None:
        """Replace the share of this broker, and add tokens of the rate. Jobs that waited are dispatched by the
        caller."""
        share = self.share
        assert share is not None
        share.slots, share.tenants = slots, tenants
        share.tokens += tokens
        self._set_most()
        self.pass_time(now)

    def set_moved(self, moved: dict[tuple[str, str], int]) -> None:
        """Replace the numbers of running jobs that another broker has now, and that still count here."""
        assert self.share is not None
        self.share.moved = moved
        self._set_most()

    def _set_most(self) -> None:
        self.max_running = most = self.setting.max_running or UNLIMITED
        if self.share is not None and most != UNLIMITED:
            self.max_running = max(0, min(most, self.share.slots) - sum(self.share.moved.values()))
        for key, tenant in self.tenants.items():
            tenant.max_running = self.most_of(key)

    def started(self, now: float) -> None:
        """Take a token for a job that starts."""
        if self.interval and self.share is not None:
            self.share.tokens -= 1
            self.pass_time(now)
        elif self.interval:
            self.next_start = max(self.next_start, now - SMOOTHING) + self.interval
            self.waits_for_rate = self.next_start > now

    def not_started(self, now: float) -> None:
        """Return the token of a job that another broker did not start."""
        if self.interval and self.share is not None:
            self.share.tokens += 1
            self.pass_time(now)

    def pass_time(self, now: float) -> None:
        """Let jobs start if the rate allows it by now."""
        if self.share is not None:
            self.waits_for_rate = self.interval > 0.0 and self.share.tokens <= 0
        else:
            self.waits_for_rate = self.interval > 0.0 and self.next_start > now
