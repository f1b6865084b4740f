"""The broker's side of Worker-Controller, the controller: workers send pulses, and it dials their sockets.

Each pulse has a connection of its own, and so has each exchange with a worker. They may overtake one another: a worker
may even wait for the reply to its FETCH_ME before it replies to the SET_TASK in which it computed. So nothing here
waits: pulses get their reply at once, and of SET_TASK and FETCH one is in progress at a time, with GET_STATUS beside it
where necessary. Pulses are handled here; `remote_workers.py` has the workers and `exchanges.py` the exchanges. Rules
R81 to R100.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dragoman.carriers.carrier import Carrier, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, Effect, RemoveWorker, SendJob
from dragoman.core.recording import from_worker, record_heartbeat
from dragoman.core.states import STARTING
from dragoman.dialects.controller.codec import edition_of_pulse, pulse_of, read_pulse, write_pulse_response
from dragoman.dialects.controller.editions import EDITIONS, SEED, Edition
from dragoman.dialects.controller.exchanges import CONTROL, NO_FETCHES, Exchanges, Reach
from dragoman.dialects.controller.messages import ControllerError, Pulse, PulseKind
from dragoman.dialects.controller.options import ListenerOptions, OnMismatch
from dragoman.dialects.controller.records import Exchange, IdleConnection, Purpose, RemoteWorker
from dragoman.dialects.controller.remote_workers import PROBE_TIMEOUT, RemoteWorkers
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection

PULSES: Final = "pulses"
IDLE_PULSES: Final = 2
REGISTERS_A_SECOND: Final = 50


class ControllerBrokerSide(BrokerSide):
    dialect = "controller"

    def __init__(
        self,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        uids: Sequence[str],
        first_id: int,
        reach: Reach,
        carrier: Callable[[], Carrier],
        last_task: int = 0,
    ) -> None:
        """`uids`: users that may connect, as in `Connection.address`. `first_id`: ids from there on are unused.
        `last_task`: numbers of tasks up to this one may be used."""
        self._broker = broker
        self._io = io
        self._options = options
        self._uids = frozenset(uids)
        self._fixed = EDITIONS[options.edition.value] if options.edition is not None else None
        self._workers = RemoteWorkers(self, broker, io, options, first_id, last_task)
        self._exchanges = Exchanges(self, broker, io, options, self._workers, reach, carrier)
        self._workers.exchanges = self._exchanges
        self._waiting: deque[tuple[Connection, Pulse, Edition]] = deque()  # REGISTERs beyond those of this second (R84)
        self._second = -1
        self._registered = 0

    # ---------------------------------------------------------------- calls from the runner

    def opened(self, peer: Connection, now: float) -> None:
        if peer.socket_name == CONTROL:
            self._exchanges.send_control(peer.remote, now)
        elif peer.address not in self._uids:  # before reading: an empty message *is* REGISTER (R84)
            self._io.log_limited("connection rejected", peer=peer, reason=f"{peer.address} is not in uid_allow")
            self._io.close(peer, "not in uid_allow")
        else:
            peer.remote = IdleConnection(peer)
            self._exchanges.idle_connections.arm(peer.remote, now + self._options.control_timeout)

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)  # the carrier ends the connection instead
        if peer.socket_name == CONTROL:
            self._exchanges.receive_worker(peer, peer.remote, message, now)
            return
        self._exchanges.idle_connections.disarm(peer.remote)
        try:
            raw = read_pulse(message[0])
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)
            self._reply(peer, ControllerError.FAILED, self._fixed or SEED)
            return
        remote = self._workers.by_id.get(raw.worker_id)
        edition = edition_of_pulse(raw.type, raw.worker_id, remote.edition if remote else None, self._fixed)
        self._receive_pulse(peer, pulse_of(raw, edition), edition, now)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._workers.set_task(effect.attempt, now)
        elif type(effect) is CancelAttempt:
            self._workers.recall(effect.attempt, now)
        elif type(effect) is RemoveWorker:
            self._workers.remove(effect, now)
        # This dialect has no callers, so there are no outcomes to send.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        remote = peer.remote
        if isinstance(remote, Exchange) and remote.peer is peer:
            self._exchanges.lost(remote, now, is_unsent=remote in unsent)
        elif isinstance(remote, IdleConnection):
            remote.is_over = True
            self._exchanges.idle_connections.disarm(remote)

    def tick(self, now: float) -> float:
        workers, exchanges = self._workers, self._exchanges
        exchanges.tick(now)
        workers.tick(now)
        for idle in exchanges.idle_connections.due(now):
            is_answered = idle.peer.socket_name == CONTROL
            reason = "answered" if is_answered else f"no pulse in {self._options.control_timeout:g} s"
            self._io.close(idle.peer, reason)
        self._register_waiting(now)
        due = min(workers.alarms.next(), exchanges.deadlines.next(), exchanges.idle_connections.next())
        return min(due, float(int(now) + 1)) if self._waiting else due

    # ---------------------------------------------------------------- pulses

    def _receive_pulse(self, peer: Connection, pulse: Pulse, edition: Edition, now: float) -> None:
        if pulse.kind is None:
            self._io.bad_message(peer, "unknown type", f"a pulse of type {pulse.number}")
            self._reply(peer, ControllerError.UNKNOWN_TYPE, edition)
        elif pulse.kind is PulseKind.REGISTER:
            self._waiting.append((peer, pulse, edition))
            self._register_waiting(now)
        else:
            self._receive_known(peer, pulse, edition, now)

    def _receive_known(self, peer: Connection, pulse: Pulse, edition: Edition, now: float) -> None:
        remote = self._workers.by_id.get(pulse.worker_id)
        if remote is None or remote.uid != peer.address:  # R88, R89
            if self._workers.was_dropped(pulse.worker_id, now):
                self._broker.counters.false_expiries += 1
            self._reply(peer, ControllerError.UNKNOWN_ID, edition)
            return
        self._reply(peer, ControllerError.OK, edition)  # a worker waits for it before it does anything else
        if pulse.kind is PulseKind.SHUTDOWN:
            self._workers.drop(remote, "its worker sent SHUTDOWN", now)
            return
        remote.next_pulse = self._workers.lease(pulse.next_pulse)
        remote.check_process(peer.process)
        self._workers.renew(remote, now)
        if remote.worker.state is STARTING:
            self._workers.started(remote, now)
        attempt = remote.attempt
        if attempt is not None and pulse.kind is PulseKind.FETCH_ME:
            from_worker(attempt, "FETCH_ME", 0, now, can_be_late=False)
        else:
            record_heartbeat(remote.worker, "OK", now)
        is_news = peer.since > remote.last_exchange and remote.exchange is None
        if pulse.kind is PulseKind.FETCH_ME and self._is_about_current(remote, pulse.task_id):
            remote.wants_fetch = True
            self._workers.next_exchange(remote, now)
        elif is_news:
            self._compare_task(remote, pulse.task_id, now)

    def _is_about_current(self, remote: RemoteWorker, task: int) -> bool:
        """Tell if a FETCH_ME is about the current task (R92). One about an earlier task must not end the newer one."""
        is_old = remote.is_set and task != 0 and task == remote.previous
        remote.has_leftover = remote.has_leftover or (is_old and remote.exchange is not None)
        return not is_old

    def _compare_task(self, remote: RemoteWorker, task: int, now: float) -> None:
        """Compare the task in a pulse. Idle workers keep naming their last one, so only a foreign task is checked."""
        is_mine = task == remote.task
        if self._options.restart_on_mismatch is OnMismatch.ALWAYS and not is_mine:
            self._workers.restart(remote, f"its worker named task {task} and not {remote.task}", now)
            return
        if task == 0 and remote.retry_delay:
            self._workers.end_retry_delay(remote, now, is_free=True)  # R98
        if is_mine or task in (0, remote.previous):
            is_wrong = remote.is_taken and not is_mine
            remote.idle_pulses = remote.idle_pulses + 1 if is_wrong else 0
            if remote.idle_pulses >= IDLE_PULSES:
                remote.no_fetches = NO_FETCHES - 1  # last chance: without a result now, the task is lost
                remote.fetches_again = True
                remote.wants_fetch = True
                self._workers.next_exchange(remote, now)
        elif remote.probe is None:
            self._exchanges.dial(remote, Purpose.MISMATCH, PROBE_TIMEOUT, now)

    def _register_waiting(self, now: float) -> None:
        """Register waiting workers, up to a limit per second (R84)."""
        if int(now) != self._second:
            self._second, self._registered = int(now), 0
        while self._waiting and self._registered < REGISTERS_A_SECOND:
            peer, pulse, edition = self._waiting.popleft()
            if peer.remote is not None and not peer.remote.is_over:  # None: the connection has ended
                self._registered += 1
                self._register(peer, pulse, edition, now)

    def _register(self, peer: Connection, pulse: Pulse, edition: Edition, now: float) -> None:
        remote = self._workers.register(peer, pulse, edition, now)
        if remote is None:
            self._reply(peer, ControllerError.FAILED, edition)
        else:
            self._reply(peer, ControllerError.OK, edition, remote.id)

    def _reply(self, peer: Connection, error: ControllerError, edition: Edition, worker_id: int = 0) -> None:
        self._io.send(peer, [write_pulse_response(error, edition, worker_id=worker_id)])
        self._io.close(peer, "answered")
