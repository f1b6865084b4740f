"""Routes of operations: the operation gets the request that a client writes by the table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from http_world import World

from case_tables import check_every_row
from dragoman.operations.bulk_schemas import BulkRef, CancelJobsRequest, DeleteJobsRequest, RetryJobsRequest
from dragoman.operations.cluster_schemas import BrokerRef, NamedBroker
from dragoman.operations.dashboard_schemas import OverviewRequest, ServiceSeriesRequest
from dragoman.operations.group_schemas import BatchJob, EnqueueManyRequest, GroupRef, GroupResultsRequest
from dragoman.operations.handlers import FUNCTIONS
from dragoman.operations.http_requests import target_of
from dragoman.operations.ladder_schemas import LadderRequest, WorkerLadderRequest
from dragoman.operations.limit_schemas import LimitRequest
from dragoman.operations.list_schemas import (
    FindJobRequest,
    JobCountsRequest,
    ListJobsRequest,
    ListServicesRequest,
    ListWorkersRequest,
)
from dragoman.operations.permissions import Permissions
from dragoman.operations.quarantine_schemas import RetryGroupRequest
from dragoman.operations.schemas import (
    DrainRequest,
    EmptyRequest,
    EnqueueRequest,
    JobAct,
    JobRef,
    OperationError,
    OperationRequest,
    PauseRequest,
    PurgeRequest,
    ResultRequest,
    ScheduleAct,
    ScheduleRef,
    ScheduleRequest,
    ServiceRef,
    WorkerRef,
)
from dragoman.operations.table import HEALTH, OPERATIONS

ID = "0197f3a2c4d87b12a9e05c61f38d2b74"
MOMENT = datetime(2030, 1, 1, 8, tzinfo=UTC)

# For each type of request: one in which as little as possible is said, and one in which everything is.
REQUESTS: dict[type[OperationRequest], list[OperationRequest]] = {
    BrokerRef: [BrokerRef(broker="eu1")],
    NamedBroker: [NamedBroker(), NamedBroker(broker="eu2")],
    EnqueueRequest: [
        EnqueueRequest(service="s"),
        EnqueueRequest(
            service="ä/ö",
            payload="p",
            delay=1.5,
            not_before=MOMENT,
            priority=9,
            attempts=1,
            timeout=None,
            key="k",
            unique="unfinished",
            keep="forever",
            request_id="r",
            retry_first=1.0,
            retry_cap=2.0,
            retry_jitter=0.5,
            after=(ID, ID),
            after_failure="run",
            input="results",
        ),
    ],
    EnqueueManyRequest: [
        EnqueueManyRequest(service="s", jobs=(BatchJob(),)),
        EnqueueManyRequest(
            delay=1.5,
            not_before=MOMENT,
            priority=9,
            attempts=1,
            timeout=None,
            retry_first=1.0,
            retry_cap=2.0,
            retry_jitter=0.5,
            group=True,
            group_id=ID,
            request_id="r",
            jobs=(BatchJob(service="s", id=ID, timeout=None, after=(0, ID), key="k"), BatchJob(payload="p", group=ID)),
        ),
    ],
    GroupRef: [GroupRef(id=ID)],
    GroupResultsRequest: [GroupResultsRequest(id=ID), GroupResultsRequest(id=ID, wait=2.5, start=7)],
    JobRef: [JobRef(id=ID)],
    JobAct: [JobAct(id=ID), JobAct(id=ID, request_id="r/1")],
    ResultRequest: [ResultRequest(id=ID), ResultRequest(id=ID, wait=2.5)],
    ListJobsRequest: [
        ListJobsRequest(),
        ListJobsRequest(service="a b&c", state="ended", outcome="timed out", quarantined=False, limit=7, after=ID),
        ListJobsRequest(kind="call", caller="http", worker="w/1", text="50 % off", undone=True, group=ID, parent=ID),
    ],
    FindJobRequest: [FindJobRequest(service="ä", key="a/b c"), FindJobRequest(service="s", key="k", owner="web")],
    RetryJobsRequest: [RetryJobsRequest(), RetryJobsRequest(service="ä", reason="50 %", outcome="lost", rate=2.5)],
    CancelJobsRequest: [CancelJobsRequest(state="delayed", since=MOMENT, until=MOMENT, all=True, dry_run=True)],
    DeleteJobsRequest: [DeleteJobsRequest(outcome="done", quarantined=False, lease=10.0, id=ID)],
    BulkRef: [BulkRef(id=ID)],
    JobCountsRequest: [JobCountsRequest(), JobCountsRequest(service="ä")],
    ListServicesRequest: [
        ListServicesRequest(),
        ListServicesRequest(sort="need", text="a b", limit=1_000, after="1.5/-2.0/a/b"),
    ],
    ListWorkersRequest: [
        ListWorkersRequest(),
        ListWorkersRequest(state="backing off", dialect="native", service="s", text="x&y", sort="slow", limit=1),
    ],
    EmptyRequest: [EmptyRequest()],
    OverviewRequest: [OverviewRequest(), OverviewRequest(range="24h")],
    ServiceSeriesRequest: [ServiceSeriesRequest(name="ä/ö ?", range="1h")],
    RetryGroupRequest: [RetryGroupRequest(group="0" * 16), RetryGroupRequest(group="9f2c61e07ad35b18", rate=0.5)],
    ServiceRef: [ServiceRef(name="ä/ö ?")],
    PauseRequest: [PauseRequest(name="a/b"), PauseRequest(name="s", by="Ada")],
    LimitRequest: [
        LimitRequest(name="a/b", max_running=0, max_running_per_tenant=3, rate="100/min", reset=True),
        LimitRequest(name="s"),
    ],
    PurgeRequest: [PurgeRequest(name="s"), PurgeRequest(name="s", states=("ended",), request_id="r")],
    WorkerRef: [WorkerRef(id=7)],
    LadderRequest: [LadderRequest(id=ID), LadderRequest(id=ID, format="svg")],
    WorkerLadderRequest: [WorkerLadderRequest(id=7), WorkerLadderRequest(id=7, format="text")],
    DrainRequest: [DrainRequest(id=7), DrainRequest(id=7, now=True)],
    ScheduleRef: [ScheduleRef(name="every day")],
    ScheduleAct: [ScheduleAct(name="n"), ScheduleAct(name="every day", request_id="r/1")],
    ScheduleRequest: [
        ScheduleRequest(name="n", service="s", every=30.0),
        ScheduleRequest(
            name="n",
            service="s",
            cron="0 3 * * *",
            timezone="Europe/Vienna",
            overlap=True,
            paused=True,
            payload_base64="eA==",
            priority=0,
            attempts=9,
            timeout=None,
            retry_first=1.0,
            retry_cap=2.0,
            retry_jitter=0.5,
        ),
    ],
}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_an_operation_gets_the_request_that_a_client_has_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []

    def note(operations: object, form: Any, payload: bytes, responder: object, now: float) -> None:
        got.append(form)
        raise OperationError("conflict", "noted")

    for name in OPERATIONS:
        monkeypatch.setitem(FUNCTIONS, name, note)
    monkeypatch.setattr(Permissions, "check", lambda *_: None)  # it finds the targets, which do not exist here

    def check(name: str, request: OperationRequest) -> None:
        got.clear()
        row = OPERATIONS[name]
        said = {field: each for field, each in msgspec.to_builtins(request).items() if field not in row.path_fields}
        body = msgspec.json.encode(said) if row.has_body else None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        answer = world.ask(row.method, target_of(row, request), content=body, headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (409, "noted")
        assert got == [request]

    rows = [row for row in OPERATIONS.values() if row is not HEALTH]  # which is answered before all else
    check_every_row(check, [(row.name, each) for row in rows for each in REQUESTS[row.request]])


def test_every_error_of_an_operation_is_in_the_document(world: World) -> None:
    document = world.ask("GET", "/openapi.json").json()
    for row in OPERATIONS.values():
        told = document["paths"][row.path][row.method.lower()]
        assert told["description"].startswith(row.summary), row.name
        assert ("507" in told["responses"]) == row.writes, row.name
        has_invalid = "invalid" in row.errors or bool(row.request.__struct_fields__)
        assert ("422" in told["responses"]) == has_invalid, row.name
        needs_right = row.target not in ("list", "none") or "forbidden" in row.errors
        assert ("403" in told["responses"]) == needs_right, row.name
        assert ("requestBody" in told) == row.has_body, row.name


def test_requests_with_the_same_query_are_separate(world: World) -> None:
    """A parsed query is cached; the header of one request must not reach the next."""
    query = "/v1/jobs?service=cached&priority=7"
    first = world.ask("POST", query, content=b"1", headers={"Idempotency-Key": "k"}).json()
    second = world.ask("POST", query, content=b"2").json()
    assert (first.get("key"), second.get("key")) == ("k", None)
    assert [job.options.priority for job in world.broker.jobs.values()] == [7, 7]
