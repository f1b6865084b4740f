"""Exchanges with workers: the controller dials a worker's socket, sends one message, and reads the response.

The connection is not closed before the response has come: real workers die if they write to a closed connection. The
meaning of a response depends on the purpose of the exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.carriers.carrier import Carrier, Frame, Message
from dragoman.carriers.length_prefix import OVER_LIMIT
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt
from dragoman.core.recording import from_worker, to_worker
from dragoman.core.states import STARTING
from dragoman.dialects.controller.codec import read_response, write_control
from dragoman.dialects.controller.messages import Response, WorkerError
from dragoman.dialects.controller.options import ListenerOptions
from dragoman.dialects.controller.records import Exchange, IdleConnection, Purpose, RemoteWorker
from dragoman.dialects.controller.remote_workers import PROBE_TIMEOUT, START_EVERY, Dialler, RemoteWorkers
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection

CONTROL: Final = "control"
FIRST_RETRY_DELAY: Final = 0.1
LONGEST_RETRY_DELAY: Final = 30.0
NO_FETCHES: Final = 3
MAX_DETAIL: Final = 4_000  # bytes of a worker's error text
ABANDONED_FOR: Final = 3_600.0  # seconds in which the response of an abandoned exchange may still come

# Decides if a worker's socket may be dialled: an address to dial, or None and a reason.
Reach = Callable[[int], tuple[object | None, str]]


class Exchanges(Dialler):
    """The exchanges with the workers of one listener."""

    def __init__(
        self,
        session: BrokerSide,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        workers: RemoteWorkers,
        reach: Reach,
        carrier: Callable[[], Carrier],
    ) -> None:
        """`session` receives the events of the dialled connections."""
        self._session = session
        self._broker = broker
        self._io = io
        self._options = options
        self._workers = workers
        self.reach = reach
        self._carrier = carrier
        self.deadlines: Deadlines[Exchange] = Deadlines()
        self.idle_connections: Deadlines[IdleConnection] = Deadlines()

    # ---------------------------------------------------------------- connections

    def dial(self, remote: RemoteWorker, purpose: Purpose, timeout: float, now: float) -> None:
        exchange = Exchange(remote, purpose, timeout, now)
        exchange.about = remote.exchange
        if purpose is Purpose.TASK or purpose is Purpose.FETCH:
            remote.exchange = exchange
            exchange.attempt = remote.attempt if remote.is_set else None
        elif purpose is not Purpose.LEAVE and purpose is not Purpose.ENDED:
            remote.probe = exchange
        place, problem = self.reach(remote.id)
        if place is None:
            if purpose is not Purpose.START:
                self._io.remark("dial rejected", level="warning", worker=remote.worker.name, reason=problem)
            self.broken(exchange, now, is_seen=False)
            return
        exchange.carrier = self._carrier()
        exchange.peer = self._io.dial(self._session, place, CONTROL, exchange.carrier, remote.worker.owner)
        exchange.peer.remote = exchange
        if timeout < inf:
            self.deadlines.arm(exchange, now + timeout)

    def send_control(self, exchange: Exchange, now: float) -> None:
        """Send the message of a new connection. It always gets one: the worker is waiting for it."""
        remote, peer = exchange.remote, exchange.peer
        assert peer is not None
        if peer.address and peer.address != remote.uid:
            self._io.remark("worker rejected", level="warning", worker=remote.worker.name, uid=peer.address)
            self._io.close(peer, "another user listens on this socket")
            return
        if remote.stop_watch is None and remote.is_served_by(peer.process):
            remote.stop_watch = self._io.when_process_ends(peer, lambda now: self._workers.process_ended(remote, now))
        exchange.is_sent = True
        attempt = exchange.attempt
        if exchange.purpose is Purpose.TASK and (attempt is None or attempt.job.attempt is not attempt):
            self._send_status_request(exchange, now)
        if exchange.purpose is Purpose.TASK and attempt is not None:
            payload = attempt.job.payload
            head = write_control(exchange.kind, remote.edition, task_id=exchange.task, extra_size=len(payload))
            attempt.begin(now)
            if attempt.job.conversation is not None:
                to_worker(attempt, "SET_TASK", len(head) + len(payload), now)
            self._io.send(peer, [head, payload], exchange)
        else:
            if attempt is not None:
                to_worker(attempt, exchange.kind.value, 0, now)
            self._io.send(peer, [write_control(exchange.kind, remote.edition)], exchange)

    def _send_status_request(self, exchange: Exchange, now: float) -> None:
        """Send GET_STATUS instead of the job that was cancelled while its worker was being dialled."""
        remote = exchange.remote
        exchange.purpose = Purpose.START
        if not exchange.is_abandoned:
            if remote.previous == exchange.task:
                remote.previous = exchange.previous
            exchange.wait(PROBE_TIMEOUT, now)
            self.deadlines.arm(exchange, now + PROBE_TIMEOUT)

    def _await_close(self, peer: Connection, now: float) -> None:
        """Leave the closing to the worker, whose response is complete. A worker that writes a response in pieces, the
        last of them empty, would die if the connection were closed earlier."""
        peer.remote = IdleConnection(peer)
        self.idle_connections.arm(peer.remote, now + self._options.control_timeout)

    def _ended(self, exchange: Exchange, now: float) -> None:
        remote = exchange.remote
        remote.last_exchange = now
        if remote.exchange is exchange:
            remote.exchange = None
        if remote.probe is exchange:
            remote.probe = None

    def abandon(self, exchange: Exchange, now: float) -> None:
        """Ignore the response, but read it if it still comes."""
        exchange.is_abandoned = True
        exchange.wait(ABANDONED_FOR, now)
        self.deadlines.arm(exchange, now + ABANDONED_FOR)

    def lost(self, exchange: Exchange, now: float, *, is_unsent: bool) -> None:
        """Handle the end of a connection before the response was complete."""
        self.deadlines.disarm(exchange)
        self.broken(exchange, now, is_seen=exchange.is_sent and not is_unsent)

    def tick(self, now: float) -> None:
        for exchange in self.deadlines.due(now):
            due = (
                max(exchange.since, self._broker.resumed_at) + exchange.timeout
            )  # a pause of the broker does not count (D13)
            if due > now:
                self.deadlines.arm(exchange, due)
            else:
                self._timed_out(exchange, now)

    # ---------------------------------------------------------------- responses

    def receive_worker(self, peer: Connection, exchange: Exchange, message: Message, now: float) -> None:
        remote = exchange.remote
        exchange.peer = None
        self.deadlines.disarm(exchange)
        self._await_close(peer, now)
        self._ended(exchange, now)
        if exchange.is_abandoned or exchange.purpose is Purpose.LEAVE or not self._workers.is_known(remote):
            return
        try:
            response = read_response(message[0], remote.edition)
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)
            self._workers.drop(remote, f"its worker's response was {problem.reason}", now)
            return
        attempt = exchange.attempt
        if attempt is not None and attempt.job.conversation is not None:
            name = response.error.value if response.error is not None else f"error {response.number}"
            can_be_late = exchange.purpose is Purpose.FETCH and response.error is WorkerError.OK
            from_worker(attempt, name, len(message[1]), now, can_be_late=can_be_late)
        if response.error is None or response.error is WorkerError.FAILED:  # R97
            detail = _text(message[1]) or f"error {response.number}"
            self._workers.drop(remote, f"its worker answered {exchange.kind.value} with FAILED: {detail}", now)
        elif exchange.purpose is Purpose.TASK:
            self._task_response(remote, exchange, response, message[1], now)
        elif exchange.purpose is Purpose.FETCH:
            self._fetched(remote, exchange.attempt, response, message[1], now)
        else:
            self._status(remote, exchange, response, now)
        if self._workers.is_known(remote):
            self._workers.next_exchange(remote, now)

    def _task_response(
        self, remote: RemoteWorker, exchange: Exchange, response: Response, extra: Frame, now: float
    ) -> None:
        attempt = exchange.attempt
        assert attempt is not None
        self._workers.renew(remote, now)
        leftover, remote.has_leftover = remote.has_leftover, False
        if response.error is WorkerError.OK:
            remote.is_taken = remote.attempt is attempt
        elif response.error is WorkerError.NO_FETCH:  # undefined here, and without meaning for the job
            self._workers.drop(remote, "its worker answered SET_TASK with NO_FETCH", now)
        elif response.error is WorkerError.BUSY:  # R98
            if remote.attempt is attempt:
                self._workers.release(remote)
            remote.previous = exchange.previous  # a declined task was never its own
            remote.wants_fetch = remote.wants_fetch or leftover
            remote.retry_delay = min(LONGEST_RETRY_DELAY, 2 * remote.retry_delay or FIRST_RETRY_DELAY)
            remote.retry_at = now + remote.retry_delay
            self._workers.alarms.arm(remote, remote.retry_at)
            self._broker.attempts.refuse(attempt, now)
        elif response.error is WorkerError.TASK_FAILED and remote.attempt is attempt:
            self._task_failed(remote, attempt, extra, now)

    def _fetched(
        self, remote: RemoteWorker, attempt: Attempt | None, response: Response, extra: Frame, now: float
    ) -> None:
        self._workers.renew(remote, now)
        if attempt is not remote.attempt:
            attempt = None  # it has ended: its result is not needed
        if response.error is WorkerError.OK:
            if response.task_id not in (0, remote.task, remote.previous):  # R95
                self._broker.counters.late_results += 1
                self._workers.drop(
                    remote, f"its worker sent the result of task {response.task_id}, which is not its own", now
                )
                return
            self._workers.end_retry_delay(remote, now, is_free=True)  # R98
            if attempt is None:
                self._broker.counters.late_results += 1
                return
            self._workers.release(remote)
            if not self._broker.succeed(attempt, extra, now):
                self._io.remark("late result", worker=remote.worker.name, job=attempt.job.id.hex())
        elif response.error is WorkerError.TASK_FAILED:
            self._workers.end_retry_delay(remote, now, is_free=True)
            if attempt is not None:
                self._task_failed(remote, attempt, extra, now)
        elif attempt is not None:  # NO_FETCH, or an undefined response
            self._nothing_to_fetch(remote, now)

    def _nothing_to_fetch(self, remote: RemoteWorker, now: float) -> None:
        """Count NO_FETCH; several in a row mean that the task is lost (R93, R94)."""
        remote.no_fetches += 1
        if remote.fetches_again:
            self._workers.lose_task(remote, "its worker has no result any more", now)
        elif remote.no_fetches >= NO_FETCHES and remote.probe is None:
            self.dial(remote, Purpose.MISSING, PROBE_TIMEOUT, now)

    def _task_failed(self, remote: RemoteWorker, attempt: Attempt, extra: Frame, now: float) -> None:
        """Fail the attempt; another worker may get the job, and this one is idle (R96)."""
        self._workers.release(remote)
        self._broker.fail(attempt, _text(extra) or "its worker answered TASK_FAILED", now)

    def _status(self, remote: RemoteWorker, exchange: Exchange, response: Response, now: float) -> None:
        """Handle a response to GET_STATUS, which renews the lease and names the worker's task."""
        purpose, stuck = exchange.purpose, exchange.about
        self._workers.renew(remote, now)
        if remote.worker.state is STARTING:
            self._workers.started(remote, now)
        task = response.task_id
        if task == 0 and remote.retry_delay and purpose is not Purpose.START:
            self._workers.end_retry_delay(remote, now, is_free=True)
        if purpose is Purpose.MISMATCH and task not in (0, remote.task, remote.previous):
            self._workers.restart(remote, f"its worker named task {task} and not {remote.task}", now)  # R91
        elif purpose is Purpose.MISSING and remote.attempt is not None and task != remote.task:
            if remote.exchange is None and not remote.wants_fetch:  # otherwise it has sent FETCH_ME again meanwhile
                self._workers.lose_task(remote, "its worker has neither the task nor a result", now)
        elif purpose is Purpose.STUCK and stuck is not None and remote.exchange is stuck:
            if task != stuck.task:
                self._workers.drop(remote, "its worker hung during an exchange", now)  # R99
            else:  # it runs: wait, and check again, for it may lose the task later
                stuck.wait(self._options.control_timeout, now)
                self.deadlines.arm(stuck, now + self._options.control_timeout)

    # ---------------------------------------------------------------- failed exchanges

    def broken(self, exchange: Exchange, now: float, *, is_seen: bool) -> None:
        """Handle an exchange whose connection failed or ended before the response."""
        exchange.peer = None
        self._ended(exchange, now)
        remote, purpose = exchange.remote, exchange.purpose
        if exchange.is_abandoned or purpose is Purpose.LEAVE or not self._workers.is_known(remote):
            return
        failure = exchange.carrier.failure if exchange.carrier is not None else None
        if failure is not None:  # R100
            attempt = exchange.attempt
            is_result = purpose is Purpose.FETCH and attempt is not None and attempt is remote.attempt
            if is_result and failure.reason == OVER_LIMIT:
                assert attempt is not None
                self._workers.release(remote)  # the job has a result, and only that is wrong
                self._broker.fail(attempt, f"its result of {failure.detail}", now)
            self._workers.drop(
                remote, f"its worker's response to {exchange.kind.value} was malformed: {failure.reason}", now
            )
        elif purpose is Purpose.START:
            self._workers.alarms.arm(remote, now + START_EVERY)  # R87
            self._workers.next_exchange(remote, now)
        elif purpose is Purpose.LEASE:
            if self._workers.lease_end(remote) <= now:  # otherwise it has sent something meanwhile
                reason = f"its worker was silent for {remote.next_pulse:g} s and cannot be reached"
                self._workers.drop(remote, reason, now)
        elif purpose is Purpose.ENDED:
            self._workers.drop(remote, "its worker's process has ended", now)
        elif purpose is Purpose.FETCH and is_seen and not remote.fetches_again:  # R94
            remote.fetches_again = True
            remote.wants_fetch = True
            self._workers.next_exchange(remote, now)
        elif purpose is Purpose.FETCH and is_seen and remote.attempt is not None:
            self._workers.lose_task(remote, "its worker disconnected twice during its result", now)
        elif purpose is Purpose.TASK and not is_seen:
            unseen = (exchange.attempt,) if exchange.attempt is not None else ()
            self._workers.drop(remote, "its worker could not be reached", now, unseen)
        else:
            self._workers.drop(remote, f"its worker disconnected during {exchange.kind.value}", now)

    def _timed_out(self, exchange: Exchange, now: float) -> None:
        """Handle an exchange without a response in time (R99)."""
        remote = exchange.remote
        if exchange.is_abandoned:
            if exchange.peer is not None:
                self._io.close(exchange.peer, "no response came")
            return
        if exchange.purpose is Purpose.TASK or exchange.purpose is Purpose.FETCH:
            if remote.probe is None:
                self.dial(remote, Purpose.STUCK, PROBE_TIMEOUT, now)
            else:
                exchange.wait(PROBE_TIMEOUT, now)
                self.deadlines.arm(exchange, now + PROBE_TIMEOUT)
            return
        self.abandon(exchange, now)
        self._ended(exchange, now)
        if not self._workers.is_known(remote):
            return
        if exchange.purpose is Purpose.START:
            self._workers.alarms.arm(remote, now + START_EVERY)
            self._workers.next_exchange(remote, now)
        elif exchange.purpose is Purpose.LEASE and self._workers.lease_end(remote) > now:
            pass  # it has sent something meanwhile
        elif exchange.purpose is not Purpose.LEAVE:
            self._workers.drop(remote, "its worker did not answer GET_STATUS", now)


def _text(extra: Frame) -> str:
    """Return a worker's error text, for the caller."""
    return bytes(extra[:MAX_DETAIL]).decode("utf-8", "replace").strip()
