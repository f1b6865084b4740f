"""Tests of tasks: eager mode, the worker fixture, and hooks."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Iterator

import pytest

from dragoman import Context, JobFailed, JobHooks, JobRefused, NoSuchJob, NoSuchService, Worker, add_hooks, task
from dragoman.sdk.hooks import remove_hooks
from dragoman.testing.eager import eager


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task
async def halve(number: int) -> float:
    await asyncio.sleep(0)
    return number / 2


@task
def refuse(ctx: Context, word: str) -> None:
    ctx.progress(1)
    raise LookupError(word)


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
            add.call("1")  # type: ignore[arg-type]
        handle = refuse.enqueue("later")
        assert handle.job().outcome == "failed"
        with pytest.raises(JobFailed, match="LookupError: later"):
            handle.result()
        with pytest.raises(NoSuchService, match="'halve' is not among the tasks of this eager block: add, refuse"):
            halve.call(1)


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
        add.call("1")  # type: ignore[arg-type]
    assert journal[-1].startswith("outer failed add: WrongArguments(\"argument 'a' of add")
