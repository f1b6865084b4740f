"""Workers over HTTP: lost responses, results, heartbeats, and leaving (R124, R107)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_worker import Worker, call, kind, only_job, token
from http_world import MAX_PAYLOAD, WorkerSession, World

from dragoman.core.model import Caller, JobId, Token
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob, restore
from dragoman.core.states import JobState, Outcome, WorkerState
from owners import LOCAL_OWNER


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


# ---------------------------------------------------------------- answers that got lost (R124)


def test_answer_that_broke_off_is_given_again_under_the_same_attempt(world: World) -> None:
    worker = Worker(world, capacity=2)
    waiting = call(world)
    given = worker.takes()
    world.hangups[-1].happen()
    world.wait(3)
    again = worker.takes()
    assert (again.content, token(again)) == (b"x", token(given))
    assert again.headers["dragoman-timeout"] == "57.000"
    worker.says("result", token(again), b"y")
    assert world.finish(waiting).content == b"y"
    assert world.broker.counters.dispatched == 1


def test_answer_that_never_arrived_is_given_again(world: World) -> None:
    """We cannot know: but a worker of one job that asks for another has not got the first."""
    worker = Worker(world)
    call(world)
    first = worker.takes()
    assert token(worker.takes()) == token(first)
    assert world.broker.counters.dispatched == 1


def test_worker_that_has_spoken_of_its_job_has_it(world: World) -> None:
    worker = Worker(world)
    call(world)
    given = worker.takes()
    assert worker.says("heartbeat", token(given)).status_code == 204
    poll = worker.asks()
    assert not poll.done()


def test_worker_may_say_what_it_holds(world: World) -> None:
    worker = Worker(world, capacity=3)
    for body in (b"1", b"2"):
        call(world, body)
    first, second = worker.takes(), worker.takes()
    again = world.finish(worker.asks(holding=token(second)))
    assert token(again) == token(first)
    poll = worker.asks(holding=f"{token(first)}, {token(second)}")
    assert not poll.done()
    world.wait(30)
    assert token(world.finish(worker.asks(holding=""))) in (token(first), token(second))


def test_worker_that_hangs_up_on_its_ask_is_given_nothing(world: World) -> None:
    worker = Worker(world)
    poll = worker.asks()
    world.hangups[-1].happen()
    world.settle()
    assert world.finish(poll).status_code == 204  # nobody reads it
    assert worker.core.state is WorkerState.DETACHED
    call(world)
    assert only_job(world).state is JobState.WAITING
    assert worker.takes().content == b"x"


def test_job_given_to_an_ask_that_breaks_before_its_answer_is_written_goes_to_another(world: World) -> None:
    """R8: no worker can have seen it."""
    worker, other = Worker(world), Worker(world)
    worker.asks()
    broken = world.hangups[-1]
    world.broker.submit("s", b"x", Caller(WorkerSession(), LOCAL_OWNER), JobOptions(), world.now)
    world.runner.run_once()
    broken.happen()
    poll = other.asks()
    world.wait(1.1)
    assert world.finish(poll).content == b"x"
    assert only_job(world).spent == 0


def test_worker_that_never_comes_back_has_spent_the_attempt(world: World) -> None:
    worker = Worker(world, lease=10)
    waiting = call(world)
    worker.takes()
    world.hangups[-1].happen()
    world.wait(9.9)
    assert not waiting.done()
    world.wait(0.2)
    assert kind(world.finish(waiting)) == (502, "lost")
    assert kind(worker.says("heartbeat")) == (410, "gone")
    assert world.broker.counters.expired_workers == 1


def test_ask_that_the_server_stops_takes_no_job(world: World) -> None:
    worker = Worker(world)
    poll = worker.asks()
    poll.cancel()
    world.settle()
    call(world)
    assert only_job(world).state is JobState.WAITING


# ---------------------------------------------------------------- result


def test_stale_attempt_is_a_conflict_and_reaches_nobody(world: World) -> None:
    """D2, D11: but it proves its worker free."""
    worker = Worker(world)
    waiting = call(world, timeout="5")
    given = worker.takes()
    world.wait(5.1)
    assert kind(world.finish(waiting)) == (504, "timed-out")
    assert worker.core.state is WorkerState.STUCK
    assert kind(worker.says("result", token(given), b"late")) == (409, "stale-attempt")
    assert world.broker.counters.late_results == 1
    assert not worker.core.stuck


def test_result_is_taken_once(world: World) -> None:
    worker = Worker(world)
    call(world)
    given = worker.takes()
    assert worker.says("result", token(given), b"1").status_code == 204
    assert kind(worker.says("result", token(given), b"2")) == (409, "stale-attempt")


def test_worker_that_asks_again_after_its_job_was_recalled_is_free(world: World) -> None:
    worker = Worker(world)
    call(world, timeout="5")
    worker.takes()
    world.wait(5.1)
    call(world, b"2")
    assert worker.takes().content == b"2"


def test_result_of_a_job_in_quarantine_is_gone(world: World) -> None:
    worker = Worker(world)
    name = world.enqueue(attempts=1, timeout=5)
    given = worker.takes()
    world.wait(5.1)
    assert world.job(name).quarantined
    assert kind(worker.says("result", token(given), b"late")) == (410, "quarantined")
    assert not worker.core.stuck


@pytest.mark.parametrize("word", ["", "x", "0" * 31, "0" * 33, "g" * 32, "0" * 30 + "  "])
@pytest.mark.parametrize("what", ["result", "progress"])
def test_attempts_that_are_none_are_invalid(world: World, what: str, word: str) -> None:
    worker = Worker(world)
    assert kind(worker.says(what, headers={"Dragoman-Attempt": word})) == (422, "invalid")


def test_one_worker_cannot_finish_anothers_job(world: World) -> None:
    worker, thief = Worker(world), Worker(world)
    waiting = call(world)
    given = worker.takes()
    assert kind(thief.says("result", token(given), b"mine")) == (409, "stale-attempt")
    assert not waiting.done()


def test_outcome_is_one_of_three_words(world: World) -> None:
    worker = Worker(world)
    call(world)
    given = worker.takes()
    assert kind(worker.says("result?outcome=lost", token(given))) == (422, "invalid")
    assert only_job(world).state is JobState.RUNNING


@pytest.mark.parametrize(("body", "problem"), [(b"{", (400, "malformed-json")), (b'{"type": 1}', (422, "invalid"))])
def test_account_that_cannot_be_read_ends_nothing(world: World, body: bytes, problem: tuple[int, str]) -> None:
    worker = Worker(world)
    call(world)
    headers = {"content-type": "application/json"}
    answer = worker.says("result?outcome=failed", token(worker.takes()), body, headers=headers)
    assert kind(answer) == problem
    assert only_job(world).state is JobState.RUNNING


def test_result_over_the_limit_is_refused_and_its_job_fails(world: World) -> None:
    """R16."""
    worker = Worker(world)
    waiting = call(world)
    answer = worker.says("result", token(worker.takes()), bytes(MAX_PAYLOAD + 1))
    assert kind(answer) == (413, "too-large")
    assert kind(world.finish(waiting)) == (502, "failed")


def test_worker_that_has_delivered_gets_nothing_until_it_asks(world: World) -> None:
    worker = Worker(world)
    call(world, b"1")
    given = worker.takes()
    call(world, b"2")
    worker.says("result", token(given))
    assert only_job(world).state is JobState.WAITING
    assert worker.takes().content == b"2"


# ---------------------------------------------------------------- while a job runs


def test_worker_that_sends_signs_keeps_its_job(world: World) -> None:
    worker = Worker(world, lease=10)
    waiting = call(world)
    given = worker.takes()
    for _ in range(5):
        world.wait(8)
        assert worker.says("heartbeat").status_code == 204
    assert not waiting.done()
    worker.says("result", token(given), b"y")
    assert world.finish(waiting).content == b"y"


def test_worker_hears_that_nobody_waits_for_its_job_any_more(world: World) -> None:
    worker = Worker(world)
    call(world)
    given = worker.takes()
    assert "dragoman-recall" not in worker.says("heartbeat").headers
    world.broker.withdraw(only_job(world), world.now)
    world.runner.run_once()
    assert worker.says("heartbeat").headers["dragoman-recall"] == token(given)
    assert kind(worker.says("heartbeat", token(given))) == (409, "stale-attempt")
    assert kind(worker.says("progress", token(given), b"50 %")) == (409, "stale-attempt")


def test_progress_is_a_life_sign(world: World) -> None:
    worker = Worker(world, lease=10)
    waiting = call(world)
    given = worker.takes()
    for _ in range(3):
        world.wait(8)
        assert worker.says("progress", token(given), b"50 %").status_code == 204
    assert not waiting.done()


# ---------------------------------------------------------------- the end


def test_worker_that_leaves_spends_what_it_holds_and_gives_back_what_never_left(world: World) -> None:
    """D8."""
    worker, other = Worker(world, capacity=2), Worker(world)
    first, second = call(world, b"1"), call(world, b"2")
    worker.takes()
    assert worker.leaves().status_code == 204
    assert kind(world.finish(first)) == (502, "lost")
    assert other.takes().content == b"2"
    assert not second.done()
    assert kind(worker.says("heartbeat")) == (410, "gone")
    assert kind(worker.leaves()) == (410, "gone")


def test_ask_of_a_worker_that_leaves_is_answered(world: World) -> None:
    worker = Worker(world)
    poll = worker.asks()
    worker.leaves()
    assert kind(world.finish(poll)) == (410, "gone")


def test_drained_worker_stays_without_jobs_until_it_leaves(world: World) -> None:
    """Told that it was gone, it joined again and got the next job."""
    worker = Worker(world, capacity=2)
    call(world)
    given = worker.takes()
    poll = worker.asks()
    view = world.ask("POST", f"{worker.path}/drain").json()
    assert (view["state"], view["comes_back"]) == ("draining", True)
    waiting = call(world, b"2")
    worker.says("result", token(given))
    world.wait(31.0)
    assert world.finish(poll).status_code == 204
    poll = worker.asks()
    assert not poll.done()
    assert not waiting.done()
    worker.leaves()
    assert kind(world.finish(poll)) == (410, "gone")
    Worker(world).takes()


def test_worker_that_never_asked_is_given_up_after_its_lease(world: World) -> None:
    worker = Worker(world, lease=5)
    world.wait(5.1)
    assert kind(worker.says("next")) == (410, "gone")


def test_nobody_waits_for_jobs_of_a_broker_that_stops(world: World) -> None:
    worker = Worker(world)
    poll = worker.asks()
    world.session.close()
    for answer in (world.finish(poll), world.finish(worker.asks())):
        assert kind(answer) == (503, "draining")
        assert "retry-after" in answer.headers


def test_result_can_be_brought_to_a_broker_that_stops(world: World) -> None:
    worker = Worker(world)
    waiting = call(world)
    given = worker.takes()
    world.broker.operator.close(world.now)
    world.session.close()
    assert worker.says("result", token(given), b"y").status_code == 204
    assert world.finish(waiting).content == b"y"


# ---------------------------------------------------------------- after a restart (R107)


def restore_running(world: World, attempts: int = 3) -> Token:
    """Return a background job that an earlier run dispatched to an HTTP worker."""
    kept = StoredJob(1, JobId(bytes(16)), "s", JobOptions(durable=True, waits=True, attempts=attempts), world.now - 5)
    kept.token, kept.attempt, kept.given, kept.worker = Token(b"t" * 16), 1, world.now - 4, "w"
    kept.can_resume = True
    restore(world.broker, kept, world.now, WorkerSession())
    return kept.token


def test_result_of_an_earlier_run_is_taken_from_whoever_can_name_it(world: World) -> None:
    attempt = restore_running(world)
    headers = {"Dragoman-Attempt": attempt.hex()}
    answer = world.ask("POST", "/v1/workers/12345/result", headers=headers, content=b"y")
    assert answer.status_code == 204, answer.text
    assert (only_job(world).outcome, only_job(world).result) == (Outcome.DONE, b"y")
    assert kind(world.ask("POST", "/v1/workers/12345/result", headers=headers, content=b"y")) == (410, "gone")


def test_result_that_may_be_of_an_earlier_run_waits_until_its_jobs_are_read(world: World) -> None:
    world.broker.job_registry.is_loading = True
    answer = world.ask("POST", "/v1/workers/12345/result", headers={"Dragoman-Attempt": "0" * 32}, content=b"y")
    assert kind(answer) == (503, "loading")


def test_result_that_may_be_of_an_earlier_run_waits_also_if_its_worker_has_joined_again(world: World) -> None:
    """R107. It received that its attempt is stale, and would have dropped the result."""
    worker = Worker(world)
    world.broker.job_registry.is_loading = True
    assert kind(worker.says("result", "0" * 32, b"y")) == (503, "loading")


def test_failure_of_an_earlier_run_is_taken_too(world: World) -> None:
    attempt = restore_running(world, attempts=1)
    headers = {"Dragoman-Attempt": attempt.hex()}
    answer = world.ask("POST", "/v1/workers/1/result?outcome=failed", headers=headers, content=b"no")
    assert answer.status_code == 204
    assert (only_job(world).outcome, only_job(world).reason) == (Outcome.FAILED, "no")


def test_failure_of_an_earlier_run_in_a_body_that_cannot_be_read_may_be_told_again(world: World) -> None:
    path = "/v1/workers/1/result?outcome=failed"
    headers = {"Dragoman-Attempt": restore_running(world, attempts=1).hex(), "Content-Type": "application/json"}
    assert kind(world.ask("POST", path, headers=headers, content=b"{")) == (400, "malformed-json")
    assert only_job(world).outcome is None
    assert world.ask("POST", path, headers=headers, content=b'{"message": "no"}').status_code == 204
    assert (only_job(world).outcome, only_job(world).reason) == (Outcome.FAILED, "no")


def test_result_of_an_earlier_run_that_comes_too_late_is_stale(world: World) -> None:
    attempt = restore_running(world)
    world.wait(31)
    headers = {"Dragoman-Attempt": attempt.hex()}
    assert kind(world.ask("POST", "/v1/workers/1/result", headers=headers)) == (409, "stale-attempt")


@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_result_of_a_background_job_is_acknowledged_when_it_is_stored(world: World, outcome: str) -> None:
    """R103. A bug: the worker received 204, the broker was killed, and the job ended lost or ran again."""
    name = world.enqueue(attempts=1)
    worker = Worker(world)
    given = worker.takes()
    world.store.is_slow = True
    headers = {**worker.headers, "Dragoman-Attempt": token(given)}
    query = {"outcome": outcome}
    told = world.begin("POST", f"{worker.path}/result", headers=headers, content=b"1", params=query)
    assert not told.done()
    world.store.commit()
    assert world.finish(told).status_code == 204
    assert world.job(name).outcome == outcome


def test_result_of_a_call_is_acknowledged_at_once(world: World) -> None:
    worker = Worker(world)
    waiting = call(world)
    given = worker.takes()
    world.store.is_slow = True
    assert worker.says("result", token(given), b"1").status_code == 204
    assert world.finish(waiting).content == b"1"


def test_a_job_that_its_worker_stopped_at_its_time_limit_is_timed_out(world: World) -> None:
    """R220."""
    worker = Worker(world)
    waiting = call(world)
    answer = worker.says("result?outcome=timed-out", token(worker.takes()), b"a stump")
    assert answer.status_code == 204
    assert kind(world.finish(waiting)) == (504, "timed-out")


def test_a_job_of_an_earlier_run_that_its_worker_stopped_is_timed_out(world: World) -> None:
    """R220, R107."""
    headers = {"Dragoman-Attempt": restore_running(world, attempts=1).hex()}
    answer = world.ask("POST", "/v1/workers/1/result?outcome=timed-out", headers=headers)
    assert answer.status_code == 204
    assert only_job(world).outcome is Outcome.TIMED_OUT
