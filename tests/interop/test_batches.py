"""Batches, groups and jobs after others through clients: native and HTTP, blocking and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dragoman import (
    AsyncClient,
    Client,
    Context,
    JobCancelled,
    JobFailed,
    JobTimeout,
    LocalBroker,
    NewJob,
    NoSuchGroup,
    NotFound,
    PartlyEnqueued,
    PayloadTooLarge,
    unpack_results,
)
from dragoman.sdk import batch_steps
from dragoman.testing.workers import WorkerThread
from programs import PATIENCE

UNKNOWN = "0" * 32
URLS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")


def upper(text: bytes) -> bytes:
    if text == b"fail":
        raise ValueError("as requested")
    return text.upper()


def count_results(payload: bytes) -> bytes:
    own, entries = unpack_results(payload)
    return own + b" %d" % sum(len(each) if isinstance(each, list) else 1 for each in entries)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(*URLS) as broker:
        yield broker


@pytest.fixture(scope="module", autouse=True)
def worker(broker: LocalBroker) -> Iterator[None]:
    functions: dict[str, Callable[..., Any]] = {"upper": upper, "count": count_results, "trace": trace_of}
    worker = WorkerThread(broker, (), functions)
    yield
    worker.close()


@pytest.fixture(params=["native", "http"])
def client(broker: LocalBroker, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(broker.urls[request.param]) as client:
        yield client


def test_many_jobs_are_enqueued_at_once(client: Client) -> None:
    ids = client.enqueue_many("upper", [b"a", b"b", b"c"], priority=9)
    assert [client.result(id, PATIENCE) for id in ids] == [b"A", b"B", b"C"]
    assert client.job(ids[0]).priority == 9
    assert client.enqueue_many("upper", []) == []


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def trace_of(_: bytes, ctx: Context) -> bytes:
    return ctx.traceparent.encode()


def test_jobs_of_a_batch_have_tenant_parent_and_trace(client: Client) -> None:
    """Those of the batch, unless a job names its own."""
    ids = client.enqueue_many("trace", [b"", b""], tenant="acme", parent=UNKNOWN, traceparent=TRACE)
    assert [client.result(id, PATIENCE) for id in ids] == [TRACE.encode()] * 2
    assert [(view.tenant, view.parent) for view in map(client.job, ids)] == [("acme", UNKNOWN)] * 2
    group = client.enqueue_group("trace", [b""], tenant="acme", parent=UNKNOWN)
    assert [(view.tenant, view.parent) for view in client.jobs(group=group)] == [("acme", UNKNOWN)]
    first = NewJob("trace", tenant="other", traceparent=TRACE)
    last = NewJob("trace", after=[first], tenant="acme", parent=first.id)
    assert [client.result(id, PATIENCE) for id in client.enqueue_jobs([first, last])] == [TRACE.encode(), b""]
    found = [client.job(each.id) for each in (first, last)]
    assert [(view.tenant, view.parent) for view in found] == [("other", None), ("acme", first.id)]


def test_group_has_progress_and_results(client: Client) -> None:
    group = client.enqueue_group("upper", [b"a", b"\xff", b""])
    assert client.group_results(group, PATIENCE) == [b"A", b"\xff", b""]
    view = client.group(group)
    assert (view.says, view.complete, view.services) == ("3 of 3", True, ["upper"])
    assert [job.group for job in client.jobs(group=group)] == [group] * 3
    assert client.cancel_group(group).done == 3


def test_failures_of_a_group_are_raised_or_returned(client: Client) -> None:
    group = client.enqueue_group("upper", [b"a", b"fail", b"c"], attempts=1)
    with pytest.raises(JobFailed, match=r"^failed: ValueError: as requested$") as caught:
        client.group_results(group, PATIENCE)
    assert (caught.value.remote_type, "Traceback" in caught.value.remote_traceback) == ("ValueError", True)
    found = client.group_results(group, errors="return")
    assert (found[0], found[2], isinstance(found[1], JobFailed)) == (b"A", b"C", True)
    with pytest.raises(ValueError, match="errors='ignore': must be 'raise' or 'return'"):
        client.group_results(group, errors="ignore")  # type: ignore[call-overload]


def test_jobs_come_after_each_other(client: Client) -> None:
    first = client.enqueue("upper", b"x")
    second = client.enqueue("upper", after=[first], input="result")
    assert client.result(second, PATIENCE) == b"X"
    group = client.enqueue_group("upper", [b"a", b"b"])
    last = client.enqueue("count", b"own", after=[group, first], input="results")
    assert client.result(last, PATIENCE) == b"own 3"
    failed = client.enqueue("upper", b"fail", attempts=1)
    with pytest.raises(JobCancelled, match=f"job {failed}, which it comes after, ended failed"):
        client.result(client.enqueue("upper", after=[failed]), PATIENCE)
    with pytest.raises(NotFound, match=f"after: no job or group has id {UNKNOWN}"):
        client.enqueue("upper", after=[UNKNOWN])
    with pytest.raises(TypeError, match="must be a list of job ids or handles"):
        client.enqueue("upper", after=UNKNOWN)


def test_different_jobs_are_one_batch(client: Client) -> None:
    first = NewJob("upper", b"one")
    second = NewJob("upper", after=[first], input="result", attempts=1)
    third = NewJob("count", b"n", after=[first, second], input="results")
    assert client.enqueue_jobs([third, second, first]) == [third.id, second.id, first.id]
    assert client.result(third.id, PATIENCE) == b"n 2"
    group = "12" * 16 if client.url.startswith("http") else "34" * 16
    members = [NewJob("upper", b"a", group=group), NewJob("upper", b"b", group=group)]
    last = NewJob("count", after=[group], input="results")
    client.enqueue_jobs([*members, last])
    assert client.result(last.id, PATIENCE) == b" 2"
    loop = NewJob("upper")
    loop.options["after"] = [loop]
    with pytest.raises(ValueError, match="come after each other, in a circle"):
        client.enqueue_jobs([loop])
    with pytest.raises(ValueError, match="priority"):
        client.enqueue_jobs([NewJob("upper", priority=10)])


def test_unknown_group_is_not_found(client: Client) -> None:
    for act in (client.group, client.cancel_group, client.group_results):
        with pytest.raises(NoSuchGroup, match=f"no group has id {UNKNOWN}"):
            act(UNKNOWN)  # type: ignore[operator]


def test_group_that_is_not_complete_times_out(client: Client) -> None:
    group = client.enqueue_group("nobody", [b"a", b"b"])
    with pytest.raises(JobTimeout, match=rf"^timed out: group {group} is not complete after 0.1 s"):
        client.group_results(group, 0.1)
    assert client.cancel_group(group).says == "2 of 2, 2 cancelled"


def test_all_of_it_can_be_awaited(broker: LocalBroker) -> None:
    async def main(url: str) -> None:
        async with AsyncClient(url) as client:
            ids = await client.enqueue_many("upper", [b"a", b"b"])
            assert [await client.result(id, PATIENCE) for id in ids] == [b"A", b"B"]
            group = await client.enqueue_group("upper", [b"a", b"b"])
            assert await client.group_results(group, PATIENCE) == [b"A", b"B"]
            assert (await client.group(group)).says == "2 of 2"
            last = NewJob("count", after=[group], input="results")
            await client.enqueue_jobs([last])
            assert await client.result(last.id, PATIENCE) == b" 2"
            assert (await client.cancel_group(group)).complete

    for url in broker.urls.values():
        asyncio.run(main(url))


# -------------------------------------------------------------------- more than a message


@pytest.fixture(params=["tcp", "http"])
def small(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a broker that takes messages of 20 KB."""
    with LocalBroker(f"{request.param}://127.0.0.1:0?max_payload=20000") as broker, broker.client() as client:
        yield client


def test_batch_over_the_limit_of_a_message_is_split(small: Client) -> None:
    ids = small.enqueue_many("nobody", [b"x" * 3_000] * 20)
    assert len(set(ids)) == 20
    assert small.service("nobody").waiting == 20


def test_payload_over_the_limit_is_named_and_nothing_is_enqueued(small: Client) -> None:
    with pytest.raises(PayloadTooLarge, match=r"payload 3 of 5 has 30000 bytes, more than a message may have"):
        small.enqueue_many("nobody", [b"x", b"x", b"x", b"x" * 30_000, b"x"])
    with pytest.raises(PayloadTooLarge, match=r"^payload 0 of 1: refused: .*max_payload 20000"):
        small.enqueue_many("nobody", [b"x" * 30_000])
    assert small.jobs(service="nobody") == []


def test_group_is_not_split(small: Client) -> None:
    with pytest.raises(PayloadTooLarge, match="the 20 jobs of a group are one message; make several groups"):
        small.enqueue_group("nobody", [b"x" * 3_000] * 20)
    with pytest.raises(ValueError, match="at least one is needed"):
        small.enqueue_group("nobody", [])
    with pytest.raises(ValueError, match="10001 jobs cannot be one group; at most 10000 are allowed"):
        small.enqueue_group("nobody", [b""] * 10_001)
    assert small.jobs(service="nobody") == []


def test_rest_that_is_refused_is_told_with_what_was_enqueued(small: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_steps, "MOST_JOBS", 3)
    name = "s" * 129  # too long for the broker

    def jobs() -> Iterator[NewJob]:
        for number in range(8):
            yield NewJob("nobody" if number != 5 else "again", b"x", after=[UNKNOWN] if number == 5 else [])

    with pytest.raises(
        PartlyEnqueued, match=r"^3 of 8 jobs were enqueued, then the others were refused: jobs\[2\]: "
    ) as e:
        small.enqueue_jobs(jobs())
    assert len(e.value.ids) == 3
    assert isinstance(e.value.__cause__, NotFound)
    assert sorted(job.id for job in small.jobs()) == sorted(e.value.ids)
    with pytest.raises(ValueError, match="at most 128 characters"):
        small.enqueue_many(name, [b"x"])
