"""Routes of operations: their responses and errors."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from http_world import MAX_PAYLOAD, World

from dragoman.core.failure import Failure
from dragoman.core.states import Outcome
from dragoman.http.admission import ADMITTED

UNKNOWN = "0" * 32


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def expect_problem(answer: Any, status: int, kind: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    said: dict[str, Any] = answer.json()
    assert (said["type"], said["status"]) == (f"urn:dragoman:{kind}", status)
    assert said["title"]
    assert said["detail"]
    return said


# ---------------------------------------------------------------- enqueue


def test_order_is_accepted_with_its_place(world: World) -> None:
    answer = world.ask("POST", "/v1/jobs", json={"service": "s", "payload": "grüße", "priority": 7, "key": "k"})
    view = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/jobs/{view['id']}")
    assert (view["state"], view["priority"], view["key"], view["background"]) == ("waiting", 7, "k", True)
    assert world.job(view["id"]).payload == "grüße".encode()


def test_one_caller_cannot_take_all_names() -> None:
    """R29. A bug: a caller that enqueued to 12,000 new names used up max_services for everybody, for good."""
    world = World(max_services_per_caller=2)
    for name in ("a", "b"):
        assert world.ask("POST", f"/v1/jobs?service={name}").status_code == 202
    said = expect_problem(world.ask("POST", "/v1/jobs?service=c"), 429, "busy")
    assert "HTTP on this machine has jobs for 2 names" in said["detail"]
    assert "max_services_per_caller" in said["detail"]
    expect_problem(world.ask("POST", "/v1/call/c", headers={"dragoman-wait-for-worker": "true"}), 429, "busy")
    world.close()


def test_jobs_of_a_remote_address_count_together(world: World) -> None:
    """L8."""
    admitted = {"extensions": {ADMITTED: world.admission}}
    far, near = {"client": ("192.0.2.1", 1), **admitted}, {"client": ("::1", 1), **admitted}
    assert world.listener.owner(far) is world.broker.owners.at("192.0.2.1", world.broker.principals.local)
    assert (
        world.listener.owner(near)
        is world.listener.owner({"client": None, **admitted})
        is not world.listener.owner(far)
    )
    assert world.listener.owner(near).label == "HTTP on this machine"


def test_raw_body_is_the_payload_if_the_query_names_the_service(world: World) -> None:
    answer = world.ask("POST", "/v1/jobs?service=s&delay=5&priority=9&attempts=1", content=b"\x00\xff")
    view = answer.json()
    assert (answer.status_code, view["state"], view["priority"], view["max_attempts"]) == (202, "delayed", 9, 1)
    assert world.job(view["id"]).payload == b"\x00\xff"


def test_json_is_a_payload_like_any_other_if_the_query_names_the_service(world: World) -> None:
    answer = world.ask("POST", "/v1/jobs?service=s", json={"service": "other"})
    assert answer.json()["service"] == "s"
    assert world.job(answer.json()["id"]).payload == b'{"service":"other"}'


def test_a_whole_number_may_be_written_with_a_point(world: World) -> None:
    """JSON Schema calls 7.0 an integer."""
    answer = world.ask(
        "POST", "/v1/jobs", content=b'{"service":"s","priority":7.0}', headers={"content-type": "application/json"}
    )
    assert answer.json()["priority"] == 7


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "malformed-json"),
        (b"\xff", 400, "malformed-json"),
        (b"[" * 4000, 400, "malformed-json"),
        (b"[]", 422, "invalid"),
        (b"{}", 422, "invalid"),
        (b'{"service":5}', 422, "invalid"),
        (b'{"service":"s","priority":"7"}', 422, "invalid"),
        (b'{"service":"s","priority":10}', 422, "invalid"),
        (b'{"service":"s","priority":7.5}', 422, "invalid"),
        (b'{"service":"s","priority":1e300}', 422, "invalid"),
        (b'{"service":"s","colour":"red"}', 422, "invalid"),
        (b'{"service":"s","payload":"a","payload_base64":"AA=="}', 422, "invalid"),
        (b'{"service":"s","payload_base64":"?"}', 422, "invalid"),
        (b'{"service":"a\\u0007b"}', 422, "invalid"),
        (b'{"service":"s","not_before":"2030-01-01T00:00:00"}', 422, "invalid"),
        (b'{"service":"s","payload":"' + b"x" * MAX_PAYLOAD + b'"}', 413, "too-large"),
    ],
    ids=lambda each: each[:40] if isinstance(each, bytes) else None,
)
def test_an_order_that_is_none(world: World, body: bytes, status: int, kind: str) -> None:
    answer = world.ask("POST", "/v1/jobs", content=body, headers={"content-type": "application/json; charset=utf-8"})
    expect_problem(answer, status, kind)
    assert world.broker.jobs == {}


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("", 415, "wrong-content-type"),
        ("service=", 422, "invalid"),
        ("service=s&service=t", 422, "invalid"),
        ("service=s&delay=soon", 422, "invalid"),
        ("service=s&delay=nan", 422, "invalid"),
        ("service=s&delay=-1", 422, "invalid"),
        ("service=s&colour=red", 422, "invalid"),
        ("service=s&payload=x", 422, "invalid"),
    ],
)
def test_a_query_that_is_no_order(world: World, query: str, status: int, kind: str) -> None:
    expect_problem(world.ask("POST", f"/v1/jobs?{query}", content=b"x"), status, kind)
    assert world.broker.jobs == {}


def test_an_order_says_everything_in_its_body(world: World) -> None:
    expect_problem(world.ask("POST", "/v1/jobs?delay=5", json={"service": "s"}), 422, "invalid")


def test_too_large_a_payload(world: World) -> None:
    answer = world.ask("POST", "/v1/jobs?service=s", content=b"x" * (MAX_PAYLOAD + 1))
    assert str(MAX_PAYLOAD) in expect_problem(answer, 413, "too-large")["detail"]


def test_the_same_key_gives_the_same_job(world: World) -> None:
    """R123."""
    orders = [
        {"json": {"service": "s", "payload": "x"}, "headers": {"idempotency-key": "k"}},
        {"json": {"service": "s", "payload": "x", "key": "k"}, "headers": {"idempotency-key": "k"}},
        {"json": {"service": "s", "payload": "x", "key": "k"}},
    ]
    assert len({world.ask("POST", "/v1/jobs", **order).json()["id"] for order in orders}) == 1


def test_a_key_is_any_text(world: World) -> None:
    headers = {"idempotency-key": "schlüssel".encode()}
    assert world.ask("POST", "/v1/jobs?service=s", headers=headers).json()["key"] == "schlüssel"


def test_two_keys_are_one_too_many(world: World) -> None:
    answer = world.ask("POST", "/v1/jobs", json={"service": "s", "key": "a"}, headers={"idempotency-key": "b"})
    expect_problem(answer, 422, "invalid")


@pytest.mark.parametrize("key", [b"", b"\xff", b"x" * 257])
def test_a_key_that_is_none(world: World, key: bytes) -> None:
    expect_problem(world.ask("POST", "/v1/jobs?service=s", headers={"idempotency-key": key}), 422, "invalid")


def test_key_reused_for_another_payload(world: World) -> None:
    world.enqueue(payload="x", key="k")
    answer = world.ask("POST", "/v1/jobs", json={"service": "s", "payload": "y", "key": "k"})
    expect_problem(answer, 409, "key-reused")


def test_no_room() -> None:
    world = World(max_jobs_per_service=1)
    world.enqueue()
    answer = world.ask("POST", "/v1/jobs", json={"service": "s"})
    expect_problem(answer, 429, "busy")
    assert answer.headers["retry-after"] == "1"
    world.close()


def test_a_broker_that_is_about_to_stop(world: World) -> None:
    world.broker.operator.close(world.now)
    answer = world.ask("POST", "/v1/jobs", json={"service": "s"})
    expect_problem(answer, 503, "draining")
    assert "retry-after" in answer.headers


def test_operation_while_jobs_are_loaded(world: World) -> None:
    world.broker.job_registry.is_loading = True
    answer = world.ask("POST", "/v1/jobs", json={"service": "s", "key": "k"})
    expect_problem(answer, 503, "loading")
    assert answer.headers["retry-after"] == "1"


def test_enqueue_while_the_store_cannot_write(world: World) -> None:
    world.store.problem = "the disk is full"
    said = expect_problem(world.ask("POST", "/v1/jobs", json={"service": "s"}), 507, "store-unavailable")
    assert "the disk is full" in said["detail"]


# ---------------------------------------------------------------- enqueue and wait


def test_whoever_prefers_to_wait_gets_the_outcome(world: World) -> None:
    world.worker()
    asked = world.begin("POST", "/v1/jobs?service=s", content=b"x", headers={"prefer": "respond-async, wait=30"})
    assert not asked.done()
    (id,) = (each.hex() for each in world.broker.jobs)
    world.succeed(id, b"result")
    answer = world.finish(asked)
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=30")
    assert (answer.json()["outcome"], answer.json()["result"]) == ("done", "result")
    assert answer.headers["location"] == f"/v1/jobs/{id}"


@pytest.mark.parametrize("wait", [{}, {"prefer": "wait=30"}], ids=["at once", "who would wait"])
def test_an_order_of_a_key_whose_job_has_ended_gets_the_outcome(world: World, wait: dict[str, str]) -> None:
    """A bug: the response was 202, with the state *ended* and without the result."""
    order = {"service": "s", "payload": "x", "key": "k"}
    world.worker()
    id = world.ask("POST", "/v1/jobs", json=order).json()["id"]
    assert world.ask("POST", "/v1/jobs", json=order).status_code == 202
    world.succeed(id, b"result")
    answer = world.ask("POST", "/v1/jobs", json=order, headers=wait)
    assert (answer.status_code, answer.headers["location"]) == (200, f"/v1/jobs/{id}")
    assert (answer.json()["state"], answer.json()["result"]) == ("ended", "result")


def test_a_failure_comes_with_its_parts(world: World) -> None:
    world.worker()
    headers = {"prefer": "wait=30"}
    asked = world.begin("POST", "/v1/jobs?service=s&attempts=1", content=b"x", headers=headers)
    (id,) = (each.hex() for each in world.broker.jobs)
    world.fail(id, "ValueError: no", Failure("ValueError", "no", "Traceback"))
    view = world.finish(asked).json()
    assert (view["outcome"], view["result"]) == ("failed", None)
    assert view["error"] == {"type": "ValueError", "message": "no", "detail": "Traceback", "permanent": False}
    assert world.ask("GET", f"/v1/jobs/{id}").json()["error"]["type"] == "ValueError"


def test_patience_that_ends_before_the_job(world: World) -> None:
    asked = world.begin("POST", "/v1/jobs?service=s", content=b"x", headers={"prefer": "wait=30"})
    world.wait(29.9)
    assert not asked.done()
    world.wait(0.2)
    answer = world.finish(asked)
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")


@pytest.mark.parametrize("prefer", ["wait", "wait=soon", "wait=-1", "wait=nan", "handling=lenient", ""])
def test_a_preference_that_is_not_understood_is_overlooked(world: World, prefer: str) -> None:
    answer = world.ask("POST", "/v1/jobs?service=s", headers={"prefer": prefer})
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


def test_whoever_hangs_up_leaves_the_job_but_not_the_operations(world: World) -> None:
    asked = world.begin("POST", "/v1/jobs?service=s", content=b"x", headers={"prefer": "wait=30"})
    (job,) = world.broker.jobs.values()
    assert len(job.callers) == 1
    world.hangups[-1].happen()
    world.finish(asked)
    assert (job.callers, job.state.value) == ((), "waiting")
    assert world.operations.tick(world.now) > world.now + 1e6


# ---------------------------------------------------------------- one job


def test_a_job_is_shown(world: World) -> None:
    id = world.enqueue()
    view = world.ask("GET", f"/v1/jobs/{id}").json()
    assert (view["id"], view["service"], view["state"], view["outcome"]) == (id, "s", "waiting", None)
    assert view["created"] == "2027-01-15T08:16:40Z"


@pytest.mark.parametrize(
    ("result", "field", "shown"), [(b"text", "result", "text"), (b"\xff", "result_base64", "/w==")]
)
def test_an_ended_job_is_shown_with_its_result(world: World, result: bytes, field: str, shown: str) -> None:
    id = world.enqueue()
    world.worker()
    world.succeed(id, result)
    view = world.ask("GET", f"/v1/jobs/{id}").json()
    assert (view["state"], view["outcome"], view[field]) == ("ended", "done", shown)


OF_A_JOB = [("GET", ""), ("DELETE", ""), ("GET", "/result"), ("POST", "/retry"), ("GET", "/why")]


@pytest.mark.parametrize(("method", "rest"), OF_A_JOB)
def test_a_job_that_is_not_there(world: World, method: str, rest: str) -> None:
    expect_problem(world.ask(method, f"/v1/jobs/{UNKNOWN}{rest}"), 404, "not-found")


@pytest.mark.parametrize(("method", "rest"), OF_A_JOB)
@pytest.mark.parametrize("id", ["x", UNKNOWN[1:], UNKNOWN.replace("0", "A"), "0" * 33])
def test_an_id_that_is_none(world: World, method: str, rest: str, id: str) -> None:
    expect_problem(world.ask(method, f"/v1/jobs/{id}{rest}"), 422, "invalid")


@pytest.mark.parametrize(("method", "rest"), OF_A_JOB)
def test_a_job_that_may_not_have_been_read_yet(world: World, method: str, rest: str) -> None:
    world.broker.job_registry.is_loading = True
    expect_problem(world.ask(method, f"/v1/jobs/{UNKNOWN}{rest}"), 503, "loading")


def test_a_job_is_cancelled_once(world: World) -> None:
    id = world.enqueue()
    view = world.ask("DELETE", f"/v1/jobs/{id}").json()
    assert (view["state"], view["outcome"]) == ("ended", "cancelled")
    expect_problem(world.ask("DELETE", f"/v1/jobs/{id}"), 409, "conflict")


def test_why_a_job_waits(world: World) -> None:
    id = world.enqueue()
    assert world.ask("GET", f"/v1/jobs/{id}/why").json() == {
        "id": id,
        "why": "It waits: no worker offers 's'.",
        "kind": "no worker",
        "ahead": 0,
        "turn_in": None,
        "about": {"service": "s", "worker": None},
        "earlier": "",
        "more": "",
    }


def test_a_job_in_quarantine_is_tried_again(world: World) -> None:
    id = world.enqueue(attempts=1)
    expect_problem(world.ask("POST", f"/v1/jobs/{id}/retry"), 409, "conflict")
    world.worker()
    world.fail(id, "no")
    answer = world.ask("POST", f"/v1/jobs/{id}/retry")
    again = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/jobs/{again['id']}")
    assert again["retry_of"] == id


# ---------------------------------------------------------------- results


def test_a_result_is_bytes(world: World) -> None:
    id = world.enqueue()
    world.worker()
    world.succeed(id, b"\x00\xff")
    answer = world.ask("GET", f"/v1/jobs/{id}/result")
    assert (answer.status_code, answer.content) == (200, b"\x00\xff")
    assert (answer.headers["content-type"], answer.headers["dragoman-job"]) == ("application/octet-stream", id)


def test_a_result_that_is_not_there_yet(world: World) -> None:
    id = world.enqueue()
    answer = world.ask("GET", f"/v1/jobs/{id}/result")
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")


def test_a_result_that_is_waited_for(world: World) -> None:
    id = world.enqueue()
    world.worker()
    asked = world.begin("GET", f"/v1/jobs/{id}/result?wait=10")
    world.succeed(id, b"r")
    assert world.finish(asked).content == b"r"


def test_a_result_that_is_waited_for_in_vain(world: World) -> None:
    id = world.enqueue()
    asked = world.begin("GET", f"/v1/jobs/{id}/result?wait=10")
    world.wait(10.1)
    assert world.finish(asked).status_code == 202


def test_whoever_waits_for_a_result_may_hang_up(world: World) -> None:
    id = world.enqueue()
    asked = world.begin("GET", f"/v1/jobs/{id}/result?wait=10")
    world.hangups[-1].happen()
    world.finish(asked)
    assert world.job(id).callers == ()


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
def test_a_job_that_failed_has_no_result(world: World, outcome: Outcome) -> None:
    id = world.enqueue(attempts=1)
    world.worker()
    world.fail(id, "ValueError: no", Failure("ValueError", "no", "here"), outcome)
    said = expect_problem(world.ask("GET", f"/v1/jobs/{id}/result"), 502, outcome.value)
    assert (said["detail"], said["job"]) == ("ValueError: no", id)
    assert said["error"] == {"type": "ValueError", "message": "no", "detail": "here", "permanent": False}


def test_a_job_that_timed_out_has_no_result(world: World) -> None:
    id = world.enqueue(attempts=1, timeout=5)
    world.worker()
    world.wait(6)
    expect_problem(world.ask("GET", f"/v1/jobs/{id}/result"), 504, "timed-out")


def test_a_cancelled_job_has_no_result(world: World) -> None:
    id = world.enqueue()
    world.ask("DELETE", f"/v1/jobs/{id}")
    expect_problem(world.ask("GET", f"/v1/jobs/{id}/result"), 409, "cancelled")


@pytest.mark.parametrize("query", ["wait=x", "wait=-1", "wait=3601", "weight=1", "wait=1&wait=2"])
def test_a_wait_that_is_none(world: World, query: str) -> None:
    id = world.enqueue()
    expect_problem(world.ask("GET", f"/v1/jobs/{id}/result?{query}"), 422, "invalid")


# ---------------------------------------------------------------- listings


def test_jobs_are_listed_page_by_page(world: World) -> None:
    ids = [world.enqueue() for _ in range(5)]
    path: str | None = "/v1/jobs?limit=2&service=s&quarantined=false"
    pages = []
    while path is not None:
        answer = world.ask("GET", path)
        pages.append([each["id"] for each in answer.json()["jobs"]])
        path = answer.links["next"]["url"] if "next" in answer.links else None
        assert (path is None) == (answer.json()["after"] is None)
    assert pages == [ids[:2:-1], ids[2:0:-1], ids[:1]]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 3),
        ("service=s", 2),
        ("service=none", 0),
        ("state=delayed", 1),
        ("state=ended&outcome=failed", 1),
        ("quarantined=true", 1),
        ("quarantined=false", 2),
        ("outcome=timed+out", 0),
    ],
)
def test_jobs_are_chosen(world: World, query: str, count: int) -> None:
    id = world.enqueue(attempts=1)
    world.worker()
    world.fail(id, "no")
    world.enqueue("t")
    world.enqueue("s", delay=60)
    assert len(world.ask("GET", f"/v1/jobs?{query}").json()["jobs"]) == count


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "state=asleep", "colour=red", "after=x", "state=null"]
)
def test_a_choice_that_is_none(world: World, query: str) -> None:
    expect_problem(world.ask("GET", f"/v1/jobs?{query}"), 422, "invalid")


# ---------------------------------------------------------------- services


def test_services_are_listed_and_shown(world: World) -> None:
    world.enqueue("a/b ü")
    world.worker("s")
    names = [each["name"] for each in world.ask("GET", "/v1/services").json()["services"]]
    assert names == ["a/b ü", "s"]
    assert world.ask("GET", "/v1/services/a%2Fb%20%C3%BC").json()["waiting"] == 1


def test_a_service_is_paused_and_resumed(world: World) -> None:
    view = world.ask("POST", "/v1/services/s/pause").json()
    assert (view["paused"], view["paused_by"]) == (True, "an operator")
    view = world.ask("POST", "/v1/services/s/pause", json={"by": "Ada"}).json()
    assert (view["paused"], view["paused_by"]) == (True, "Ada")
    assert world.ask("POST", "/v1/services/s/resume").json()["paused"] is False


def test_jobs_are_retried_cancelled_and_deleted_by_filter(world: World) -> None:
    ids = [world.enqueue(), world.enqueue(delay=60), world.enqueue("other")]
    answer = world.ask("POST", "/v1/jobs/cancel", json={"service": "s"})
    view = answer.json()
    assert (answer.status_code, view["act"], view["of"], view["done"], view["over"]) == (202, "cancel", 2, 2, True)
    assert world.ask("GET", f"/v1/bulk/{view['id']}").json() == view
    assert world.ask("DELETE", f"/v1/bulk/{view['id']}").json() == view
    assert world.ask("POST", "/v1/jobs/retry", json={"all": True}).json()["of"] == 0
    counted = world.ask("POST", "/v1/jobs/delete", json={"outcome": "cancelled", "dry_run": True}).json()
    assert [each["id"] for each in counted["jobs"]] == ids[:2]
    assert world.ask("DELETE", f"/v1/jobs/{ids[0]}/outcome").json()["id"] == ids[0]
    assert world.ask("POST", "/v1/jobs/delete", json={"service": "s"}).json()["done"] == 1
    expect_problem(world.ask("GET", f"/v1/jobs/{ids[1]}"), 404, "not-found")
    expect_problem(world.ask("DELETE", f"/v1/jobs/{ids[2]}/outcome"), 409, "conflict")
    expect_problem(world.ask("POST", "/v1/jobs/cancel"), 422, "invalid")
    expect_problem(world.ask("GET", f"/v1/bulk/{'0' * 32}"), 404, "not-found")


def test_a_job_is_found_by_its_key(world: World) -> None:
    answer = world.ask("POST", "/v1/jobs?service=s&unique=waiting&keep=forever", headers={"Idempotency-Key": "a/b"})
    found = world.ask("GET", "/v1/jobs/find?service=s&key=a/b").json()
    assert (found["id"], found["unique"], found["keep"]) == (answer.json()["id"], "waiting", "forever")
    expect_problem(world.ask("GET", "/v1/jobs/find?service=s&key=b"), 404, "not-found")


def test_a_time_in_a_query_is_no_number(world: World) -> None:
    """Found by schemathesis: a number was read as seconds since 1970."""
    expect_problem(world.ask("GET", "/v1/jobs?until=0.5"), 422, "invalid")
    assert world.ask("GET", "/v1/jobs?until=2030-01-01T08:00:00Z").status_code == 200


def test_a_service_is_purged(world: World) -> None:
    ids = [world.enqueue(), world.enqueue(delay=60)]
    assert world.ask("POST", "/v1/services/s/purge").json() == {"name": "s", "purged": 2}
    assert world.ask("GET", f"/v1/jobs/{ids[0]}").json()["outcome"] == "cancelled"
    assert world.ask("POST", "/v1/services/s/purge", json={"states": ["ended"]}).json() == {"name": "s", "purged": 2}
    expect_problem(world.ask("GET", f"/v1/jobs/{ids[0]}"), 404, "not-found")


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("POST", "/resume"), ("POST", "/purge")])
def test_a_service_that_is_not_there(world: World, method: str, rest: str) -> None:
    expect_problem(world.ask(method, f"/v1/services/none{rest}"), 404, "not-found")


@pytest.mark.parametrize("rest", ["/pause", "/resume", "/purge"])
@pytest.mark.parametrize("name", ["x" * 129, "a%07b"])
def test_a_service_name_that_is_none(world: World, rest: str, name: str) -> None:
    answer = world.ask("POST", f"/v1/services/{name}{rest}")
    assert answer.status_code in (404, 422)
    assert world.broker.worker_registry.services == {}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/services/s/pause", {"by": ""}),
        ("/v1/services/s/pause", {"name": "t"}),
        ("/v1/services/s/purge", {"states": ["running"]}),
        ("/v1/services/s/purge", {"states": "ended"}),
        ("/v1/workers/1/drain", {"now": "yes"}),
    ],
)
def test_a_body_that_says_what_cannot_be_meant(world: World, path: str, body: Any) -> None:
    world.worker()
    expect_problem(world.ask("POST", path, json=body), 422, "invalid")


def test_a_body_of_the_wrong_kind(world: World) -> None:
    answer = world.ask("POST", "/v1/services/s/pause", content=b"by=me")
    expect_problem(answer, 415, "wrong-content-type")


def test_change_that_the_store_cannot_write(world: World) -> None:
    world.store.problem = "the disk is full"
    expect_problem(world.ask("POST", "/v1/services/s/pause"), 507, "store-unavailable")


# ---------------------------------------------------------------- workers


def test_workers_are_listed_shown_and_drained(world: World) -> None:
    worker = world.worker("s", name="ada")
    (listed,) = world.ask("GET", "/v1/workers").json()["workers"]
    assert (listed["name"], listed["state"], listed["services"]) == ("ada", "idle", ["s"])
    id = world.enqueue()
    assert world.ask("GET", f"/v1/workers/{worker.id}").json()["running"] == [id]
    assert world.ask("POST", f"/v1/workers/{worker.id}/drain").json()["state"] == "draining"
    assert world.ask("POST", f"/v1/workers/{worker.id}/drain", json={"now": True}).json()["state"] == "gone"


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("POST", "/drain")])
@pytest.mark.parametrize(
    ("id", "status", "kind"), [("9", 404, "not-found"), ("x", 422, "invalid"), ("-1", 422, "invalid")]
)
def test_a_worker_that_is_not_there(world: World, method: str, rest: str, id: str, status: int, kind: str) -> None:
    expect_problem(world.ask(method, f"/v1/workers/{id}{rest}"), status, kind)


# ---------------------------------------------------------------- recurring jobs


def test_schedule_is_set_shown_paused_resumed_and_deleted(world: World) -> None:
    view = world.ask("PUT", "/v1/schedules/a%2Fb", json={"service": "s", "every": 60, "payload": "x"}).json()
    assert (view["name"], view["every"], view["paused"]) == ("a/b", 60, False)
    assert world.ask("GET", "/v1/schedules/a%2Fb").json() == view
    assert world.ask("GET", "/v1/schedules").json() == {"schedules": [view]}
    assert world.ask("POST", "/v1/schedules/a%2Fb/pause").json()["paused"] is True
    assert world.ask("POST", "/v1/schedules/a%2Fb/resume").json()["paused"] is False
    world.wait(61)
    (made,) = world.ask("GET", "/v1/jobs").json()["jobs"]
    assert made["service"] == "s"
    assert world.ask("DELETE", "/v1/schedules/a%2Fb").json()["runs"] == 1
    assert world.ask("GET", "/v1/schedules").json() == {"schedules": []}


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")])
def test_unknown_schedule(world: World, method: str, rest: str) -> None:
    expect_problem(world.ask(method, f"/v1/schedules/none{rest}"), 404, "not-found")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("n", {}),
        ("n", {"service": "s"}),
        ("n", {"service": "s", "every": 0.5}),
        ("n", {"service": "s", "every": 60, "cron": "* * * * *"}),
        ("n", {"service": "s", "cron": "nonsense"}),
        ("n", {"service": "s", "cron": "* * * * *", "timezone": "Middle/Earth"}),
        ("n", {"service": "s", "every": 60, "name": "n"}),
        ("n" * 129, {"service": "s", "every": 60}),
        ("a%07b", {"service": "s", "every": 60}),
    ],
)
def test_invalid_schedule(world: World, name: str, body: Any) -> None:
    expect_problem(world.ask("PUT", f"/v1/schedules/{name}", json=body), 422, "invalid")
    assert world.ask("GET", "/v1/schedules").json() == {"schedules": []}


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "path", ["/v2", "/v1/jobs/", "/v1/jobs/x/y", "/v1/services//pause", "/v1/services/%FF", "/%2e%2e/etc/passwd"]
)
def test_a_path_that_leads_nowhere(world: World, path: str) -> None:
    expect_problem(world.ask("GET", path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/jobs", "GET, HEAD, POST"),
        ("PUT", f"/v1/jobs/{UNKNOWN}", "DELETE, GET, HEAD"),
        ("GET", "/v1/services/s/pause", "POST"),
        ("OPTIONS", "/v1/schedules/x", "DELETE, GET, HEAD, PUT"),
    ],
)
def test_a_method_that_a_path_does_not_know(world: World, method: str, path: str, allowed: str) -> None:
    answer = world.ask(method, path)
    expect_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allowed


def test_a_head_is_a_get_without_the_body(world: World) -> None:
    assert world.ask("HEAD", "/v1/services").status_code == 200


def test_null_is_no_limit_in_a_body_and_in_a_query(world: World) -> None:
    """The default of 60 seconds applies only if the field is missing."""
    for answer, limit in (
        (world.ask("POST", "/v1/jobs", json={"service": "s", "timeout": None}), inf),
        (world.ask("POST", "/v1/jobs?service=s&timeout=null", content=b""), inf),
        (world.ask("POST", "/v1/jobs?service=s", content=b""), 60.0),
        (world.ask("POST", "/v1/jobs?service=s&timeout=5", content=b""), 5.0),
    ):
        assert world.job(answer.json()["id"]).options.job_timeout == limit
    assert world.ask("POST", "/v1/jobs?service=s&retry_first=null", content=b"").status_code == 422


# ---------------------------------------------------------------- extras (R200, R202)

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PARENT = "5f" * 16


def test_enqueue_takes_parent_and_trace_from_headers_or_fields(world: World) -> None:
    headers = {"dragoman-parent-job": PARENT, "traceparent": TRACE}
    for view in (
        world.ask("POST", "/v1/jobs?service=s", content=b"x", headers=headers).json(),
        world.ask("POST", "/v1/jobs", json={"service": "s"}, headers=headers).json(),
        world.ask("POST", "/v1/jobs", json={"service": "s", "parent": PARENT, "traceparent": TRACE}).json(),
    ):
        assert (view["parent"], view["traceparent"]) == (PARENT, TRACE)
    given = {"service": "s", "parent": UNKNOWN}
    assert world.ask("POST", "/v1/jobs", json=given, headers=headers).json()["parent"] == UNKNOWN
    wrong = world.ask("POST", "/v1/jobs", json={"service": "s"}, headers={"dragoman-parent-job": "mine"})
    assert expect_problem(wrong, 422, "invalid")["detail"].startswith("Dragoman-Parent-Job: ")
