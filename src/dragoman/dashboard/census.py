"""Counts workers in one pass: by state, by service and dialect, and those that may be in trouble.

Workers with the same broker side, services, state and capacity are one group, so that the pass does little for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dragoman.core.infinity import inf
from dragoman.core.leases import lease_of, stuck_since
from dragoman.core.model import Service, Worker
from dragoman.core.recipients import Recipient, dialect_of
from dragoman.core.states import DETACHED, STUCK

AT_ONCE: Final = 500  # workers between two steps of the pass
SILENT_SHARE: Final = 0.6  # of the lease
STUCK_SECONDS: Final = 60.0
MOST_SUSPECTS: Final = 20  # of each kind

Group = tuple[Recipient, tuple[Service, ...], str, int]


class Census:
    """Numbers of workers at one moment."""

    __slots__ = (
        "_groups",
        "_leaves_out",
        "detached",
        "dialects",
        "remote",
        "silent",
        "slots",
        "slots_in_all",
        "states",
        "states_of",
        "stuck",
        "suspects",
    )

    def __init__(self, leaves_out: str = "") -> None:
        """`leaves_out`: dialect of the workers that other brokers of the cluster count."""
        self._leaves_out = leaves_out
        self._groups: dict[Group, int] = {}
        self.remote: dict[Service, int] = {}  # workers that are left out
        self.states: dict[str, int] = {}
        self.states_of: dict[Service, dict[str, int]] = {}
        self.slots: dict[Service, int] = {}  # a worker of several services counts for each
        self.slots_in_all = 0
        self.dialects: dict[Service, dict[str, None]] = {}
        self.silent: list[Worker] = []  # they hold jobs and have used up most of their lease
        self.detached: list[Worker] = []  # they hold jobs and are not reachable
        self.stuck: list[Worker] = []  # for over a minute
        self.suspects = {"silent": 0, "detached": 0, "stuck": 0}

    def count(self, workers: Iterable[Worker], now: float) -> Iterator[None]:
        """Count all workers. Yields now and then, so that the caller can pause."""
        groups = self._groups
        for number, worker in enumerate(workers):
            state = worker.state
            # The hash of a state is slow, because that of an enum is written in Python; the hash of its value is not.
            group = (worker.recipient, worker.services, state._value_, worker.profile.capacity)
            groups[group] = groups.get(group, 0) + 1
            if worker.running:
                self._look_at(worker, now)
            elif state is STUCK:
                self._look_at_stuck(worker, now)
            if number % AT_ONCE == AT_ONCE - 1:
                yield
        self._sum_up()

    def _look_at(self, worker: Worker, now: float) -> None:
        if worker.state is DETACHED and worker.away_since != inf:
            self._suspect("detached", self.detached, worker)
        elif now - worker.seen > SILENT_SHARE * lease_of(worker):
            self._suspect("silent", self.silent, worker)

    def _look_at_stuck(self, worker: Worker, now: float) -> None:
        if now - stuck_since(worker) > STUCK_SECONDS:
            self._suspect("stuck", self.stuck, worker)

    def _suspect(self, kind: str, found: list[Worker], worker: Worker) -> None:
        self.suspects[kind] += 1
        if len(found) < MOST_SUSPECTS:
            found.append(worker)

    def _sum_up(self) -> None:
        for (recipient, services, name, capacity), count in self._groups.items():
            dialect = dialect_of(recipient)
            if dialect == self._leaves_out:
                for service in services:
                    self.remote[service] = self.remote.get(service, 0) + count
                continue
            self.states[name] = self.states.get(name, 0) + count
            self.slots_in_all += capacity * count
            for service in services:
                self.slots[service] = self.slots.get(service, 0) + capacity * count
                self.dialects.setdefault(service, {})[dialect] = None
                states = self.states_of.setdefault(service, {})
                states[name] = states.get(name, 0) + count
        self._groups = {}
