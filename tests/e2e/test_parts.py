"""Parts of results: tasks that yield, and services that require callers which take parts (R203)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from part_tasks import Line, broken, dying, endless, frames, lines, refuses, slices

from dragoman import AsyncClient, Client, JobFailed, JobLost, LocalBroker, Unsupported, Worker, using
from dragoman.sdk.address import AddressError
from dragoman.testing.eager import eager
from programs import PATIENCE, Programs, until

HERE = Path(__file__).parent
REQUIRED = (
    "dragoman.PartsRequired: frames sends its result in parts, and the caller of this job does not take parts; call it "
    "with task.stream(...), or with submit(...).parts() of a native client"
)


@pytest.fixture
def broker(programs: Programs) -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        programs.environment |= {"PYTHONPATH": str(HERE), "DRAGOMAN_URL": broker.urls["native"]}
        programs.dragoman("worker", "part_tasks", "--processes", "2")
        programs.dragoman("worker", "part_tasks:worker", "--threads", "1")
        broker.wait_for_workers(service="lines", timeout=PATIENCE)
        broker.wait_for_workers(service="raw", timeout=PATIENCE)
        with Client(broker.urls["native"]) as client, using(client):
            yield broker


def test_values_arrive_one_by_one_or_as_a_list(broker: LocalBroker) -> None:
    expected = [Line(number, "a\nb") for number in range(3)]
    assert list(lines("a\nb")) == expected  # here
    assert list(lines.stream("a\nb")) == expected
    assert lines.call("a\nb") == expected
    assert lines.submit("a\nb").result(timeout=60) == expected
    assert lines.enqueue("a\nb").result(timeout=60) == expected
    assert list(lines.map(["a"], count=1)) == [[Line(0, "a")]]
    assert lines.call("", count=0) == list(lines.stream("", count=0)) == []
    assert b"".join(slices.stream(b"\x00\n\xff")) == b"".join(slices.call(b"\x00\n\xff")) == b"\x00\n\xff"
    assert list(frames.stream(3)) == [0, 1, 2]


def test_values_are_awaited(broker: LocalBroker) -> None:
    async def main() -> None:
        assert [each async for each in slices(b"ab")] == [b"a", b"b"]  # here
        assert [each async for each in frames.astream(2)] == [0, 1]
        assert [each async for each in slices.astream(b"ab")] == [b"a", b"b"]
        assert await slices.acall(b"ab") == [b"a", b"b"]
        assert [each async for each in slices.amap([b"ab"])] == [[b"a", b"b"]]

    async def with_an_async_client() -> None:
        async with AsyncClient(broker.urls["native"]) as client:
            with using(client):
                await main()

    asyncio.run(main())  # with the Client of the fixture
    asyncio.run(with_an_async_client())


def test_error_ends_the_stream_where_it_was_raised(broker: LocalBroker) -> None:
    values = broken.stream(2)
    assert [next(values), next(values)] == [0, 1]
    with pytest.raises(JobFailed, match="LookupError: no more"):
        next(values)
    with pytest.raises(JobFailed, match="not today"):
        refuses.call()
    job = broken.enqueue(1)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    assert len(job.job().attempts) == 1, "never_retry_on holds within a generator"


def test_stream_does_not_continue_with_the_values_of_another_attempt(broker: LocalBroker) -> None:
    values = dying.stream()
    assert next(values) == 1
    with pytest.raises(JobLost, match="attempt 1 of dying ended after 1 values, and the next one begins again"):
        next(values)


def test_stream_that_is_left_early_cancels_its_job(broker: LocalBroker, tmp_path: Path) -> None:
    path = tmp_path / "closed"
    for value in endless.stream(str(path)):
        if value == 3:
            break
    until(lambda: path.exists() and path.read_text() == "closed", "the generator is closed")


def test_jobs_of_callers_that_cannot_take_parts_fail_for_good(broker: LocalBroker, programs: Programs) -> None:
    """R203. Calls, background jobs, and callers over HTTP."""
    with pytest.raises(JobFailed) as failed:
        frames.call(3)
    assert str(failed.value) == f"failed: {REQUIRED}"
    job = frames.enqueue(3)
    with pytest.raises(JobFailed):
        job.result(timeout=60)
    view = job.job()
    assert (len(view.attempts), view.quarantined) == (1, True), "two more attempts would fail, too"
    assert view.error is not None
    assert (view.error.type, view.error.permanent) == ("dragoman.PartsRequired", True)
    with Client(broker.urls["http"]) as client:
        with pytest.raises(JobFailed, match="PartsRequired: raw sends its result in parts"):
            client.call("raw", b"ab", timeout=60)
        with using(client), pytest.raises(Unsupported, match="http does not support parts"):
            list(frames.stream(1))
    with Client(broker.urls["native"]) as client:
        job_of_raw = client.submit("raw", b"ab", timeout=60)
        assert (list(job_of_raw.parts()), job_of_raw.result()) == ([b"a"], b"b")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "majordomo+tcp://127.0.0.1:1?edition=0.2&service=raw"])
def test_worker_of_a_dialect_that_does_not_know_its_callers_does_not_start(url: str) -> None:
    """R203."""
    worker = Worker(url, threads=1)
    worker.service("raw", parts="require")(bytes)
    with pytest.raises(
        AddressError, match=r"'raw' requires callers that take parts \(parts='require'\), and workers in"
    ):
        worker.run()


def test_unknown_value_of_parts() -> None:
    with pytest.raises(ValueError, match="parts='always': must be 'join' or 'require'"):
        Worker().service("raw", parts="always")(bytes)  # type: ignore[call-overload]


def test_eager_tasks_that_yield() -> None:
    with eager(lines, frames, slices):
        assert list(lines.stream("a", count=1)) == lines.call("a", count=1) == [Line(0, "a")]
        assert lines.enqueue("a", count=1).result() == lines.submit("a", count=1).result() == [Line(0, "a")]
        assert list(frames.stream(2)) == [0, 1]
        assert slices.call(b"ab") == [b"a", b"b"]
        with pytest.raises(JobFailed, match="PartsRequired"):
            frames.call(2)
