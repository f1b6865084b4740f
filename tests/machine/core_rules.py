"""Rules that the state machines of the core share: hostile arguments for the methods of a broker.

Ended attempts, ended jobs and workers that have left are drawn as often as live ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from dragoman.core import model
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Job, Worker
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.states import WorkerState
from dragoman.core.store_entries import StoreJob, StoreValue
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

SETTINGS = settings(max_examples=50, stateful_step_count=50, derandomize=True, deadline=None)

SERVICES = ["a", "b"]
WORKER_VERBS = ["idle", "idle", "seen", "leave", "unseen", "drain", "kill"]
pick = st.integers(0, 1_000)  # of a list that the machine keeps: taken modulo its length


NOBODY = Recipient()  # receives nothing: the machine takes the effects itself


# Parts of the broker that have these methods; it has the others itself.
PARTS = {
    **dict.fromkeys(("progress", "refuse", "reject", "undelivered", "extend"), "attempts"),
    **dict.fromkeys(("retry", "release"), "operator"),
}


def verb_of(broker: Any, name: str) -> Callable[..., Any]:
    """The method of the broker, or of the part that has it."""
    part = PARTS.get(name)
    return getattr(broker if part is None else getattr(broker, part), name)


class Caller(model.Caller):
    def __init__(self, owner: Owner = LOCAL_OWNER) -> None:
        super().__init__(NOBODY, owner)


class UnevenEntropy(SeededEntropy):
    """A jitter that never repeats itself, so that no two back-offs end at the same moment."""

    def __init__(self) -> None:
        super().__init__("machine")
        self.jitter = uneven()  # type: ignore[method-assign]


def uneven() -> Any:
    numbers = count(1)
    return lambda: (next(numbers) * 0.618) % 2.0 - 1.0


class Machine(RuleBasedStateMachine):
    policy = Policy()

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker(self.policy, UnevenEntropy())
        self.now = 0.0
        self.jobs: list[Job] = []
        self.workers: list[Worker] = []
        self.attempts: list[Attempt] = []
        self.keys: dict[Attempt, tuple[bytes, int]] = {}  # number of the dispatch of its job
        self.dispatched: Counter[bytes] = Counter()
        self.answers: Counter[Caller] = Counter()
        self.accepts: Counter[tuple[Caller, bytes]] = Counter()
        self.last_save = 0
        self.written = 0  # the last save that the store has
        self.tokens: dict[bytes, int] = {}  # the save that carried an attempt first

    def save_up_to(self, number: int, problem: str | None = None) -> None:
        if problem is None:
            self.written = max(self.written, number)
        self.broker.store_reports.saved(number, self.now, problem)
        self.carry_out()

    def advance(self, seconds: float) -> None:
        self.now += seconds + 0.0001  # nothing happens twice at the same moment

    def carry_out(self) -> list[Effect]:
        effects = list(self.broker.effects)
        self.broker.effects.clear()
        for effect in effects:
            if isinstance(effect, SendJob):
                attempt = effect.attempt
                assert attempt.job.attempt is attempt, "a Give that is not current"
                assert attempt.worker.state is not WorkerState.GONE
                assert attempt.worker.away_since == inf, "somebody out of reach was given a job"
                if attempt.job.options.durable:
                    assert self.tokens[attempt.token] <= self.written, "an attempt that the store does not have"
                self.dispatched[attempt.job.id] += 1
                self.keys[attempt] = (attempt.job.id, self.dispatched[attempt.job.id])
                self.attempts.append(attempt)
                attempt.mark_sent()
            elif isinstance(effect, DeliverOutcome):
                self.answers[effect.caller] += 1  # type: ignore[index]
                effect.caller.remove_job(effect.job)
            elif isinstance(effect, Acknowledge):
                self.accepts[effect.caller, effect.job.id] += 1  # type: ignore[index]
            elif isinstance(effect, StoreJob):
                assert effect.number == self.last_save + 1
                self.last_save = effect.number
                if effect.job.attempt is not None:
                    self.tokens.setdefault(effect.job.attempt.token, effect.number)
            elif isinstance(effect, StoreValue):
                assert effect.number == self.last_save + 1
                self.last_save = effect.number
            elif isinstance(effect, RemoveWorker):
                assert effect.worker.state is WorkerState.GONE
        return effects

    @invariant()
    def all_is_well(self) -> None:
        check(self.broker)
        assert not self.broker.effects
        assert all(number == 1 for number in self.answers.values()), "somebody was answered twice"
        assert all(number == 1 for number in self.accepts.values()), "somebody was accepted twice"
        assert len({attempt.token for attempt in self.attempts}) == len(self.attempts)


def chosen(things: list[Any], number: int) -> Any:
    return things[number % len(things)]
