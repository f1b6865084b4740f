"""Futures of jobs: end, cancellation, progress and parts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.codecs import codec
from dragoman.sdk.errors import JobCancelled, JobFailed, JobLost, Unsupported
from dragoman.sdk.futures import AsyncJobFuture, JobFuture
from dragoman.sdk.submit_options import SubmitOptionsCache


class FakeClient:
    """A client whose engine records its calls."""

    def __init__(self, url: str = "tcp://127.0.0.1:1") -> None:
        self.options_cache = SubmitOptionsCache(url)
        self.engine = self
        self.sent = False
        self.asked: list[str] = []

    def is_sent(self, job: Any) -> bool:
        return self.sent

    def drop(self, job: Any) -> None:
        self.asked.append("drop")

    def cancel(self, job: Any) -> None:
        self.asked.append("cancel")

    def check_process(self) -> None:
        pass

    def check_may_wait(self) -> None:
        pass


def future(client: Any = None, reads: str = "bytes") -> JobFuture:
    return JobFuture(client or FakeClient(), SubmitOptions("echo"), b"p", codec(reads))


def test_it_ends_with_what_the_codec_makes_of_the_result() -> None:
    job = future(reads="json")
    job.succeed(b"[1]")
    assert job.result() == [1]


def test_a_result_that_cannot_be_read_is_a_failure() -> None:
    for reads, result in (("json", b"{"), ("cbor", b"\xff\xff"), ("pickle", b"no")):
        job = future(reads=reads)
        job.succeed(result)
        with pytest.raises(JobFailed, match=f"the result of echo is not valid {reads}"):
            job.result()


def test_it_ends_with_an_error() -> None:
    job = future()
    job.fail(JobLost("lost: its worker vanished"))
    assert isinstance(job.exception(), JobLost)


def test_it_is_cancelled_at_once_if_it_was_not_sent() -> None:
    client = FakeClient()
    job = future(client)
    assert job.cancel()
    assert (job.cancelled(), client.asked) == (True, ["drop"])
    assert job.cancel()
    assert client.asked == ["drop"]
    assert concurrent.futures.wait([job], 0).done == {job}


def test_what_comes_after_it_was_cancelled_is_dropped() -> None:
    job = future()
    job.cancel()
    job.succeed(b"late")
    job.fail(JobLost("late"))
    assert job.cancelled()


def test_of_a_sent_job_the_broker_decides() -> None:
    client = FakeClient()
    client.sent = True
    cancelled, faster = future(client), future(client)
    assert cancelled.cancel()
    assert faster.cancel()
    assert client.asked == ["cancel", "cancel"]
    assert not cancelled.done()
    cancelled.fail(JobCancelled("cancelled: by its caller"))
    faster.succeed(b"r")
    assert cancelled.cancelled()
    assert concurrent.futures.wait([cancelled], 0).done == {cancelled}
    assert faster.result() == b"r"


def test_cancelled_by_somebody_else_is_an_error() -> None:
    job = future()
    job.fail(JobCancelled("cancelled: by an operator"))
    assert not job.cancelled()
    assert isinstance(job.exception(), JobCancelled)


def test_where_the_wire_has_no_word_a_sent_job_cannot_be_cancelled() -> None:
    client = FakeClient("pingpong+tcp://127.0.0.1:1")
    client.sent = True
    job = future(client)
    assert not job.cancel()
    assert client.asked == []
    for ask in (lambda: job.id, lambda: job.progress, job.parts, lambda: job.on_progress(print)):
        with pytest.raises(Unsupported, match="pingpong does not support"):
            ask()


def test_progress_is_the_latest_report() -> None:
    job = future()
    heard: list[Any] = []
    job.on_progress(heard.append)
    assert (job.progress, job.attempt) == (None, 0)
    job.report(b'{"done": 1}', False, 1)
    job.report(b"\xff no json", False, 2)
    job.report(b"of an attempt that is over", False, 1)
    assert (job.progress, job.attempt) == (b"\xff no json", 2)
    assert heard == [{"done": 1}, b"\xff no json"]


def test_a_listener_that_raises_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    job = future()
    heard: list[Any] = []

    def raises(report: Any) -> None:
        raise ValueError("in a listener")

    job.on_progress(raises)
    job.on_progress(heard.append)
    job.report(b"1", False, 1)
    assert heard == [1]
    assert "in a listener" in caplog.text


def test_parts_are_those_of_the_latest_attempt() -> None:
    job = future()
    parts = job.parts()
    job.report(b"a", True, 1)
    assert next(parts) == b"a"
    job.report(b"b", True, 1)
    job.report(b"A", True, 2)
    job.report(b"late", True, 1)
    assert next(parts) == b"A"
    assert job.attempt == 2
    job.succeed(b"rest")
    assert list(parts) == []
    assert job.result() == b"rest"


def test_parts_end_with_the_jobs_error_for_everybody() -> None:
    job = future()
    one, two = job.parts(), job.parts()
    job.report(b"a", True, 1)
    assert next(one) == b"a"
    job.fail(JobLost("lost: gone"))
    for parts in (one, two):
        with pytest.raises(JobLost):
            next(parts)


def whole(codec_name: str) -> JobFuture[Any]:
    return JobFuture(FakeClient(), SubmitOptions("echo", is_whole=True), b"", codec(codec_name))  # type: ignore[arg-type]


def test_parts_of_a_result_that_is_wanted_whole_are_joined_in_front_of_it() -> None:
    """They were dropped, and the last part was taken for the result."""
    job = whole("bytes")
    job.report(b"lost ", True, 1)
    job.report(b"{}", False, 2)
    job.report(b"one ", True, 2)
    job.report(b"late ", True, 1)
    job.report(b"two ", True, 2)
    job.succeed(b"rest")
    assert job.result() == b"one two rest"
    assert list(job.parts()) == []


@pytest.mark.parametrize("name", ["json", "cbor", "pickle"])
@pytest.mark.parametrize("values", [[[1, 2]], [1, 2, 3], ["a\nb", {"c": None}, None]])
def test_objects_that_are_joined_are_a_list_of_them(name: str, values: list[Any]) -> None:
    chosen = codec(name)
    job = whole(name)
    *parts, rest = values
    job.succeed(b"".join([*(chosen.encode(each) + chosen.separator for each in parts), chosen.encode(rest)]))
    assert job.result() == (values if parts else rest)


def test_what_is_no_json_is_still_an_error() -> None:
    job = whole("json")
    job.succeed(b"{")
    with pytest.raises(JobFailed, match="is not valid json"):
        job.result()


# -------------------------------------------------------------------- asyncio


def on_loop(act: Callable[[FakeClient, AsyncJobFuture], Any]) -> None:
    async def main() -> None:
        client = FakeClient()
        await act(client, AsyncJobFuture(client, SubmitOptions("echo"), b"p", codec("json")))  # type: ignore[arg-type]

    asyncio.run(main())


def test_an_async_job_is_awaited() -> None:
    async def act(client: FakeClient, job: AsyncJobFuture) -> None:
        job.succeed(b"[1]")
        assert await job == [1]
        job.succeed(b"[2]")
        job.fail(JobLost("late"))
        assert await job == [1]
        assert not job.cancel()
        assert client.asked == []

    on_loop(act)


def test_an_async_job_ends_at_once_when_it_is_cancelled() -> None:
    async def act(client: FakeClient, job: AsyncJobFuture) -> None:
        client.sent = True
        assert job.cancel()
        assert (job.cancelled(), client.asked) == (True, ["drop"])
        job.fail(JobCancelled("cancelled: by its caller"))
        assert job.cancelled()

    on_loop(act)


def test_parts_of_an_async_job() -> None:
    async def act(client: FakeClient, job: AsyncJobFuture) -> None:
        job.report(b"1", True, 1)
        job.report(b"2", True, 2)
        parts = job.parts()
        assert await anext(parts) == 2
        job.fail(JobLost("lost: gone"))
        with pytest.raises(JobLost):
            await anext(parts)

    on_loop(act)


# -------------------------------------------------------------------- the package


def test_the_package_is_cheap_to_import_and_has_everything() -> None:
    script = (
        "import sys, dragoman\n"
        "assert not [each for each in sys.modules if each.startswith('dragoman.')], 'import dragoman loads nothing'\n"
        "from dragoman import *\n"
        "assert issubclass(BrokerUnavailable, ConnectionError) and issubclass(JobTimeout, TimeoutError)\n"
        "assert all(getattr(dragoman, name) for name in dragoman.__all__)\n"
        "assert set(dragoman.__all__) <= set(dir(dragoman))\n"
        "try: dragoman.nonsense\n"
        "except AttributeError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "module 'dragoman' has no attribute 'nonsense'\n"


def test_a_callback_that_wants_to_exit_does_not_end_the_clients_thread() -> None:
    """It did, and all other jobs of that client waited for ever."""
    job = future()
    job.add_done_callback(lambda _: sys.exit(3))
    job.succeed(b"there")
    assert job.result() == b"there"
    job = future()
    job.on_progress(lambda _: sys.exit(3))
    job.report(b"1", False, 1)
    assert job.progress == 1
