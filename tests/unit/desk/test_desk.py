"""What is asked at the desk: each question, answered once, and when the diary has what it changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from math import inf
from typing import Any

import pytest

from dragoman.core.model import ABSENT, Caller, JobId
from dragoman.core.options import Terms, Wishes
from dragoman.core.revival import Kept, restore
from dragoman.core.states import JobState, Outcome, WorkerState
from dragoman.desk.forms import JobView, Problem, PurgeForm

from .world import WALL, Asker, World


@pytest.fixture
def world() -> World:
    return World()


UNKNOWN = "0" * 32


# ---------------------------------------------------------------- enqueue


def test_job_is_acknowledged_when_the_diary_has_it(world: World) -> None:
    """R103."""
    world.diary.is_slow = True
    asker = world.begin("enqueue", b"x", service="s")
    assert asker.told == []
    world.diary.write()
    world.line.turn()
    (view,) = asker.told
    assert (view.state, view.background, view.max_attempts, view.priority) == ("waiting", True, 3, 5)
    assert view.created == datetime.fromtimestamp(WALL + world.now, UTC)


def test_nobody_is_told_the_outcome_who_did_not_ask_for_it(world: World) -> None:
    asker = world.begin("enqueue", b"x", service="s")
    world.worker()
    world.broker.succeed(world.attempt(asker.told[0].id), b"r", world.now)
    world.line.turn()
    assert len(asker.told) == 1


@pytest.mark.parametrize(
    ("facts", "body", "payload"),
    [
        ({"payload": "grüße"}, b"", "grüße".encode()),
        ({"payload_base64": "AP8="}, b"", b"\x00\xff"),
        ({}, b"body", b"body"),
        ({}, b"", b""),
        ({"payload": ""}, b"", b""),
    ],
)
def test_payload_comes_in_the_form_or_beside_it(world: World, facts: Any, body: bytes, payload: bytes) -> None:
    name = world.enqueue(body=body, **facts)
    assert world.job(name).payload == payload


@pytest.mark.parametrize(
    ("facts", "body"),
    [
        ({"payload": "a", "payload_base64": "AA=="}, b""),
        ({"payload": "a"}, b"b"),
        ({"payload_base64": "not base64!"}, b""),
        ({"not_before": datetime(2030, 1, 1)}, b""),
        ({"not_before": datetime(2300, 1, 1, tzinfo=UTC)}, b""),
        ({"service": "a\x00b"}, b""),
        ({"service": "ü" * 100}, b""),
        ({"key": "ü" * 200}, b""),
    ],
)
def test_what_cannot_be_meant_is_invalid(world: World, facts: Any, body: bytes) -> None:
    told = world.ask("enqueue", body, **{"service": "s", **facts})
    assert isinstance(told, Problem)
    assert told.kind == "invalid"
    assert world.broker.jobs == {}


def test_moment_of_the_wall_clock_is_a_delay(world: World) -> None:
    wall = datetime.fromtimestamp(WALL + world.now + 60.0, timezone(timedelta(hours=5)))
    job = world.job(world.enqueue(not_before=wall))
    assert (job.state, job.start_at) == (JobState.DELAYED, world.now + 60.0)
    past = world.job(world.enqueue(not_before=wall - timedelta(days=1)))
    assert past.state is JobState.WAITING


def test_wishes_reach_the_job(world: World) -> None:
    job = world.job(
        world.enqueue(priority=9, attempts=7, timeout=5.0, retry_first=2.0, retry_cap=3.0, retry_jitter=0.5, delay=1.0)
    )
    assert job.wishes == Wishes(
        priority=9,
        attempts=7,
        job_timeout=5.0,
        retry_first=2.0,
        retry_cap=3.0,
        retry_jitter=0.5,
        delay=1.0,
        waits=True,
        durable=True,
    )


def test_same_key_is_the_same_job_and_another_payload_is_not(world: World) -> None:
    """R24, R123."""
    first = world.enqueue(key="k")
    assert world.enqueue(key="k") == first
    told = world.ask("enqueue", b"other", service="s", key="k")
    assert told.kind == "key reused"


def test_same_key_after_the_end_tells_the_outcome(world: World) -> None:
    first = world.enqueue(key="k")
    world.worker()
    world.broker.succeed(world.attempt(first), b"result", world.now)
    asker = world.begin("enqueue", b"x", service="s", key="k")
    assert (asker.told[0].id, asker.told[0].outcome, asker.payload) == (first, "done", b"result")


@pytest.mark.parametrize(("policy", "kind"), [({"max_jobs": 1}, "busy"), ({"max_memory": 1}, "busy")])
def test_full_broker_refuses(policy: Any, kind: str) -> None:
    world = World(**policy)
    world.enqueue()
    assert world.ask("enqueue", b"x", service="s").kind == kind


def test_draining_broker_refuses(world: World) -> None:
    world.broker.close(world.now)
    assert world.ask("enqueue", b"x", service="s").kind == "draining"


def test_full_disk_refuses_and_forgets(world: World) -> None:
    """R101."""
    world.diary.problem = "disk full"
    told = world.ask("enqueue", b"x", service="s", key="k")
    assert (told.kind, world.broker.jobs) == ("diary", {})
    world.diary.problem = None
    world.enqueue(key="k")


def test_key_cannot_be_judged_while_jobs_are_read(world: World) -> None:
    world.broker.ledger.is_loading = True
    assert world.ask("enqueue", b"x", service="s", key="k").kind == "loading"
    world.enqueue()


# ---------------------------------------------------------------- job, result


def test_unknown_job(world: World) -> None:
    for question in ("job", "result", "why", "cancel", "retry"):
        assert world.ask(question, id=UNKNOWN).kind == "not found"
    world.broker.ledger.is_loading = True
    assert world.ask("job", id=UNKNOWN).kind == "loading"


def test_outcome_is_shown_when_the_diary_has_it(world: World) -> None:
    """R103: whoever asks after a crash is told the same."""
    world.worker()
    name = world.enqueue()
    world.diary.is_slow = True
    world.broker.succeed(world.attempt(name), b"r", world.now)
    asker = world.begin("job", id=name)
    assert asker.told == []
    world.diary.write()
    world.line.turn()
    assert [(each.outcome, each.result) for each in asker.told] == [("done", "r")]


def test_acceptance_is_no_outcome(world: World) -> None:
    """Whoever waited for a job's outcome was answered when the job was accepted."""
    world.diary.is_slow = True
    world.begin("enqueue", b"x", service="s")
    (job,) = world.broker.jobs.values()
    asker = world.begin("result", id=job.id.hex(), wait=5.0)
    world.diary.write()
    world.line.turn()
    assert asker.told == []
    world.wait(5.0)
    assert [each.state for each in asker.told] == ["waiting"]


def test_patience_that_ends_while_the_outcome_is_written_lasts_until_then(world: World) -> None:
    """It was told that the job is done, with an empty result."""
    world.worker()
    name = world.enqueue()
    asker = world.begin("result", id=name, wait=5.0)
    world.diary.is_slow = True
    world.broker.succeed(world.attempt(name), b"r", world.now)
    world.wait(6.0)
    assert asker.told == []
    world.diary.write()
    world.line.turn()
    assert [(each.outcome, asker.payload) for each in asker.told] == [("done", b"r")]


def test_outcome_that_cannot_be_shown_is_told_as_an_internal_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R27. A bug: a fault of the broker while an outcome was told left its caller waiting."""
    world.worker()
    name = world.enqueue()
    asker = world.begin("result", id=name, wait=5.0)

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("dragoman.desk.desk.job_view", fails)
    world.broker.succeed(world.attempt(name), b"result", world.now)
    world.line.turn()
    world.line.turn()
    assert asker.told == [Problem(kind="internal", detail="an internal error of the broker")]
    assert world.log.count("internal error") == 1


@pytest.mark.parametrize(("result", "text", "base64"), [(b"ok", "ok", None), (b"\xff\x00", None, "/wA=")])
def test_job_shows_its_result(world: World, result: bytes, text: str | None, base64: str | None) -> None:
    name = world.enqueue()
    world.worker()
    world.broker.succeed(world.attempt(name), result, world.now)
    view = world.ask("job", id=name)
    assert (view.state, view.outcome, view.result, view.result_base64) == ("ended", "done", text, base64)
    assert view.kept_until == datetime.fromtimestamp(WALL + world.now + 86_400.0, UTC)


def test_job_that_is_done_shows_who_did_it(world: World) -> None:
    name = world.enqueue()
    world.worker(name="right")
    world.broker.succeed(world.attempt(name), b"", world.now)
    (attempt,) = world.ask("job", id=name).attempts
    assert (attempt.number, attempt.worker, attempt.outcome) == (1, "right", "done")


def test_job_that_was_cancelled_while_it_ran_shows_where(world: World) -> None:
    name = world.enqueue()
    world.worker(name="left")
    world.line.turn()
    world.ask("cancel", id=name)
    (attempt,) = world.ask("job", id=name).attempts
    assert (attempt.number, attempt.worker, attempt.outcome) == (1, "left", "cancelled")


def test_job_shows_its_attempts(world: World) -> None:
    name = world.enqueue()
    world.worker(name="left")
    world.broker.fail(world.attempt(name), "no luck", world.now)
    world.wait(5.0)
    view = world.ask("job", id=name)
    assert [(each.number, each.worker, each.outcome, each.reason) for each in view.attempts] == [
        (1, "left", "failed", "no luck"),
        (2, "left", None, ""),
    ]


def test_whoever_waits_is_told_the_outcome(world: World) -> None:
    name = world.enqueue()
    asker = world.begin("result", id=name, wait=30.0)
    world.worker()
    world.broker.succeed(world.attempt(name), b"result", world.now)
    world.line.turn()
    assert [each.outcome for each in asker.told] == ["done"]
    assert asker.payload == b"result"
    world.wait(60.0)
    assert len(asker.told) == 1


def test_whoever_waits_in_vain_is_told_how_it_stands(world: World) -> None:
    name = world.enqueue()
    asker = world.begin("result", id=name, wait=30.0)
    world.wait(29.0)
    assert asker.told == []
    world.wait(1.0)
    assert [each.state for each in asker.told] == ["waiting"]
    assert world.job(name).callers == ()


def test_whoever_leaves_is_told_nothing_and_the_job_goes_on(world: World) -> None:
    name = world.enqueue()
    asker = world.begin("result", id=name, wait=30.0)
    assert asker.ticket is not None
    world.desk.leave(asker.ticket, world.now)
    world.desk.leave(asker.ticket, world.now)
    world.worker()
    world.broker.succeed(world.attempt(name), b"result", world.now)
    world.wait(60.0)
    assert (asker.told, world.job(name).outcome) == ([], Outcome.DONE)


def test_who_does_not_wait_is_told_at_once(world: World) -> None:
    name = world.enqueue()
    assert world.ask("result", id=name).state == "waiting"


def test_outcome_is_not_told_before_the_diary_has_it(world: World) -> None:
    name = world.enqueue()
    world.worker()
    world.diary.is_slow = True
    world.broker.succeed(world.attempt(name), b"result", world.now)
    asker = world.begin("result", id=name, wait=10.0)
    assert asker.told == []
    world.diary.write()
    world.line.turn()
    assert [each.outcome for each in asker.told] == ["done"]


def test_outcome_of_an_earlier_run_is_fetched(world: World) -> None:
    job = restore(world.broker, _ended(world), world.now, None)
    world.diary.bodies[job.id] = (b"", b"old result")
    asker = world.begin("result", id=job.id.hex(), wait=10.0)
    shown = world.begin("job", id=job.id.hex())
    assert (asker.told, shown.told) == ([], [])
    world.diary.bring()
    world.line.turn()
    assert (asker.payload, shown.told[0].result) == (b"old result", "old result")


def test_payload_of_an_earlier_run_is_fetched_before_it_is_given(world: World) -> None:
    kept = _ended(world)
    kept.outcome = None
    job = restore(world.broker, kept, world.now, None)
    world.diary.bodies[job.id] = (b"old payload", b"")
    world.worker()
    assert world.workers.said == []
    world.diary.bring()
    world.line.turn()
    (give,) = world.workers.said
    assert (give.attempt.job.payload, job.payload) == (b"old payload", b"old payload")


def test_payload_that_comes_for_an_attempt_that_is_over_is_given_to_the_next(world: World) -> None:
    kept = _ended(world)
    kept.outcome = None
    job = restore(world.broker, kept, world.now, None)
    world.diary.bodies[job.id] = (b"old payload", b"")
    first = world.worker()
    world.broker.leave(first, world.now, "gone")
    world.worker(name="second")
    world.diary.bring()
    world.line.turn()
    assert [each.attempt.worker.name for each in world.workers.said] == ["second"]
    assert (job.spent, job.state) == (0, JobState.RUNNING)


def _ended(world: World) -> Kept:
    kept = Kept(1, JobId(b"j" * 16), "s", Wishes(durable=True, waits=True, attempts=3), world.now - 10.0)
    kept.outcome, kept.keep_until = Outcome.DONE, world.now + 100.0
    world.broker.ledger.gate.last = world.broker.ledger.gate.safe = 1
    return kept


# ---------------------------------------------------------------- cancel, retry, purge


def test_cancel(world: World) -> None:
    name = world.enqueue()
    assert world.ask("cancel", id=name).outcome == "cancelled"
    assert world.ask("cancel", id=name).kind == "conflict"


def test_cancel_is_answered_when_the_diary_has_it(world: World) -> None:
    name = world.enqueue()
    world.diary.is_slow = True
    asker = world.begin("cancel", id=name)
    assert asker.told == []
    world.diary.write()
    world.line.turn()
    assert [each.outcome for each in asker.told] == ["cancelled"]


def _quarantined(world: World) -> str:
    name = world.enqueue(attempts=1)
    world.broker.fail(world.attempt(name), "poison", world.now)
    world.line.turn()
    return name


def test_payload_that_comes_late_for_one_attempt_is_not_the_next_ones(world: World) -> None:
    """R8. Both wait for it: the second was taken for sent when the first one's came, and was spent."""
    kept = _ended(world)
    kept.outcome = None
    job = restore(world.broker, kept, world.now, None)
    first = world.worker(name="first")
    world.broker.leave(first, world.now, "gone")
    second = world.worker(name="second")
    world.diary.bodies[job.id] = (b"payload", b"")
    (early, late) = world.diary.fetches
    world.diary.fetches = [early]
    world.diary.bring()
    world.broker.leave(second, world.now, "gone")
    assert (job.state, job.spent) == (JobState.WAITING, 0)
    world.diary.fetches += [late]
    world.diary.bring()
    world.worker(name="third")
    world.diary.bring()
    world.line.turn()
    assert [each.attempt.worker.name for each in world.workers.said] == ["third"]


def test_retry_makes_a_new_job_of_one_in_quarantine(world: World) -> None:
    worker = world.worker()
    name = _quarantined(world)
    again = world.ask("retry", id=name)
    assert (again.retry_of, again.state, again.attempts[0].worker) == (name, "running", worker.name)
    assert world.job(again.id).payload == b"x"


def test_retry_that_is_asked_for_again_makes_no_second_job(world: World) -> None:
    """A client whose answer was lost asks again; one whose retry did not end well is told which job that was."""
    world.worker()
    name = _quarantined(world)
    again = world.ask("retry", id=name)
    assert world.ask("retry", id=name).id == again.id
    world.broker.fail(world.attempt(again.id), "poison", world.now)
    world.line.turn()
    refused = world.ask("retry", id=name)
    assert (refused.kind, again.id in refused.detail, "retry that one" in refused.detail) == ("conflict", True, True)
    assert [each.id for each in world.ask("jobs", quarantined=True).jobs] == [again.id]
    assert world.ask("job", id=name).retried_as == again.id
    assert world.ask("why", id=name).why.endswith(f" It was retried as job {again.id}.")


def test_retry_of_an_earlier_run_leaves_its_payload_where_it_is(world: World) -> None:
    """A bug: it was fetched, and what the outcomes kept take was counted wrongly from then on."""
    kept = _ended(world)
    kept.outcome, kept.quarantined, kept.spent = Outcome.LOST, True, 3
    job = restore(world.broker, kept, world.now, None)
    view = world.ask("retry", id=job.id.hex())
    assert isinstance(view, JobView)
    assert (job.payload is ABSENT, world.job(view.id).payload is ABSENT) == (True, True)
    world.worker()
    world.diary.bodies[world.job(view.id).id] = (b"old payload", b"")
    world.diary.bring()
    world.line.turn()
    (give,) = world.workers.said
    assert give.attempt.job.payload == b"old payload"


def test_retry_waits_until_all_jobs_are_read(world: World) -> None:
    world.worker()
    name = _quarantined(world)
    world.broker.ledger.is_loading = True
    assert world.ask("retry", id=name).kind == "loading"


def test_only_quarantine_can_be_left_by_retry(world: World) -> None:
    assert world.ask("retry", id=world.enqueue()).kind == "conflict"


def test_purge_ends_what_waits_and_leaves_what_runs(world: World) -> None:
    world.worker()
    running, waiting, delayed = world.enqueue(), world.enqueue(), world.enqueue(delay=60.0)
    other = world.enqueue("other")
    assert world.ask("purge", name="s").purged == 2
    assert [world.job(each).state for each in (running, waiting, delayed, other)] == [
        JobState.RUNNING,
        JobState.ENDED,
        JobState.ENDED,
        JobState.WAITING,
    ]


def test_purge_waits_until_all_jobs_are_read(world: World) -> None:
    """It left alone what came from the diary later, and said that it was done."""
    name = world.enqueue()
    world.broker.ledger.is_loading = True
    assert world.ask("purge", name="s").kind == "loading"
    assert world.job(name).state is JobState.WAITING


def test_purge_of_outcomes_erases_them(world: World) -> None:
    world.worker()
    name = _quarantined(world)
    waiting = world.enqueue(delay=60.0)
    assert world.ask("purge", name="s", states=("ended",)).purged == 1
    assert world.diary.erased == [bytes.fromhex(name)]
    assert world.job(waiting).state is JobState.DELAYED


@pytest.mark.parametrize("question", ["jobs", "services"])
def test_lists_that_are_not_complete_yet_are_refused(world: World, question: str) -> None:
    """A bug: after a start with many jobs they were empty for a while, as if all jobs were lost."""
    world.broker.ledger.is_loading = True
    assert world.ask(question).kind == "loading"
    world.broker.ledger.is_loading = False
    assert not isinstance(world.ask(question), Problem)


def test_great_purge_takes_several_turns(world: World) -> None:
    for _ in range(2_500):
        world.broker.submit("s", b"", _Nobody(), Wishes(waits=True), world.now)
    asker = world.begin("purge", name="s")
    assert asker.told == []
    world.line.turn()
    world.line.turn()
    assert [each.purged for each in asker.told] == [2_500]


def test_purge_leaves_alone_what_has_gone_on_meanwhile(world: World) -> None:
    """What was waiting when it was chosen, and ended before its turn: its outcome is nobody's to forget."""
    names = [world.enqueue() for _ in range(3)]
    world.desk.ask("purge", PurgeForm(name="s"), b"", Asker(), world.now)
    worker = world.broker.join(world.workers, None, "w", ("s",), Terms(capacity=3), world.now)
    assert worker is not None
    world.broker.idle(worker, world.now)
    for name in names:
        world.broker.succeed(world.attempt(name), b"result", world.now)
    world.wait(1.0)
    assert [world.job(name).outcome for name in names] == [Outcome.DONE] * 3


def test_two_purges_at_once_count_each_job_once(world: World) -> None:
    names = [world.enqueue() for _ in range(5)]
    askers = [Asker(), Asker()]
    for asker in askers:
        world.desk.ask("purge", PurgeForm(name="s"), b"", asker, world.now)
    world.wait(1.0)
    assert sum(asker.told[0].purged for asker in askers) == 5
    assert [world.job(name).outcome for name in names] == [Outcome.CANCELLED] * 5


class _Nobody(Caller):
    def __init__(self) -> None:
        super().__init__(self)

    def execute(self, effect: Any, now: float) -> None: ...


# ---------------------------------------------------------------- listings


def test_jobs_newest_first_and_page_by_page(world: World) -> None:
    names = [world.enqueue() for _ in range(7)]
    seen: list[str] = []
    after = None
    while True:
        page = world.ask("jobs", limit=3, after=after)
        seen += [each.id for each in page.jobs]
        after = page.after
        if after is None:
            break
    assert seen == names[::-1]


def test_jobs_by_what_they_are(world: World) -> None:
    world.worker()
    lost = _quarantined(world)
    running = world.enqueue()
    waiting = world.enqueue("other")
    delayed = world.enqueue(delay=9.0)

    def found(**facts: Any) -> list[str]:
        return [each.id for each in world.ask("jobs", **facts).jobs]

    assert found(state="running") == [running]
    assert found(service="other") == [waiting]
    assert found(state="delayed") == [delayed]
    assert found(quarantined=True) == [lost]
    assert found(outcome="failed") == [lost]
    assert found(quarantined=False, service="s") == [delayed, running]


def test_list_that_cannot_go_on_says_so(world: World) -> None:
    """It ended as if it were complete, when the job it was to go on after had been erased."""
    world.enqueue()
    refused = world.ask("jobs", after=UNKNOWN)
    assert (refused.kind, UNKNOWN in refused.detail) == ("not found", True)


def test_services_and_workers(world: World) -> None:
    worker = world.worker(name="w", lease=5.0, capacity=2)
    name = world.enqueue()
    world.now += 2.0
    (service,) = world.ask("services").services
    assert (service.name, service.running, service.waiting, service.workers, service.idle) == ("s", 1, 0, 1, 1)
    (shown,) = world.ask("workers").workers
    assert (shown.id, shown.dialect, shown.state, shown.running, shown.silent, shown.lease) == (
        worker.id,
        "test",
        "idle",
        [name],
        2.0,
        5.0,
    )
    assert world.ask("worker", id=worker.id) == shown
    assert world.ask("worker", id=99).kind == "not found"
    assert world.ask("service", name="none").kind == "not found"


def test_oldest_is_the_age_of_the_head(world: World) -> None:
    world.enqueue()
    world.now += 41.0
    world.enqueue()
    assert world.ask("service", name="s").oldest == 41.0


# ---------------------------------------------------------------- operators


def test_pause_is_remembered_and_says_by_whom(world: World) -> None:
    view = world.ask("pause", name="s", by="ann")
    assert (view.paused, view.paused_by, world.diary.notes) == (True, "ann", {"pause/s": "ann"})
    world.worker()
    name = world.enqueue()
    assert world.job(name).state is JobState.WAITING
    assert not world.ask("resume", name="s").paused
    assert (world.job(name).state, world.diary.notes) == (JobState.RUNNING, {})


def test_service_may_be_forgotten_before_it_is_told_that_it_is_resumed() -> None:
    """Its name was looked up again, by which the turn broke off."""
    world = World(max_services=1)
    world.ask("pause", name="s")
    world.diary.is_slow = True
    asker = world.begin("resume", name="s")
    world.worker("other")
    assert "s" not in world.broker.roster.services
    world.diary.write()
    world.line.turn()
    assert [each.paused for each in asker.told] == [False]


def test_drain_lets_a_worker_finish(world: World) -> None:
    worker = world.worker()
    name = world.enqueue()
    assert world.ask("drain", id=worker.id).state == "draining"
    world.broker.succeed(world.attempt(name), b"", world.now)
    assert worker.state is WorkerState.GONE
    assert world.ask("drain", id=worker.id).kind == "not found"


def test_drain_at_once(world: World) -> None:
    worker = world.worker()
    name = world.enqueue()
    assert world.ask("drain", id=worker.id, now=True).state == "gone"
    assert world.job(name).spent == 1


# ---------------------------------------------------------------- recurring jobs


def test_recurring_job_is_made_again_and_again(world: World) -> None:
    world.worker()
    assert world.ask("recur", b"tick", name="n", service="s", every=10.0).runs == 0
    world.wait(25.0)
    view = world.ask("recurrence", name="n")
    assert (view.runs + view.skipped, view.last_job in {job.id.hex() for job in world.broker.jobs.values()}) == (
        2,
        True,
    )
    assert [job.payload for job in world.broker.jobs.values()] == [b"tick"]
    assert list(world.diary.notes) == ["cron/n"]
    assert [each.name for each in world.ask("recurring").recurring] == ["n"]
    assert world.ask("pause recurring", name="n").paused
    assert not world.ask("resume recurring", name="n").paused
    world.ask("stop recurring", name="n")
    assert (world.diary.notes, world.ask("recurrence", name="n").kind) == ({}, "not found")


def test_run_and_what_is_noted_of_it_are_one_transaction(world: World) -> None:
    world.ask("recur", name="n", service="s", every=10.0)
    applied: list[list[str]] = []
    apply = world.diary.apply

    def watch(entries: Any, done: Any) -> None:
        applied.append([type(each).__name__ for each in entries])
        apply(entries, done)

    world.diary.apply = watch  # type: ignore[method-assign]
    world.wait(10.0)
    assert applied == [["Save", "Note"]]


def test_run_that_a_full_disk_refuses_is_made_when_there_is_room(world: World) -> None:
    """It had counted as made, and what was noted of it said so: it was lost."""
    world.ask("recur", name="n", service="s", every=10.0)
    world.diary.problem = "the disk is full"
    world.wait(12.0)
    assert world.broker.jobs == {}
    assert world.ask("recurrence", name="n").runs == 0
    world.diary.problem = None
    world.wait(1.5)
    (job,) = world.broker.jobs.values()
    view = world.ask("recurrence", name="n")
    assert (view.runs, view.last_job) == (1, job.id.hex())
    assert view.last == datetime.fromtimestamp(WALL + 1_010.0, UTC)
    world.wait(10.0)
    assert world.ask("recurrence", name="n").skipped == 1


def test_a_job_runs_for_sixty_seconds_at_most_unless_it_says_otherwise(world: World) -> None:
    """None was 60 seconds, too, and no limit could not be said."""
    assert world.job(world.enqueue()).wishes.job_timeout == 60.0
    assert world.job(world.enqueue(timeout=86_400.0)).wishes.job_timeout == 86_400.0
    assert world.job(world.enqueue(timeout=None)).wishes.job_timeout == inf
