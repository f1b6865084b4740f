"""Operations of native clients: background jobs and others, their responses, and lost connections."""

from __future__ import annotations

import pytest

from dragoman.core.model import Token
from dragoman.core.packed_jobs import pack_jobs

from .world import MAX_PAYLOAD, SECRET, End, World, ask, failed, names, result

ONE, TWO = b"number-1", b"number-2"


def enqueue(world: World, client: End, payload: bytes = b"job", **form: object) -> str:
    """Enqueue a background job. Returns its id."""
    ((word, number, view, _),) = client.say(*ask(ONE, "enqueue", {"service": "echo"} | form, payload))
    assert (word, number) == ("TELL", ONE)
    return str(view["id"])


def test_a_background_job_is_told_when_it_is_kept_and_outlives_its_client() -> None:
    world = World()
    client = world.client()
    id = enqueue(world, client, b"hello", priority=7)
    client.say(b"\x06")
    worker = world.worker()
    ((word, token, job_id, attempt, *_, payload),) = worker.told()
    assert (word, job_id.hex(), attempt, payload) == ("JOB", id, 1, b"hello")
    worker.say(*result((token, b"HELLO")))
    other = world.client()
    ((_, _, view, body),) = other.say(*ask(ONE, "result", {"id": id}))
    assert (view["state"], view["outcome"], view["priority"], body) == ("ended", "done", 7, b"HELLO")


def test_background_jobs_count_for_the_connection_that_asks() -> None:
    """L8."""
    world = World()
    client = world.client()
    id = enqueue(world, client)
    owner = next(job for job in world.broker.jobs.values() if job.id.hex() == id).owner
    assert owner is client.peer.owner
    assert (owner.jobs, owner.names) == (1, 1)


def test_a_payload_may_be_missing() -> None:
    world = World()
    worker = world.worker()
    world.client().say(*ask(ONE, "enqueue", {"service": "echo"}))
    assert [said[-1] for said in worker.told()] == [b""]


def test_who_waits_for_a_result_is_told_when_it_is_there() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    id = enqueue(world, client)
    ((_, token, *_),) = worker.told()
    assert client.say(*ask(ONE, "result", {"id": id, "wait": 30})) == []
    assert [said[0] for said in client.say(*ask(TWO, "why", {"id": id}))] == ["TELL"], "others need not wait for it"
    worker.say(*result((token, b"done")))
    ((word, number, view, body),) = client.told()
    assert (word, number, view["outcome"], body) == ("TELL", ONE, "done", b"done")


def test_who_has_waited_long_enough_is_told_how_it_stands() -> None:
    world = World()
    client = world.client()
    id = enqueue(world, client)
    assert client.say(*ask(ONE, "result", {"id": id, "wait": 5})) == []
    world.wait(5.1)
    ((_, number, view, body),) = client.told()
    assert (number, view["state"], view["outcome"], body) == (ONE, "waiting", None, b"")


def test_a_failure_has_what_its_worker_said() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    id = enqueue(world, client, attempts=1)
    ((_, token, *_),) = worker.told()
    worker.say(*failed(token, "ValueError", "not so", "Traceback"))
    ((_, _, view, body),) = client.say(*ask(ONE, "result", {"id": id}))
    assert (view["outcome"], view["quarantined"]) == ("failed", True)
    assert body == b"ValueError\0not so\0Traceback"


def test_the_same_key_is_the_same_job() -> None:
    world = World()
    client = world.client()
    first = enqueue(world, client, key="42")
    assert enqueue(world, world.client(), key="42") == first
    ((_, _, kind),) = client.say(*ask(ONE, "enqueue", {"service": "echo", "key": "42"}, b"another payload"))
    assert kind == "key reused"


@pytest.mark.parametrize(
    ("question", "form", "kind"),
    [
        ("the time", {}, "invalid"),
        ("", {}, "invalid"),
        ("job", {"id": "0" * 32}, "not found"),
        ("job", {"id": "no id"}, "invalid"),
        ("job", {"id": "0" * 32, "more": 1}, "invalid"),
        ("job", {}, "invalid"),
        ("job", b"{", "invalid"),
        ("job", b"\xff", "invalid"),
        ("job", b"[" * 60_000, "invalid"),
        ("enqueue", {"service": "echo", "priority": 10}, "invalid"),
        ("enqueue", {"service": "a\0b"}, "invalid"),
        ("resume", {"name": "nobody's"}, "not found"),
        ("drain", {"id": 77}, "not found"),
        ("delete schedule", {"name": "nothing"}, "not found"),
    ],
)
def test_what_cannot_be_answered_is_an_objection(question: str, form: object, kind: str) -> None:
    world = World()
    client = world.client()
    assert client.say(*ask(ONE, question, form)) == [("OBJECT", ONE, kind)]
    assert world.bad == {}
    assert [said[0] for said in client.say(*ask(ONE, "services"))] == ["TELL"]


def test_more_questions_than_the_window_has_room_for_are_objected_to() -> None:
    world = World()
    client = world.client(window=2)
    id = enqueue(world, client)
    for number in (ONE, TWO):
        assert client.say(*ask(number, "result", {"id": id, "wait": 5})) == []
    assert client.say(*ask(b"number-3", "services")) == [("OBJECT", b"number-3", "busy")]
    world.wait(5.1)
    assert {said[1] for said in client.told()} == {ONE, TWO}
    assert [said[0] for said in client.say(*ask(b"number-3", "services"))] == ["TELL"]


def test_a_number_that_is_under_way_is_an_error() -> None:
    world = World()
    client = world.client()
    id = enqueue(world, client)
    client.say(*ask(ONE, "result", {"id": id, "wait": 5}))
    assert client.say(*ask(ONE, "services")) == [("ERROR", "ASK", "twice")]
    world.wait(5.1)
    assert [said[:2] for said in client.told()] == [("TELL", ONE)], "the first is answered"


def test_a_question_that_is_too_large_is_objected_to() -> None:
    world = World()
    client = world.client()
    told = client.say(*ask(ONE, "enqueue", {"service": "echo"}, bytes(MAX_PAYLOAD + 65_536)))
    assert told == [("OBJECT", ONE, "too large")]
    assert world.bad == {"too large": 1}
    assert client.say(*ask(ONE, "enqueue", b" " * 65_537)) == [("ERROR", "ASK", "malformed")]


@pytest.mark.parametrize("secret", ["", SECRET])
def test_questions_end_with_their_connection(secret: str) -> None:
    world = World()
    client = world.client(secret)
    id = enqueue(world, client)
    client.say(*ask(ONE, "result", {"id": id, "wait": 30}))
    assert len(world.job().callers) == 1
    client.cut()
    assert len(world.job().callers) == 0
    if secret:
        client, is_resumed = world.resumed()
        assert is_resumed
        assert client.say(*ask(ONE, "result", {"id": id, "wait": 30})) == []
        worker = world.worker()
        worker.say(*result((worker.told()[0][1], b"done")))
        assert [said[:2] for said in client.told()] == [("TELL", ONE)]


def test_whoever_comes_back_before_the_old_connection_is_missed_asks_anew() -> None:
    world = World()
    former = world.client(SECRET)
    id = enqueue(world, former)
    former.say(*ask(ONE, "result", {"id": id, "wait": 30}))
    client, is_resumed = world.resumed()
    assert is_resumed
    assert client.say(*ask(ONE, "result", {"id": id, "wait": 30})) == []
    assert len(world.job().callers) == 1
    client.say(*ask(TWO, "cancel", {"id": id}))
    assert world.ended == {"cancelled": 1}


def test_a_client_without_jobs_may_ask_about_others() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    _, id = world.running(worker, client)
    operator = world.client()
    ((_, _, view, _),) = operator.say(*ask(ONE, "job", {"id": id.hex()}))
    assert (view["state"], view["background"]) == ("running", False)
    ((_, _, workers, _),) = operator.say(*ask(ONE, "workers"))
    assert workers["workers"][0]["running"] == [id.hex()]
    operator.say(*ask(ONE, "drain", {"id": workers["workers"][0]["id"]}))
    assert world.state(worker) == "draining"
    client.say(*names("CANCEL", id))


def test_a_broker_without_a_operations_objects() -> None:
    world = World()
    world.session._clients.operations._operations = None
    assert world.client().say(*ask(ONE, "services")) == [("OBJECT", ONE, "invalid")]


@pytest.mark.parametrize("way", ["RESULT", "FAILED", "too large"])
def test_an_attempt_of_an_earlier_run_may_still_be_answered(way: str) -> None:
    """R107: a worker that kept running while the broker was restarted delivers under its old token, once."""
    world = World()
    client, worker = world.client(), world.worker()
    id = enqueue(world, client, attempts=1)
    ((_, token, *_),) = worker.told()
    attempt = world.job().attempt
    assert attempt is not None
    late = world.worker("other")
    world.broker.attempts.resumable[Token(token)] = attempt
    answer = {
        "RESULT": result((token, b"done")),
        "FAILED": failed(token),
        "too large": result((token, bytes(MAX_PAYLOAD + 65_536))),
    }[way]
    late.say(*answer)
    ((_, _, view, _),) = client.say(*ask(ONE, "result", {"id": id}))
    assert view["outcome"] == ("done" if way == "RESULT" else "failed")
    assert world.counters.late_results == 0
    late.say(*answer)
    assert world.counters.late_results == 1


def test_a_result_of_an_earlier_run_is_kept_while_jobs_are_read() -> None:
    """R107."""
    world = World()
    worker = world.worker()
    world.broker.job_registry.is_loading = True
    worker.say(*result((b"t" * 16, b"done")))
    assert world.broker.job_registry.early.take(Token(b"t" * 16), "s") == b"done"
    assert world.counters.late_results == 0


# -------------------------------------------------------------------- batches and groups


def test_a_batch_is_beside_its_request_and_a_group_is_told_as_one() -> None:
    world = World()
    client, worker = world.client(edition=3), world.worker(capacity=3)
    packed = pack_jobs([(b"%016d" % number, b"", b"job %d" % number) for number in range(3)])
    form = {"service": "echo", "group": True}
    ((_, _, view, _),) = client.say(*ask(ONE, "enqueue many", form, packed))
    assert view["jobs"] == [(b"%016d" % number).hex() for number in range(3)]
    assert client.say(*ask(TWO, "group results", {"id": view["group"], "wait": 30})) == []
    for _, token, *_, payload in worker.told():
        worker.say(*result((token, payload.upper())))
    ((word, number, page, body),) = client.told()
    assert (word, number, page["complete"], [each["size"] for each in page["results"]]) == ("TELL", TWO, True, [5] * 3)
    assert body == b"JOB 0JOB 1JOB 2"


@pytest.mark.parametrize(("edition", "state"), [(1, "delayed"), (2, "delayed"), (3, "dependent")])
def test_clients_of_earlier_editions_know_no_dependent_jobs(edition: int, state: str) -> None:
    """They would refuse a view with a state that they do not know."""
    world = World()
    client = world.client(edition=edition)
    first = enqueue(world, client)
    last = enqueue(world, client, after=[first])
    ((_, _, view, _),) = client.say(*ask(ONE, "job", {"id": last}))
    assert view["state"] == state
    ((_, _, view, _),) = client.say(*ask(ONE, "why", {"id": last}))
    assert (view["kind"], view["why"]) == (state, f"It waits for one job: {first}.")
    ((_, _, view, _),) = client.say(*ask(ONE, "jobs", {}))
    assert [each["state"] for each in view["jobs"]] == [state, "waiting"]
    assert [("dependent" in each) for each in view["jobs"]] == [False, False]


def test_a_service_may_have_the_name_of_the_state() -> None:
    world = World()
    client = world.client(edition=2)
    id = enqueue(world, client, service="dependent")
    ((_, _, view, _),) = client.say(*ask(ONE, "job", {"id": id}))
    assert (view["service"], view["state"]) == ("dependent", "waiting")
