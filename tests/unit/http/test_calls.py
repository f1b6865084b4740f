"""Calls over HTTP: responses for each outcome, headers, and callers that disconnect (R122)."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from http_worker import Worker, kind, only_job, token
from http_world import MAX_PAYLOAD, World

from dragoman.core.states import JobState, Outcome


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize("payload", [b"bonjour", b"", bytes(range(256)), bytes(MAX_PAYLOAD)])
def test_body_goes_in_and_result_comes_out(world: World, payload: bytes) -> None:
    worker = Worker(world)
    poll = worker.asks()
    call = world.begin("POST", "/v1/call/s", content=payload)
    job = world.finish(poll)
    assert job.content == payload
    assert worker.says("result", token(job), payload[::-1]).status_code == 204
    answer = world.finish(call)
    assert (answer.status_code, answer.content) == (200, payload[::-1])
    assert answer.headers["dragoman-job"] == job.headers["dragoman-job"]
    assert answer.headers["content-type"] == "application/octet-stream"


def test_parts_of_a_result_come_in_front_of_it(world: World) -> None:
    """They were lost without a word: a response tells a result as a whole."""
    worker = Worker(world)
    poll = worker.asks()
    call = world.begin("POST", "/v1/call/s")
    job = world.finish(poll)
    for part in (b"one ", b"two "):
        assert world.broker.attempts.progress(only_job(world).attempt, part, world.now, is_part=True)
    assert worker.says("result", token(job), b"three").status_code == 204
    assert world.finish(call).content == b"one two three"


def test_body_in_pieces_is_one_payload(world: World) -> None:
    worker = Worker(world)

    async def pieces() -> Any:
        for each in (b"bon", b"", b"jour"):
            yield each

    world.begin("POST", "/v1/call/s", content=pieces())
    assert worker.takes().content == b"bonjour"


def test_service_may_have_any_name(world: World) -> None:
    worker = Worker(world, "ein/größerer dienst")
    world.begin("POST", "/v1/call/ein%2Fgr%C3%B6%C3%9Ferer%20dienst", content=b"x")
    assert worker.takes().headers["dragoman-service"] == "ein/gr%C3%B6%C3%9Ferer dienst"


def test_failure_is_told_with_its_workers_account(world: World) -> None:
    worker = Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x")
    account = {"type": "ValueError", "message": "not so", "detail": "Traceback ..."}
    headers = {**worker.headers, "Dragoman-Attempt": token(worker.takes())}
    sent = world.ask("POST", f"{worker.path}/result?outcome=failed", json=account, headers=headers)
    assert sent.status_code == 204, sent.text
    answer = world.finish(call)
    assert kind(answer) == (502, "failed")
    assert answer.json()["error"] == account | {"permanent": False}
    assert answer.json()["detail"] == "ValueError: not so"


def test_failure_in_plain_words_is_told_as_they_are(world: World) -> None:
    worker = Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x")
    worker.says("result?outcome=failed", token(worker.takes()), b"es geht nicht")
    answer = world.finish(call)
    assert kind(answer) == (502, "failed")
    assert (answer.json()["detail"], "error" in answer.json()) == ("es geht nicht", False)


def test_lost_call_is_not_a_failed_one(world: World) -> None:
    worker = Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x")
    worker.takes()
    assert worker.leaves().status_code == 204
    assert kind(world.finish(call)) == (502, "lost")


def test_call_times_out_at_its_run_time(world: World) -> None:
    worker = Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x", headers={"Dragoman-Job-Timeout": "5"})
    assert worker.takes().headers["dragoman-timeout"] == "5.000"
    world.wait(4.9)
    assert not call.done()
    world.wait(0.2)
    assert kind(world.finish(call)) == (504, "timed-out")


def test_call_times_out_at_its_deadline_while_it_waits(world: World) -> None:
    Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x", headers={"Dragoman-Timeout": "2.5"})
    world.wait(2.6)
    assert kind(world.finish(call)) == (504, "timed-out")


def test_cancelled_call_is_a_conflict(world: World) -> None:
    Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x")
    world.broker.withdraw(only_job(world), world.now)
    world.runner.run_once()
    assert kind(world.finish(call)) == (409, "cancelled")


def test_unknown_service_fails_at_once(world: World) -> None:
    assert kind(world.ask("POST", "/v1/call/nobody", content=b"x")) == (404, "no-such-service")


def test_caller_may_wait_for_a_worker_to_come(world: World) -> None:
    call = world.begin("POST", "/v1/call/s", content=b"x", headers={"Dragoman-Wait-For-Worker": "true"})
    worker = Worker(world)
    worker.says("result", token(worker.takes()), b"y")
    assert world.finish(call).content == b"y"


def test_call_beyond_the_bounds_is_told_to_come_again() -> None:
    world = World(max_jobs=1)
    Worker(world)
    world.begin("POST", "/v1/call/s", content=b"x")
    answer = world.ask("POST", "/v1/call/s", content=b"x")
    assert kind(answer) == (429, "busy")
    assert answer.headers["retry-after"] == "1"
    world.close()


def test_draining_broker_takes_no_calls_and_lets_those_go_that_wait(world: World) -> None:
    Worker(world)
    waiting = world.begin("POST", "/v1/call/s", content=b"x")
    world.broker.operator.close(world.now)
    world.runner.run_once()
    answer = world.finish(waiting)
    assert kind(answer) == (503, "draining")
    assert "retry-after" in answer.headers
    assert kind(world.ask("POST", "/v1/call/s", content=b"x")) == (503, "draining")


def test_payload_over_the_limit_is_refused_and_never_a_job(world: World) -> None:
    Worker(world)
    assert kind(world.ask("POST", "/v1/call/s", content=bytes(MAX_PAYLOAD + 1))) == (413, "too-large")
    assert world.broker.counters.accepted == 0


# ---------------------------------------------------------------- keys (R24)


def test_same_key_joins_the_first_call(world: World) -> None:
    worker = Worker(world)
    calls = [world.begin("POST", "/v1/call/s", content=b"x", headers={"Idempotency-Key": "42"}) for _ in range(2)]
    worker.says("result", token(worker.takes()), b"y")
    assert [world.finish(each).content for each in calls] == [b"y", b"y"]
    again = world.ask("POST", "/v1/call/s", content=b"x", headers={"Idempotency-Key": "42"})
    assert again.content == b"y"
    assert world.broker.counters.dispatched == 1


def test_who_joins_a_job_by_its_key_has_a_patience_of_its_own(world: World) -> None:
    """R122. It waited as long as the first job took, whatever its own time-out was."""
    name = world.enqueue(key="k", delay=1_000.0)
    headers = {"Idempotency-Key": "k", "Dragoman-Timeout": "5", "Dragoman-Wait-For-Worker": "true"}
    joined = world.begin("POST", "/v1/call/s", content=b"x", headers=headers)
    world.wait(6.0)
    answer = world.finish(joined)
    assert (kind(answer), answer.headers["dragoman-job"]) == ((504, "timed-out"), name)
    assert (world.job(name).state, world.job(name).callers) == ("delayed", ())


def test_same_key_with_another_payload_is_refused(world: World) -> None:
    Worker(world)
    world.begin("POST", "/v1/call/s", content=b"x", headers={"Idempotency-Key": "42"})
    answer = world.ask("POST", "/v1/call/s", content=b"z", headers={"Idempotency-Key": "42"})
    assert kind(answer) == (409, "key-reused")


def test_keys_wait_until_the_jobs_of_the_last_run_are_read(world: World) -> None:
    Worker(world)
    world.broker.job_registry.is_loading = True
    answer = world.ask("POST", "/v1/call/s", content=b"x", headers={"Idempotency-Key": "42"})
    assert kind(answer) == (503, "loading")
    assert answer.headers["retry-after"] == "1"


# ---------------------------------------------------------------- what headers ask for


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, (60.0, inf, None, 5, False)),
        ({"Dragoman-Timeout": "7"}, (inf, 7.0, None, 5, False)),
        ({"Dragoman-Timeout": "7", "Dragoman-Job-Timeout": "3"}, (3.0, 7.0, None, 5, False)),
        ({"Dragoman-Priority": "9", "Dragoman-Attempts": "3"}, (60.0, inf, 3, 9, False)),
        ({"Dragoman-Wait-For-Worker": "1"}, (60.0, inf, None, 5, True)),
        ({"Dragoman-Wait-For-Worker": "false", "Dragoman-Unknown": "x"}, (60.0, inf, None, 5, False)),
    ],
)
def test_headers_are_options(world: World, said: dict[str, str], expected: Any) -> None:
    Worker(world)
    world.begin("POST", "/v1/call/s", content=b"x", headers=said)
    job = only_job(world)
    job_options = job.options
    patience = job.deadline - world.now
    assert (
        job_options.job_timeout,
        patience,
        job_options.attempts,
        job_options.priority,
        job_options.waits,
    ) == expected


@pytest.mark.parametrize(
    ("name", "word"),
    [
        *(("Dragoman-Timeout", word) for word in ("", "x", "0", "-1", "nan", "inf", "1e9", "1,2", "٣")),
        *(("Dragoman-Job-Timeout", word) for word in ("0", "86401", "5s")),
        *(("Dragoman-Priority", word) for word in ("-1", "10", "1.5", "high")),
        *(("Dragoman-Attempts", word) for word in ("0", "101", "two")),
        *(("Dragoman-Wait-For-Worker", word) for word in ("perhaps", "2")),
        *(("Idempotency-Key", word) for word in ("", "k" * 257, "a\tb")),
    ],
)
def test_hostile_headers_are_named_and_make_no_job(world: World, name: str, word: str) -> None:
    Worker(world)
    answer = world.ask("POST", "/v1/call/s", content=b"x", headers=[(name.encode(), word.encode())])
    assert kind(answer) == (422, "invalid")
    assert world.broker.counters.accepted == 0


def test_header_is_said_once(world: World) -> None:
    Worker(world)
    twice = [(b"Dragoman-Timeout", b"1"), (b"Dragoman-Timeout", b"2")]
    answer = world.ask("POST", "/v1/call/s", headers=twice)
    assert kind(answer) == (422, "invalid")
    assert "Dragoman-Timeout" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "x" * 129, "%C3%BC" * 65])
def test_names_that_are_none_are_invalid(world: World, name: str) -> None:
    assert kind(world.ask("POST", f"/v1/call/{name}", content=b"x")) == (422, "invalid")


# ---------------------------------------------------------------- callers that hang up (R18, R19, R122)


def test_caller_that_hangs_up_while_its_call_waits_withdraws_it(world: World) -> None:
    Worker(world)
    world.begin("POST", "/v1/call/s", content=b"x")
    world.hangups[-1].happen()
    world.settle()
    assert world.broker.counters.ended[Outcome.CANCELLED] == 1
    assert not world.broker.jobs


def test_call_whose_caller_hangs_up_while_it_runs_may_end(world: World) -> None:
    worker = Worker(world)
    world.begin("POST", "/v1/call/s", content=b"x")
    caller = world.hangups[-1]
    job = worker.takes()
    caller.happen()
    world.settle()
    assert only_job(world).state is JobState.RUNNING
    assert worker.says("result", token(job), b"y").status_code == 204
    assert world.broker.counters.unclaimed_results == 1


def test_caller_that_hangs_up_as_its_answer_comes_changes_nothing(world: World) -> None:
    worker = Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x")
    caller = world.hangups[-1]
    worker.says("result", token(worker.takes()), b"y")
    caller.happen()
    assert world.finish(call).status_code == 200
    assert world.broker.counters.ended[Outcome.DONE] == 1


def test_kept_call_outlives_its_caller(world: World) -> None:
    worker = Worker(world)
    world.begin("POST", "/v1/call/s", content=b"x", headers={"Idempotency-Key": "k"})
    world.hangups[-1].happen()
    world.settle()
    worker.says("result", token(worker.takes()), b"y")
    assert world.ask("POST", "/v1/call/s", content=b"x", headers={"Idempotency-Key": "k"}).content == b"y"


def test_call_that_the_server_stops_is_withdrawn(world: World) -> None:
    Worker(world)
    call = world.begin("POST", "/v1/call/s", content=b"x")
    call.cancel()
    world.settle()
    assert world.broker.counters.ended[Outcome.CANCELLED] == 1


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        ({}, (inf, 60.0)),
        ({"Dragoman-Timeout": "null"}, (inf, inf)),
        ({"Dragoman-Job-Timeout": "null"}, (inf, inf)),
        ({"Dragoman-Timeout": "90"}, (90.0, inf)),
    ],
)
def test_null_is_no_limit(world: World, headers: dict[str, str], limits: tuple[float, float]) -> None:
    world.begin("POST", "/v1/call/s", content=b"x", headers={**headers, "Dragoman-Wait-For-Worker": "true"})
    (job,) = world.broker.jobs.values()
    assert (job.deadline - job.created, job.options.job_timeout) == limits


# ---------------------------------------------------------------- extras (R200, R202)

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PARENT = "5f" * 16


def test_call_has_a_parent_and_a_trace_and_its_worker_gets_the_trace(world: World) -> None:
    worker = Worker(world)
    poll = worker.asks()
    call = world.begin("POST", "/v1/call/s", headers={"dragoman-parent-job": PARENT, "traceparent": TRACE})
    job = world.finish(poll)
    extras = only_job(world).extras
    assert (extras.parent.hex(), extras.traceparent) == (PARENT, TRACE)
    assert job.headers["traceparent"] == TRACE
    assert float(job.headers["dragoman-waited"]) >= 0.0
    worker.says("result", token(job), b"")
    assert world.finish(call).status_code == 200
    assert world.broker.job_registry.with_extras.count == 0


def test_invalid_parent_is_an_error_and_an_invalid_trace_is_ignored(world: World) -> None:
    answer = world.ask("POST", "/v1/call/s", headers={"dragoman-parent-job": "mine"})
    assert kind(answer) == (422, "invalid")
    assert answer.json()["detail"].startswith("Dragoman-Parent-Job: ")
    worker = Worker(world)
    for trace in ("mine", "ÿ", [("traceparent", TRACE), ("traceparent", TRACE)]):
        poll = worker.asks()
        headers: Any = trace if isinstance(trace, list) else {"traceparent": trace.encode("latin-1")}
        call = world.begin("POST", "/v1/call/s", headers=headers)
        job = world.finish(poll)
        assert "traceparent" not in job.headers
        worker.says("result", token(job), b"")
        world.finish(call)
