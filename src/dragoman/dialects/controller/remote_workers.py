"""Registered workers: their ids, leases and tasks.

A worker joins with REGISTER and gets jobs once its socket is open. It is dropped when it sends SHUTDOWN, is silent for
too long, or violates the protocol; then its job follows D8 (R97).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from dragoman.core.admission import join_refusal
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import RemoveWorker
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt
from dragoman.core.options import WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.states import DRAINING, STARTING
from dragoman.dialects.controller.editions import Edition
from dragoman.dialects.controller.messages import Pulse
from dragoman.dialects.controller.options import ListenerOptions
from dragoman.dialects.controller.records import Exchange, Purpose, RemoteWorker
from dragoman.dialects.interface import BrokerIO, Connection

ATTEMPTS: Final = 3  # the document: the task is given to another worker
START_EVERY: Final = 0.05
PROBE_TIMEOUT: Final = 1.0
WORKERS_A_UID: Final = 10_000
DROPPED_KEPT: Final = 10_000
DROPPED_FOR: Final = 600.0


class Dialler:
    """Makes exchanges with workers."""

    def dial(self, remote: RemoteWorker, purpose: Purpose, timeout: float, now: float) -> None:
        raise NotImplementedError

    def abandon(self, exchange: Exchange, now: float) -> None:
        """Ignore the response, but read it if it still comes."""
        raise NotImplementedError


class RemoteWorkers:
    """The registered workers, by id."""

    exchanges: Dialler  # set once, by the broker side

    def __init__(
        self,
        recipient: Recipient,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        first_id: int,
        last_task: int,
    ) -> None:
        """`recipient` receives the effects for these workers. `first_id`: ids from there on are unused. `last_task`:
        numbers of tasks up to this one may be used."""
        self._recipient = recipient
        self._broker = broker
        self._io = io
        self._options = options
        self._profile = WorkerProfile(may_decline=True, stuck_timeout=options.stuck_timeout, attempts=ATTEMPTS)
        self.by_id: dict[int, RemoteWorker] = {}
        self.dropped: dict[int, float] = {}  # ids of dropped workers, and the time (R88)
        self.count_of: dict[str, int] = {}  # by uid
        self.alarms: Deadlines[RemoteWorker] = Deadlines()
        self._first_id = first_id - first_id % 2  # even: see `_new_id`
        self._given_ids = 0
        self._last_task = last_task

    # ---------------------------------------------------------------- registration

    def is_known(self, remote: RemoteWorker) -> bool:
        return self.by_id.get(remote.id) is remote

    def was_dropped(self, id: int, now: float) -> bool:
        """Tell if a worker of this id was dropped recently."""
        return self.dropped.get(id, -inf) + DROPPED_FOR >= now

    def register(self, peer: Connection, pulse: Pulse, edition: Edition, now: float) -> RemoteWorker | None:
        """Register a new worker. Returns None if it is rejected."""
        uid = peer.address
        if self.count_of.get(uid, 0) >= WORKERS_A_UID:
            self._io.log_limited("worker rejected", peer=peer, reason=f"{WORKERS_A_UID} workers of {uid}")
            return None
        next_pulse = self.lease(pulse.next_pulse)
        remote = RemoteWorker(self._new_id(edition), edition, peer, next_pulse, now + self._options.socket_wait)
        name = f"worker {remote.id}"
        if not self._join(remote, name, peer.owner, peer.label, now):
            return None
        self.by_id[remote.id] = remote
        self.count_of[uid] = self.count_of.get(uid, 0) + 1
        self.alarms.arm(remote, now + START_EVERY)
        return remote

    def _join(self, remote: RemoteWorker, name: str, owner: Owner, origin: str, now: float) -> bool:
        offered = (self._options.service,)
        worker = self._broker.join(self._recipient, remote, name, offered, self._profile, now, owner, origin=origin)
        if worker is None:
            _, reason = join_refusal(owner.principal, offered, self._broker.policy)
            self._io.log_limited("worker rejected", worker=name, reason=reason)
            return False
        remote.worker = worker
        return True

    def _new_id(self, edition: Edition) -> int:
        """Return a new id: odd for one edition and even for the other, so that an id always shows its edition (R85)."""
        self._given_ids += 1
        return self._first_id + 2 * self._given_ids - edition.parity

    def lease(self, next_pulse: int) -> float:
        """Return the lease for an announced next pulse (R90)."""
        return min(next_pulse or self._options.default_pulse, self._options.max_pulse)

    # ---------------------------------------------------------------- leases

    def tick(self, now: float) -> None:
        for remote in self.alarms.due(now):
            self._check(remote, now)

    def renew(self, remote: RemoteWorker, now: float) -> None:
        self._broker.seen(remote.worker, now)
        self.alarms.arm(remote, self.lease_end(remote))

    def lease_end(self, remote: RemoteWorker) -> float:
        return remote.worker.seen + remote.next_pulse + self._options.pulse_grace

    def started(self, remote: RemoteWorker, now: float) -> None:
        """Make the worker idle: it is registered, and its socket is open."""
        self._broker.idle(remote.worker, now)

    def _check(self, remote: RemoteWorker, now: float) -> None:
        """Do what is due: the next try to reach its socket, the end of its retry delay, or the end of its lease."""
        if remote.worker.state is STARTING and now < remote.start_until and remote.probe is None:
            self.exchanges.dial(remote, Purpose.START, PROBE_TIMEOUT, now)
        if remote.retry_at <= now:
            self.end_retry_delay(remote, now)
        lease_end = self.lease_end(remote)
        if lease_end <= now:
            lease_end = self._end_lease(remote, now)
        if self.is_known(remote):
            self.alarms.arm(remote, min(lease_end, remote.retry_at))

    def _end_lease(self, remote: RemoteWorker, now: float) -> float:
        """Check with GET_STATUS before a worker counts as dead, unless an exchange is in progress (R90)."""
        if remote.probe is None and remote.exchange is None:
            self.exchanges.dial(remote, Purpose.LEASE, PROBE_TIMEOUT, now)
        elif remote.exchange is not None and remote.exchange.purpose is Purpose.TASK and remote.probe is None:
            self.drop(remote, f"its worker was silent for {remote.next_pulse:g} s", now)
        return now + 2 * PROBE_TIMEOUT

    def process_ended(self, remote: RemoteWorker, now: float) -> None:
        """Check the worker at once, not at the end of its lease (R90). Another process may have its socket."""
        if self.is_known(remote):
            self.exchanges.dial(remote, Purpose.ENDED, PROBE_TIMEOUT, now)

    def end_retry_delay(self, remote: RemoteWorker, now: float, *, is_free: bool = False) -> None:
        """End the time without new tasks, because it is over or the worker has reported that it is free."""
        remote.retry_at = inf
        if is_free:
            remote.retry_delay = 0.0
        self._broker.idle(remote.worker, now)

    def drop(self, remote: RemoteWorker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        """Remove a worker; its job follows D8, once (R97). Later responses are read and ignored."""
        if not self.is_known(remote):
            return
        unseen = unseen or self._unseen(remote)
        self._forget(remote, now)
        self._broker.leave(remote.worker, now, reason, unseen)
        remote.worker.forget_remote()

    def _unseen(self, remote: RemoteWorker) -> Sequence[Attempt]:
        """Return its attempt, if SET_TASK has not been sent (R8)."""
        attempt, exchange = remote.attempt, remote.exchange
        if attempt is None or (remote.is_set and (exchange is None or exchange.is_sent)):
            return ()
        return (attempt,)

    def _forget(self, remote: RemoteWorker, now: float) -> None:
        del self.by_id[remote.id]
        self.count_of[remote.uid] -= 1
        self.alarms.disarm(remote)
        remote.end_watch()
        remote.is_released = True
        for exchange in (remote.exchange, remote.probe):
            if exchange is not None:
                self.exchanges.abandon(exchange, now)
        remote.exchange = remote.probe = None
        self.dropped[remote.id] = now
        while self.dropped and (len(self.dropped) > DROPPED_KEPT or self._oldest_drop() + DROPPED_FOR < now):
            del self.dropped[next(iter(self.dropped))]

    def _oldest_drop(self) -> float:
        return next(iter(self.dropped.values()))

    def restart(self, remote: RemoteWorker, reason: str, now: float) -> None:
        """Send RESTART, and remove the worker whatever its response is."""
        self.exchanges.dial(remote, Purpose.LEAVE, self._options.control_timeout, now)
        self.drop(remote, reason, now)

    def remove(self, effect: RemoveWorker, now: float) -> None:
        remote = cast("RemoteWorker | None", effect.worker.remote)
        if remote is None or not self.is_known(remote) or remote.worker is not effect.worker:
            return
        if effect.farewell.is_final:
            self.exchanges.dial(remote, Purpose.LEAVE, self._options.control_timeout, now)
        self._forget(remote, now)
        effect.worker.forget_remote()

    # ---------------------------------------------------------------- tasks

    def set_task(self, attempt: Attempt, now: float) -> None:
        remote = cast(RemoteWorker, attempt.worker.remote)
        remote.is_released = False
        remote.is_set = remote.is_taken = remote.fetches_again = remote.has_leftover = False
        remote.no_fetches = remote.idle_pulses = 0
        self.next_exchange(remote, now)

    def next_exchange(self, remote: RemoteWorker, now: float) -> None:
        """Start the next exchange: FETCH before SET_TASK, and one at a time."""
        if remote.exchange is not None or not self.is_known(remote):
            return
        attempt = remote.attempt
        if remote.wants_fetch:
            remote.wants_fetch = False
            self.exchanges.dial(remote, Purpose.FETCH, self._options.control_timeout, now)
        elif attempt is not None and not remote.is_set:
            remote.is_set = True
            self._last_task += 1
            remote.task = self._last_task
            self.exchanges.dial(remote, Purpose.TASK, attempt.job.options.job_timeout, now)
        elif attempt is None and remote.worker.stuck and remote.retry_at == inf:
            self._broker.idle(remote.worker, now)  # it was cancelled during an exchange

    def recall(self, attempt: Attempt, now: float) -> None:
        """Release the worker from an ended attempt. It may get another job as soon as its exchange has ended: with BUSY
        it would report that it still runs the old one."""
        remote = cast("RemoteWorker | None", attempt.worker.remote)
        if remote is not None and remote.attempt is attempt:
            self.release(remote)
            self.next_exchange(remote, now)

    def release(self, remote: RemoteWorker) -> None:
        """Record that the worker has no task of this broker."""
        remote.is_released = True
        remote.is_set = remote.is_taken = False
        remote.previous, remote.task = remote.task or remote.previous, 0
        remote.no_fetches = remote.idle_pulses = 0
        remote.fetches_again = False

    def lose_task(self, remote: RemoteWorker, reason: str, now: float) -> None:
        """End an attempt whose result never comes. For the job this is a lost worker (R9); the worker joins again."""
        self._io.remark("attempt lost", level="warning", worker=remote.worker.name, reason=reason)
        if remote.worker.state is DRAINING:
            self.restart(remote, reason, now)
            return
        self.release(remote)
        former = remote.worker
        self._broker.leave(former, now, reason)
        if self._join(remote, former.name, former.owner, former.origin or "", now):
            self._broker.idle(remote.worker, now)
        else:
            self._forget(remote, now)  # its principal has lost the right since
