"""Tests of tasks: eager mode, the worker fixture, and hooks."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from dragoman import (
    Context,
    JobFailed,
    JobHooks,
    JobRefused,
    NoSuchJob,
    NoSuchService,
    PermanentFailure,
    Retry,
    Task,
    Worker,
    add_hooks,
    task,
)
from dragoman.sdk.hooks import remove_hooks
from dragoman.testing.eager import eager


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(name="add")
def add_loosely(a: object) -> int:
    raise NotImplementedError("its callers have other annotations than the worker")


@task
async def halve(number: int) -> float:
    await asyncio.sleep(0)
    return number / 2


@task
def refuse(ctx: Context, word: str) -> None:
    ctx.progress(1)
    raise LookupError(word)


@task(attempts=3, never_retry_on=KeyError)
def unsteady(ctx: Context, number: int) -> Iterator[int]:
    yield number
    if ctx.attempt < 3:
        raise (OSError if number else KeyError)(number)
    yield ctx.attempt


@task
async def aunsteady(number: int) -> AsyncIterator[int]:
    yield number
    raise OSError(number)


# -------------------------------------------------------------------- eager


def test_eager_tasks_run_here() -> None:
    with eager(add, halve):
        assert add.call(1) == 2
        assert list(add.map([1, 2], b=5)) == [6, 7]
        assert add.submit(2, 3).result() == 5
        assert halve.call(3) == 1.5
        handle = add.enqueue(4, 5)
        assert (handle.result(), handle.why(), handle.job().outcome) == (9, "It is done.", "done")
        assert not handle.cancel()


def test_values_of_failed_attempts_are_not_part_of_the_result() -> None:
    with eager(unsteady):
        assert unsteady.call(1) == [1, 3]
        assert list(unsteady.stream(1)) == [1, 3]
        assert len(unsteady.enqueue(1).job().attempts) == 3


def test_rules_about_retries_hold_for_tasks_that_yield() -> None:
    with eager(unsteady, aunsteady):
        assert len(unsteady.enqueue(0).job().attempts) == 1, "KeyError is never retried"
        assert unsteady.with_options(never_retry_on=()).enqueue(0).result() == [0, 3]
        assert len(aunsteady.enqueue(1).job().attempts) == 3
        permanent = aunsteady.with_options(never_retry_on=OSError).enqueue(1)
        assert len(permanent.job().attempts) == 1


def test_eager_jobs_are_found_by_their_keys() -> None:
    """All of them have ended, so only a key that is held while the outcome is kept returns the first job."""
    with eager(add):
        kept = add.with_options(key="k")
        first = kept.enqueue(1)
        assert (kept.enqueue(1).id, add.find("k").id) == (first.id, first.id)
        with pytest.raises(JobRefused, match="'k' came with another payload before"):
            kept.enqueue(2)
        free = add.with_options(key="n", unique="waiting")
        assert free.enqueue(1).id != free.enqueue(2).id
        assert add.find("n").result() == 3
        with pytest.raises(NoSuchJob, match="no job of service 'add' has key 'x'"):
            add.find("x")


def test_eager_failures_are_those_of_a_worker() -> None:
    with eager(add, refuse):
        with pytest.raises(JobFailed, match=r"^failed: LookupError: no$"):
            refuse.call("no")
        with pytest.raises(JobFailed, match=r"argument 'a' of add: expected `int`, got `str`"):
            add_loosely.call("1")
        handle = refuse.enqueue("later")
        assert handle.job().outcome == "failed"
        with pytest.raises(JobFailed, match="LookupError: later"):
            handle.result()
        with pytest.raises(NoSuchService, match="'halve' is not among the tasks of this eager block: add, refuse"):
            halve.call(1)


def test_eager_tasks_are_retried_without_delays() -> None:
    with eager(patient, add_up):
        job = patient.enqueue(2, "later")
        assert (job.result(), [each.outcome for each in job.job().attempts]) == (2, ["failed", "done"])
        with pytest.raises(JobFailed, match="Retry: later"):
            patient.call(2, "later")
        assert patient.with_options(attempts=2).call(2, "later") == 2
        for attempts, kind in ((1, "never"), (3, "error")):
            job = patient.enqueue(9, kind)
            assert (job.job().outcome, len(job.job().attempts)) == ("failed", attempts)
        with pytest.raises(JobFailed, match="RuntimeError: error") as failed:
            job.result()
        assert isinstance(failed.value.__cause__, RuntimeError)


@task
def patient(ctx: Context, attempt: int, kind: str) -> int:
    if ctx.attempt < attempt:
        if kind == "later":
            raise Retry(3600, kind)
        if kind == "never":
            raise PermanentFailure(kind)
        raise RuntimeError(kind)
    return ctx.attempt


def test_tasks_within_eager_tasks_are_eager() -> None:
    """A bug: in a coroutine within a running loop they used a broker."""

    async def main() -> None:
        assert await add_up.acall([1, 2, 3]) == 6

    with eager(add, add_up):
        assert add_up.call([1, 2]) == 3
        asyncio.run(main())


@task
async def add_up(numbers: list[int]) -> int:
    total = 0
    for each in numbers:
        total = await add.acall(total, each)
    return total


@task
def add_in_a_thread(numbers: list[int]) -> int:
    total = 0
    for each in numbers:
        total = add.call(total, each)
    return total


def test_eager_tasks_are_awaited() -> None:
    async def main() -> None:
        assert await add.acall(1, 2) == 3
        assert await halve.acall(5) == 2.5
        assert [each async for each in halve.amap([2, 4])] == [1.0, 2.0]
        assert await (await add.aenqueue(1)).aresult() == 2

    with eager(add, halve):
        asyncio.run(main())


# -------------------------------------------------------------------- a worker of the test


def test_worker_fixture_serves_tasks_and_functions(dragoman_worker: Callable[..., Worker]) -> None:
    module = types.ModuleType("tasks_of_a_test")
    module.__dict__.update(add=add, halve=halve, other=5)
    dragoman_worker(module, refuse)
    dragoman_worker(add)  # a second one
    assert add.call(20, 22) == 42
    assert halve.enqueue(9).result(timeout=60) == 4.5
    with pytest.raises(JobFailed, match="LookupError: no"):
        refuse.call("no")


@pytest.mark.parametrize("outer", [add_up, add_in_a_thread], ids=["event loop", "thread"])
def test_tasks_within_tasks_of_the_worker_fixture_use_its_broker(
    dragoman_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, outer: Task[[list[int]], int]
) -> None:
    """A bug: they used the broker of DRAGOMAN_URL."""
    monkeypatch.setenv("DRAGOMAN_URL", "tcp://127.0.0.1:1")
    dragoman_worker(outer, add)
    assert outer.call([1, 2, 3]) == 6


# -------------------------------------------------------------------- hooks


class Journal(JobHooks):
    def __init__(self, name: str, journal: list[str]) -> None:
        self.name = name
        self.journal = journal

    def before(self, job: Context) -> None:
        self.journal.append(f"{self.name} before {job.service}, attempt {job.attempt}, {len(job.job_id)} digits")

    def after(self, job: Context) -> None:
        self.journal.append(f"{self.name} after {job.service}")

    def failed(self, job: Context, error: BaseException) -> None:
        self.journal.append(f"{self.name} failed {job.service}: {error!r}")


class Broken(JobHooks):
    def before(self, job: Context) -> None:
        raise RuntimeError("this hook is broken")


@pytest.fixture
def journal() -> Iterator[list[str]]:
    journal: list[str] = []
    hooks = [Journal("outer", journal), Broken(), Journal("inner", journal)]
    for each in hooks:
        add_hooks(each)
        add_hooks(each)  # has no effect
    yield journal
    for each in hooks:
        remove_hooks(each)


@pytest.mark.parametrize("each", [add, halve], ids=["thread", "event loop"])
def test_hooks_are_called_around_each_job(
    dragoman_worker: Callable[..., Worker], journal: list[str], each: Callable[..., object]
) -> None:
    dragoman_worker(each)
    each.call(2)  # type: ignore[attr-defined]
    name = each.name  # type: ignore[attr-defined]
    about = f"{name}, attempt 1, 32 digits"
    assert journal == [f"outer before {about}", f"inner before {about}", f"inner after {name}", f"outer after {name}"]


def test_hooks_learn_of_failures(dragoman_worker: Callable[..., Worker], journal: list[str]) -> None:
    dragoman_worker(refuse, add)
    with pytest.raises(JobFailed):
        refuse.call("no")
    assert journal[2:] == ["inner failed refuse: LookupError('no')", "outer failed refuse: LookupError('no')"]
    journal.clear()
    with pytest.raises(JobFailed):
        add_loosely.call("1")
    assert journal[-1].startswith("outer failed add: WrongArguments(\"argument 'a' of add")
