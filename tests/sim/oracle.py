"""Rules that every run must keep, checked from outside. The letters are those of docs/rules.md.

The oracle records what callers submit and receive, what workers run, and which effects the broker side executes and
when (`WatchedSession`). `invariants.check` checks the core; see setup.py.

I7   a reply was computed for the payload it answers: the result is a keyed hash of it that only the worker can know.
I4   never more replies than submits on one connection; after the heal phase as many, unless it broke.
I8   a job is run at most as often as it has attempts.
I13  after the heal phase every worker is idle again, and does the next job it gets.
I14  after the heal phase nothing is queued, delayed or running.
I17  every message of a caller is a job accepted or refused; every job accepted has ended or is present.
D2   an attempt that has ended is not sent.
D8   an attempt that was never sent is not used up; one that cannot have been seen is not run.
R6   no job times out before its time.
R34  a READY that crossed the job on the wire does not end the attempt.
D13  a pause of the broker expires no worker.

**Workers in edition plain.** There a result is tied to its job by nothing but order, so a worker that sends a result
which is not for the job it holds cannot be distinguished from a correct one, and the caller of that job gets a wrong
result. No exception is made in I7 for that. Instead such workers (R38 and R39: threaded ones that carry a result over
to a new connection; those that answer twice; those that send READY while they still work) only take part in edition
package, where I7 must hold against all of them. scenario.py names the conditions, actor by actor.

`hits` counts how often the rare paths were taken, so that a run in which nothing happened does not pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, SendJob
from dragoman.core.model import Attempt, JobId
from dragoman.core.states import Outcome, WorkerState
from dragoman.dialects.pingpong.broker_side import PingPongBrokerSide
from dragoman.dialects.pingpong.messages import PING, READY
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.dialects.pingpong.remote_workers import RemoteWorker
from dragoman.server.connection import StreamConnection
from dragoman.server.connections import Connections
from sim.world import World

LATE_SEND = 0.05  # the run time may count from the decision if the job left no later than this
SECRET = b"known to honest workers only"

RARE = (
    "answer done",
    "answer failed",
    "answer lost",
    "answer timed out in the queue",
    "answer timed out in the run",
    "answers unclaimed",
    "bad messages",
    "broker crashed with jobs running",
    "broker paused",
    "cancelled for want of a caller",
    "late results",
    "not started",
    "peers silent",
    "pings throttled",
    "ready instead of a result",
    "ready that crossed the job",
    "second attempts",
    "takeovers",
    "third attempts",
    "stuck closed at the limit",
    "stuck freed by its late result",
    "stuck freed by ready",
    "stuck left its connection",
    "stuck refused a pong",
    "workers adopted by ping",
    "workers expired",
    "workers held back",
)


class Wrong(AssertionError):
    """The oracle's verdict."""


def result_of(payload: bytes | bytearray) -> bytes:
    return blake2b(payload, key=SECRET, digest_size=16).digest()


class Conversation:
    """One connection of a caller: its submitted jobs without an outcome."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outstanding: dict[bytes, int] = {}  # result that is right -> number of the job
        self.submitted = 0
        self.answered = 0
        self.done = 0
        self.is_broken = False  # its connection ended, or the caller left


class Oracle:
    def __init__(
        self, world: World, options: ListenerOptions, *, only_we_fail: bool = False, nobody_drops: bool = False
    ) -> None:
        self.hits: Counter[str] = Counter()
        self.conversations: list[Conversation] = []
        self.gives_said = 0
        self.said: Counter[JobId] = Counter()  # attempts sent, by job
        self.given: dict[JobId, float] = {}  # time at which the last one was sent
        self._world = world
        self._options = options
        self._only_we_fail = only_we_fail  # no faults of peers or network in this run: no worker may be found silent
        self._nobody_drops = nobody_drops  # no worker sends READY instead of a result: no job may end *failed*
        self._attempts = options.attempts or 1
        self._number = 0
        self._executions: Counter[int] = Counter()
        self._heard: dict[int, int] = {}  # messages of callers, by life
        self._lives: list[Broker] = []

    def hit(self, what: str, times: int = 1) -> None:
        if times:
            self.hits[what] += times

    # ---------------------------------------------------------------- callers

    def converse(self, name: str) -> Conversation:
        conversation = Conversation(name)
        self.conversations.append(conversation)
        return conversation

    def new_payload(self, filler: int) -> tuple[int, bytes]:
        """Return a new payload."""
        self._number += 1
        return self._number, b"job %d %s" % (self._number, b"x" * filler)

    def submitted(self, conversation: Conversation, number: int, payload: bytes) -> None:
        conversation.outstanding[result_of(payload)] = number
        conversation.submitted += 1

    def answered(self, conversation: Conversation, message: Message | TooLarge) -> None:
        require(isinstance(message, list), "I4", f"{conversation.name} got {message}")
        assert isinstance(message, list)
        conversation.answered += 1
        counts = f"{conversation.name} got {conversation.answered} answers to {conversation.submitted} jobs"
        require(conversation.answered <= conversation.submitted, "I4", counts)
        if len(message) == 2:
            number = conversation.outstanding.pop(bytes(message[1]), None)
            require(number is not None, "I7", f"{conversation.name} got a result that is for none of its jobs")
            self.hit("answer done")
            conversation.done += 1
        else:
            require(message[:3] == [b"", b"", b"ERROR"], "D4", f"{conversation.name} got {message}")

    # ---------------------------------------------------------------- workers

    def executed(self, worker: str, payload: bytes) -> None:
        number = int(payload.split(b" ")[1])
        self._executions[number] += 1
        times = self._executions[number]
        require(times <= self._attempts, "I8", f"{worker} runs job {number}: {times} runs of {self._attempts} attempts")

    # ---------------------------------------------------------------- effects of the broker side

    def gives(self, attempt: Attempt, now: float) -> None:
        job = attempt.job
        require(job.attempt is attempt, "D2", f"attempt {attempt.number} of job {job.id.hex()} is sent and has ended")
        self.gives_said += 1
        self.said[job.id] += 1
        self.given[job.id] = now
        if attempt.number > 1:
            self.hit("second attempts" if attempt.number == 2 else "third attempts")

    def answers(self, answer: DeliverOutcome, now: float) -> None:
        job = answer.job
        if job is None:
            return
        name = f"job {job.id.hex()}, {answer.outcome}: {answer.reason}"
        require(job.spent <= self.said[job.id], "D8", f"{name}: {job.spent} spent, {self.said[job.id]} sent")
        if answer.outcome is Outcome.TIMED_OUT and "no result" in answer.reason:
            self.hit("answer timed out in the run")
            is_due = now >= self.given[job.id] + self._options.job_timeout - LATE_SEND
            require(is_due, "R6", f"{name} was given {now - self.given[job.id]:.3f} s ago")
        elif answer.outcome is Outcome.TIMED_OUT:
            self.hit("answer timed out in the queue")
            is_due = now >= job.arrival + self._options.queue_timeout
            require(is_due, "R6", f"{name} came {now - job.arrival:.3f} s ago")
        elif answer.outcome is not Outcome.DONE:
            self.hit(f"answer {answer.outcome}")
            require(not self._nobody_drops or answer.outcome is not Outcome.FAILED, "R34", name)

    def remarked(self, event: str, fields: dict[str, Any]) -> None:
        if event == "event loop stalled":
            self.hit("broker paused")
        elif event == "connection closed" and "nothing received" in fields["reason"]:
            self.hit("peers silent")
        elif event == "internal error":
            raise fields["exception"]
        elif event == "worker left":
            if "was silent" in fields["reason"]:
                self.hit("workers expired")
                require(not self._only_we_fail, "D13", f"{fields['worker']} pings and was found silent")
            elif "was stuck for" in fields["reason"]:
                self.hit("stuck closed at the limit")

    # ---------------------------------------------------------------- the broker's books

    def frontend_heard(self, broker: Broker, messages: int) -> None:
        self._heard[id(broker)] = self._heard.get(id(broker), 0) + messages

    def life_ended(self, broker: Broker) -> None:
        """Check the counters after a crash, or at the end of the run."""
        self._lives.append(broker)  # kept, so that no other broker gets its id()
        counters = broker.counters
        heard = self._heard.get(id(broker), 0)
        counted = f"{heard} jobs came, {counters.accepted} were accepted and {counters.refused} refused"
        require(heard == counters.accepted + counters.refused, "I17", counted)
        self.hit("late results", counters.late_results)
        self.hit("takeovers", counters.takeovers)
        self.hit("pings throttled", counters.throttled_pings)
        self.hit("answers unclaimed", counters.unclaimed_results)
        self.hit("cancelled for want of a caller", counters.ended[Outcome.CANCELLED])
        self.hit("bad messages", sum(counters.bad_messages.values()))

    # ---------------------------------------------------------------- after the heal phase

    def unhealed(self, broker: Broker, workers: int) -> str | None:
        """Return what has not healed after the faults ended, or None."""
        states = Counter(worker.state for worker in broker.worker_registry.workers.values())
        if broker.jobs:
            return f"I14: {len(broker.jobs)} jobs are still there"
        if states[WorkerState.IDLE] != workers or len(broker.worker_registry.workers) != workers:
            return f"I13: of {workers} workers {dict(states)}"
        for each in self.conversations:
            if not each.is_broken and each.answered < each.submitted:
                return f"I4: {each.name} got {each.answered} answers to {each.submitted} jobs"
        return None


class WatchedSession(PingPongBrokerSide):
    """The real session, and the oracle looking over its shoulder. It changes nothing."""

    def __init__(
        self,
        oracle: Oracle,
        broker: Broker,
        line: Connections,
        options: ListenerOptions,
        max_payload: int,
        world: World,
    ) -> None:
        super().__init__(broker, line, options, max_payload, world.now)  # type: ignore[arg-type]
        self._oracle = oracle

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, SendJob):
            self._oracle.gives(effect.attempt, now)
        elif isinstance(effect, DeliverOutcome):
            self._oracle.answers(effect, now)
        super().execute(effect, now)

    def receive(self, peer: StreamConnection, message: Message | TooLarge, now: float) -> None:  # type: ignore[override]
        remote = peer.remote
        if remote is None:
            super().receive(peer, message, now)
            return
        before = self._standing(remote)
        pending = len(peer.out)
        super().receive(peer, message, now)
        self._compare(remote, before, message, now, is_answered=len(peer.out) > pending)

    def lost(self, peer: StreamConnection, unsent: Sequence[object], now: float) -> None:  # type: ignore[override]
        if unsent:
            self._oracle.hit("not started", len(unsent))
        if isinstance(peer.remote, RemoteWorker) and self._standing(peer.remote) is WorkerState.STUCK:
            self._oracle.hit("stuck left its connection")
        super().lost(peer, unsent, now)

    def _compare(
        self,
        remote: RemoteWorker,
        before: WorkerState | None,
        message: Message | TooLarge,
        now: float,
        *,
        is_answered: bool,
    ) -> None:
        """Record which of the rare paths this message took."""
        hit = self._oracle.hit
        after = self._standing(remote)
        word = message[1:2] if isinstance(message, list) else []
        is_ready = word == [READY]
        if before is None and after is not None and not is_ready:
            hit("workers adopted by ping")
            if remote.worker is not None and now < remote.worker.held_back_until:
                hit("workers held back")
        elif before is WorkerState.STUCK and after is not WorkerState.STUCK:
            hit("stuck freed by ready" if is_ready else "stuck freed by its late result")
        elif before is WorkerState.STUCK and word == [PING] and not is_answered:
            hit("stuck refused a pong")
        elif before is WorkerState.BUSY and is_ready:
            hit("ready instead of a result" if remote.attempt is None else "ready that crossed the job")

    @staticmethod
    def _standing(remote: RemoteWorker) -> WorkerState | None:
        return remote.worker.state if remote.worker is not None else None


def require(holds: bool, letter: str, sentence: str) -> None:
    if not holds:
        raise Wrong(f"{letter}: {sentence}")
