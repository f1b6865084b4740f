"""Every caller × every worker × every outcome, each delivered in the caller's dialect (D4).

A dialect is added in one line of PARTICIPANTS. Outcomes that its workers cannot cause are listed in its `impossible`,
with the reason; outcomes that its callers cannot receive are `silent`, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf

import pytest

from case_tables import check_every_row
from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.model import Caller as BrokerCaller
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient
from dragoman.core.states import Outcome
from dragoman.dialects.catalogue import DIALECTS
from owners import LOCAL_OWNER
from pairs import controller, http, majordomo, memodb, native, pingpong, powerhose
from pairs.asgi import one_world
from pairs.participants import JOB_TIMEOUT, MAX_PAYLOAD, TOO_LARGE, Caller, Participants, Worker
from pairs.world import SERVICE, World

PARTICIPANTS = [
    native.NATIVE,
    http.HTTP,
    pingpong.PLAIN,
    pingpong.PACKAGE,
    powerhose.POWERHOSE,
    memodb.MEMODB,
    controller.SEED,
    controller.SHIFTED,
    majordomo.RFC7,
    majordomo.RFC18,
    majordomo.FIELD,
]
CALLERS = [each for each in PARTICIPANTS if each.caller is not None]
PAYLOADS = {"text": b"bonjour", "empty": b"", "binary": bytes(range(256)), "large": bytes(100_000)}


def done(world: World, caller: Caller, worker: Worker) -> None:
    worker.finish(b"good day")


def failed(world: World, caller: Caller, worker: Worker) -> None:
    worker.fail()


def timed_out(world: World, caller: Caller, worker: Worker) -> None:
    world.wait(JOB_TIMEOUT)


def lost(world: World, caller: Caller, worker: Worker) -> None:
    worker.vanish()


def cancelled(world: World, caller: Caller, worker: Worker) -> None:
    assert world.broker.withdraw(world.only_job(), world.now)
    world.runner.run_once()


def refused(world: World, caller: Caller, worker: Worker) -> None:
    """Refuse a job, the only outcome without a worker: the broker drains, and its running job ends first."""
    worker.finish(b"the last one")
    assert caller.told() == [(Outcome.DONE, b"the last one")]
    world.broker.operator.close(world.now)
    caller.submit(b"too late")


WAYS: dict[Outcome, Callable[[World, Caller, Worker], None]] = {
    Outcome.DONE: done,
    Outcome.FAILED: failed,
    Outcome.TIMED_OUT: timed_out,
    Outcome.LOST: lost,
    Outcome.CANCELLED: cancelled,
    Outcome.REFUSED: refused,
}
WORKERS_AND_OUTCOMES = [
    (workers, outcome) for workers in PARTICIPANTS for outcome in WAYS if outcome not in workers.impossible
]


def test_every_dialect_takes_part() -> None:
    assert {each.dialect for each in PARTICIPANTS} == set(DIALECTS)


def test_every_outcome_has_a_way_or_is_listed_as_impossible_with_a_reason() -> None:
    assert set(WAYS) == set(Outcome)
    assert all(reason for each in PARTICIPANTS for reason in each.impossible.values())
    expected = sum(len(Outcome) - len(each.impossible) for each in PARTICIPANTS)
    assert len(WORKERS_AND_OUTCOMES) == expected


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_a_caller_of_one_dialect_is_served_by_a_worker_of_another(callers: Participants) -> None:
    def check(workers: Participants, outcome: Outcome) -> None:
        with one_world() as world:
            _serve_one(world, callers, workers, outcome)

    check_every_row(check, WORKERS_AND_OUTCOMES)


def _serve_one(world: World, callers: Participants, workers: Participants, outcome: Outcome) -> None:
    """Run one job to this outcome, and another one after it."""
    caller, worker = callers.call(world), workers.worker(world)
    caller.submit(b"bonjour")
    assert worker.jobs() == [b"bonjour"]
    assert caller.told() == []

    WAYS[outcome](world, caller, worker)

    if outcome in callers.silent:
        assert caller.told() == []
        assert world.counters.unreported_outcomes == {outcome: 1}
    else:
        assert caller.told() == [(outcome, b"good day" if outcome is Outcome.DONE else b"")]
        assert world.counters.unreported_outcomes == {}
    turned_away = outcome is Outcome.REFUSED
    assert world.counters.ended[Outcome.DONE if turned_away else outcome] == world.counters.accepted == 1
    assert world.counters.refused == turned_away
    if not turned_away:
        _serve_another(world, caller, worker, workers, outcome)


class Outcomes(Recipient):
    """Keeps the outcomes of a caller's jobs."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.reasons: list[str] = []

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, DeliverOutcome):
            self.outcomes.append(effect.outcome)
            self.reasons.append(effect.reason)


@pytest.mark.parametrize("workers", [pingpong.PLAIN, powerhose.POWERHOSE, majordomo.RFC7], ids=str)
def test_a_job_without_any_limit_has_the_listener_s_where_workers_are_silent(workers: Participants) -> None:
    """D5: nothing else would notice that such a worker hangs."""
    world = World()
    told, worker = Outcomes(), workers.worker(world)
    unlimited = JobOptions(job_timeout=inf, attempts=1)  # such as that of a background job with `timeout=None`
    assert world.broker.submit(SERVICE, b"bonjour", BrokerCaller(told, LOCAL_OWNER), unlimited, world.now)
    world.runner.run_once()
    assert worker.jobs() == [b"bonjour"]
    world.wait(JOB_TIMEOUT - 1.0)
    assert told.outcomes == []
    world.wait(1.0)
    assert told.outcomes == [Outcome.TIMED_OUT]


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_every_job_counts_for_its_caller(callers: Participants) -> None:
    """L8, R29: no dialect forgets to say whose job it is."""
    world = World()
    caller, worker = callers.call(world), pingpong.PLAIN.worker(world)
    caller.submit(b"bonjour")
    owner = world.only_job().owner
    assert owner is not None
    assert owner.jobs == 1
    worker.finish(b"good day")
    assert owner.jobs == 0


class FailsOnce(Recipient):
    """Raises at the first outcome, like an error of the broker, and passes all others to the real recipient."""

    def __init__(self, real: Recipient) -> None:
        self._real = real
        self._has_failed = False

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, DeliverOutcome) and not self._has_failed:
            self._has_failed = True
            raise ZeroDivisionError
        self._real.execute(effect, now)


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_answer_that_cannot_be_delivered_is_told_as_a_failure_of_the_broker(callers: Participants) -> None:
    """R27. A bug: only callers whose connection is their own were told anything, by closing it."""
    world = World()
    world.may_fail = True
    caller, worker = callers.call(world), pingpong.PLAIN.worker(world)
    caller.submit(b"bonjour")
    told = world.only_job().callers[0]
    told.recipient = FailsOnce(told.recipient)
    worker.finish(b"good day")
    assert world.counters.internal_errors == 1
    assert caller.told() == ([] if Outcome.FAILED in callers.silent else [(Outcome.FAILED, b"")])
    caller.submit(b"bonsoir")
    worker.finish(b"good evening")
    assert caller.told() == [(Outcome.DONE, b"good evening")]


def _serve_another(world: World, caller: Caller, worker: Worker, workers: Participants, outcome: Outcome) -> None:
    """Check that the next job is done, and that nothing of the first reaches its caller (I7)."""
    if outcome in (Outcome.TIMED_OUT, Outcome.CANCELLED):
        worker.recover(world)
        assert world.counters.late_results == (outcome not in workers.hangs_up)
    elif outcome is Outcome.LOST:
        worker = workers.worker(world)
    caller.submit(b"bonsoir")
    assert worker.jobs() == [b"bonsoir"]
    worker.finish(b"good evening")
    assert caller.told() == [(Outcome.DONE, b"good evening")]


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_payloads_pass_as_they_are(callers: Participants) -> None:
    def check(workers: Participants, kind: str) -> None:
        with one_world() as world:
            caller, worker = callers.call(world), workers.worker(world)
            caller.submit(PAYLOADS[kind])
            assert worker.jobs() == [PAYLOADS[kind]]
            worker.finish(PAYLOADS[kind][::-1])
            assert caller.told() == [(Outcome.DONE, PAYLOADS[kind][::-1])]

    check_every_row(check, [(workers, kind) for workers in PARTICIPANTS for kind in PAYLOADS])


@pytest.mark.parametrize("workers", PARTICIPANTS, ids=str)
def test_callers_of_all_dialects_share_one_queue(workers: Participants) -> None:
    """D7: jobs of one service go out in the order they came, whoever sent them."""
    world = World()
    callers = [each.call(world) for each in CALLERS]
    for number, caller in enumerate(callers):
        caller.submit(b"%d" % number)
    worker = workers.worker(world)
    for number, caller in enumerate(callers):
        assert worker.jobs() == [b"%d" % number]
        worker.finish(b"done %d" % number)
        assert caller.told() == [(Outcome.DONE, b"done %d" % number)]


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_workers_of_all_dialects_take_turns(callers: Participants) -> None:
    """D7: the longest idle worker goes first, whatever it speaks."""
    world = World()
    caller = callers.call(world)
    workers = [each.worker(world) for each in PARTICIPANTS]
    for _ in range(2):
        for worker in workers:
            caller.submit(b"next")
            assert [each.jobs() for each in workers] == [[b"next"] if each is worker else [] for each in workers]
            worker.finish(b"done")
            assert caller.told() == [(Outcome.DONE, b"done")]


def test_max_payload_counts_the_bytes_of_the_payload_in_every_dialect() -> None:
    """R224. The carrier's limit was for all frames of a message: PingPong refused payloads with the maximum, because of
    its envelope, and native accepted payloads and results of 64 KiB more."""

    def check(callers: Participants, workers: Participants) -> None:
        with one_world() as world:
            caller, worker = callers.call(world), workers.worker(world)
            caller.submit(bytes(MAX_PAYLOAD))
            assert worker.jobs() == [bytes(MAX_PAYLOAD)]
            worker.finish(bytes(MAX_PAYLOAD))
            assert caller.told() == [(Outcome.DONE, bytes(MAX_PAYLOAD))]

            caller = callers.call(world)
            caller.submit(bytes(TOO_LARGE))
            assert worker.jobs() == []
            assert caller.told() == ([] if Outcome.REFUSED in callers.silent else [(Outcome.REFUSED, b"")])
            assert world.counters.accepted == 1

    check_every_row(check, [(callers, workers) for callers in CALLERS for workers in PARTICIPANTS])


@pytest.mark.parametrize("workers", PARTICIPANTS, ids=str)
def test_a_result_over_max_payload_ends_its_attempt_with_a_sentence(workers: Participants) -> None:
    """R224. A result that was over the maximum by up to 64 KiB was delivered."""
    with one_world() as world:
        worker, outcomes = workers.worker(world), Outcomes()
        caller = BrokerCaller(outcomes, LOCAL_OWNER)
        world.broker.submit(SERVICE, b"bonjour", caller, JobOptions(attempts=1, job_timeout=JOB_TIMEOUT), world.now)
        world.runner.run_once()
        assert worker.jobs() == [b"bonjour"]
        worker.finish(bytes(TOO_LARGE))
        assert outcomes.outcomes == [Outcome.FAILED]
        assert re.search(rf"[0-9]+ bytes is over max_payload {MAX_PAYLOAD}$", outcomes.reasons[0]), outcomes.reasons


def test_bytes_that_wait_for_a_worker_are_known_in_every_dialect() -> None:
    """R206: the broker measures them before it gives the worker another large job."""

    def check(workers: Participants) -> None:
        with one_world() as world:
            caller, worker = native.NATIVE.call(world), workers.worker(world)
            caller.submit(PAYLOADS["large"])
            assert worker.jobs() == [PAYLOADS["large"]]
            (known,) = world.broker.worker_registry.workers.values()
            assert known.remote is not None
            assert known.recipient.unsent(known.remote) == 0
            for connection in world.connections:
                connection.backlog = 5 << 20
            each_job_has_its_own = workers.dialect in ("http", "controller")
            assert known.recipient.unsent(known.remote) == (0 if each_job_has_its_own else 5 << 20)

    check_every_row(check, [(workers,) for workers in PARTICIPANTS])
