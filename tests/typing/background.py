"""Types of background jobs and of all operations, for type checkers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, assert_type

from dragoman import (
    AsyncClient,
    BulkView,
    Client,
    GroupView,
    HealthView,
    JobView,
    NewJob,
    ScheduleView,
    ServiceView,
    WorkerView,
)
from dragoman.operations.cluster_schemas import ClusterView
from dragoman.operations.dashboard_schemas import OverviewView, SeriesView
from dragoman.operations.ladder_schemas import ConversationView
from dragoman.operations.list_schemas import (
    BrokerView,
    FleetView,
    JobCountsView,
    ListenerView,
    ListJobsRequest,
    WhyView,
)
from dragoman.operations.quarantine_schemas import QuarantineGroupView, RetryGroupView
from dragoman.operations.schemas import AccessView, EmptyRequest, JobRef
from dragoman.operations.table import JOBS, WHY
from dragoman.sdk.operation_steps import Page

with Client("tcp://127.0.0.1:7400") as client:
    job = client.enqueue("resize", b"big", delay=60, key="42", attempts=5, retry_first=1, not_before=datetime.now(UTC))
    assert_type(job, str)
    assert_type(client.enqueue("describe", {"picture": 42}, codec="json"), str)
    assert_type(client.enqueue("pack", after=[job], after_failure="run", input="result"), str)
    assert_type(client.enqueue_many("resize", [b"big", b"bigger"], attempts=5), list[str])
    group = client.enqueue_group("resize", [b"big", b"bigger"], priority=9)
    assert_type(group, str)
    first = NewJob("resize", b"big")
    assert_type(client.enqueue_jobs([first, NewJob("pack", after=[first], input="result")]), list[str])
    assert_type(client.group(group), GroupView)
    assert_type(client.group_results(group, 30), list[bytes])
    assert_type(client.group_results(group, errors="return"), list[Any])
    assert_type(client.cancel_group(group), GroupView)
    client.enqueue("resize", b"big", key="nightly", unique="unfinished", keep="forever")
    client.enqueue("resize", unique="once")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.enqueue("resize", keep="long")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(client.find_job("resize", "nightly"), JobView)
    assert_type(client.delete(job), str)
    assert_type(client.retry_jobs(service="resize", reason="memory", since=datetime.now(UTC)), BulkView)
    assert_type(client.cancel_jobs(all=True, state="delayed", dry_run=True), BulkView)
    bulk = client.delete_jobs(outcome="done", quarantined=False, rate=100)
    assert_type(client.bulk_act(bulk.id).done, int)
    assert_type(client.stop_bulk_act(bulk.id), BulkView)
    assert_type(client.result(job), bytes)
    assert_type(client.result(job, 30), bytes)
    assert_type(client.result(job, timeout=30, codec="bytes"), bytes)
    assert_type(client.result(job, codec="json"), Any)
    assert_type(client.job(job), JobView)
    assert_type(client.job(job).attempts[0].worker, str)
    assert_type(client.job(job).attempts[0].started, datetime | None)
    assert_type(client.payload(job), bytes)
    assert_type(client.jobs(service="resize", state="waiting", limit=10), list[JobView])
    assert_type(client.job_counts(), JobCountsView)
    assert_type(client.cancel(job), bool)
    assert_type(client.retry(job), str)
    assert_type(client.why(job), str)
    assert_type(client.ladder(job), ConversationView)
    assert_type(client.worker_ladder(7), ConversationView)
    assert_type(client.services(), list[ServiceView])
    assert_type(client.service("resize"), ServiceView)
    assert_type(client.pause("resize", by="me"), ServiceView)
    assert_type(client.limit("resize", max_running=4, rate="100/min"), ServiceView)
    assert_type(client.resume("resize"), ServiceView)
    assert_type(client.purge("resize", states=["waiting"]), int)
    assert_type(client.workers(), list[WorkerView])
    assert_type(client.workers(state="busy", sort="slow", limit=10), list[WorkerView])
    assert_type(client.fleet(), FleetView)
    assert_type(client.listeners(), list[ListenerView])
    assert_type(client.broker(), BrokerView)
    assert_type(client.cluster(), ClusterView)
    assert_type(client.release_shards("eu1"), ClusterView)
    assert_type(client.health(), HealthView)
    assert_type(client.overview("1h"), OverviewView)
    assert_type(client.service_series("resize"), SeriesView)
    assert_type(client.reload_access(), AccessView)
    assert_type(client.worker(7), WorkerView)
    assert_type(client.drain(7, now=True), WorkerView)
    assert_type(client.schedules(), list[ScheduleView])
    assert_type(client.schedule("nightly"), ScheduleView)
    assert_type(
        client.set_schedule("nightly", "resize", b"all", cron="0 3 * * *", timezone="Europe/Rome"), ScheduleView
    )
    assert_type(client.delete_schedule("nightly"), ScheduleView)
    assert_type(client.pause_schedule("nightly"), ScheduleView)
    assert_type(client.resume_schedule("nightly"), ScheduleView)
    assert_type(client.run_schedule("nightly"), ScheduleView)
    assert_type(client.quarantine(), list[QuarantineGroupView])
    assert_type(client.retry_group("9f2c61e07ad35b18", rate=5), RetryGroupView)
    assert_type(client.operation(WHY, JobRef(id=job)), WhyView)
    assert_type(client.pages(JOBS, ListJobsRequest(limit=5_000)), Iterator[Page])

    client.enqueue("resize", after=[42])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    NewJob("resize", patience=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.enqueue("resize", patience=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.enqueue("resize", delay="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.result(42)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    client.workers(sort="age")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.jobs(state="asleep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.drain(7, True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.operation(WHY, EmptyRequest())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    client.set_schedule("nightly", "resize", hourly=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

with Client(codec="json") as objects:
    assert_type(objects.result(job), Any)
    assert_type(objects.result(job, codec="bytes"), bytes)


async def main() -> None:
    async with AsyncClient("tcp://127.0.0.1:7400") as client:
        job = await client.enqueue("resize", b"big", delay=60, key="42", unique="waiting", keep=60)
        assert_type(await client.find_job("resize", "42"), JobView)
        assert_type(await client.delete(job), str)
        assert_type(await client.retry_jobs(service="resize"), BulkView)
        assert_type(await client.cancel_jobs(all=True), BulkView)
        bulk = await client.delete_jobs(outcome="done")
        assert_type((await client.bulk_act(bulk.id)).over, bool)
        assert_type(await client.stop_bulk_act(bulk.id), BulkView)
        assert_type(job, str)
        assert_type(await client.enqueue_many("resize", [b"big", b"bigger"], attempts=5), list[str])
        group = await client.enqueue_group("resize", [b"big", b"bigger"])
        assert_type(group, str)
        assert_type(await client.enqueue_jobs([NewJob("resize", b"big")]), list[str])
        assert_type(await client.group(group), GroupView)
        assert_type(await client.group_results(group, 30), list[bytes])
        assert_type(await client.cancel_group(group), GroupView)
        assert_type(await client.result(job, timeout=30), bytes)
        assert_type(await client.result(job, codec="json"), Any)
        assert_type(await client.job(job), JobView)
        assert_type(await client.payload(job), bytes)
        assert_type(await client.jobs(quarantined=True), list[JobView])
        assert_type(await client.job_counts("resize"), JobCountsView)
        assert_type(await client.cancel(job), bool)
        assert_type(await client.retry(job), str)
        assert_type(await client.why(job), str)
        assert_type(await client.ladder(job), ConversationView)
        assert_type(await client.worker_ladder(7), ConversationView)
        assert_type(await client.services(), list[ServiceView])
        assert_type(await client.service("resize"), ServiceView)
        assert_type(await client.pause("resize", by="me"), ServiceView)
        assert_type(await client.limit("resize", max_running=4, rate="100/min"), ServiceView)
        assert_type(await client.resume("resize"), ServiceView)
        assert_type(await client.purge("resize", states=["waiting"]), int)
        assert_type(await client.workers(), list[WorkerView])
        assert_type(await client.fleet(), FleetView)
        assert_type(await client.listeners(), list[ListenerView])
        assert_type(await client.broker(), BrokerView)
        assert_type(await client.cluster(), ClusterView)
        assert_type(await client.release_shards("eu1"), ClusterView)
        assert_type(await client.health(), HealthView)
        assert_type(await client.overview(), OverviewView)
        assert_type(await client.service_series("resize", "24h"), SeriesView)
        assert_type(await client.reload_access(), AccessView)
        assert_type(await client.worker(7), WorkerView)
        assert_type(await client.drain(7, now=True), WorkerView)
        assert_type(await client.schedules(), list[ScheduleView])
        assert_type(await client.schedule("tick"), ScheduleView)
        assert_type(await client.set_schedule("tick", "resize", every=60), ScheduleView)
        assert_type(await client.delete_schedule("tick"), ScheduleView)
        assert_type(await client.pause_schedule("tick"), ScheduleView)
        assert_type(await client.resume_schedule("tick"), ScheduleView)
        assert_type(await client.run_schedule("tick"), ScheduleView)
        assert_type(await client.quarantine(), list[QuarantineGroupView])
        assert_type(await client.retry_group("9f2c61e07ad35b18"), RetryGroupView)
        assert_type(await client.operation(WHY, JobRef(id=job)), WhyView)
        assert_type(client.pages(JOBS, ListJobsRequest(limit=5_000)), AsyncIterator[Page])
        await client.enqueue("resize", patience=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
