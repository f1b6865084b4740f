"""Types of tasks: arguments and results are those of the function."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from dragoman import Client, Context, JobFuture, JobHandle, Worker, task, using


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(name="texts.join", attempts=5, job_timeout=30)
def join(ctx: Context, texts: list[str], *, separator: str = " ") -> str:
    ctx.progress(1)
    return separator.join(texts)


@task
async def fetch(address: str) -> bytes:
    return address.encode()


@task
async def watch(ctx: Context, seconds: float) -> None:
    ctx.progress(seconds)


@task
def count(to: int) -> Iterator[int]:
    yield from range(to)


@task(parts="require")
async def tail(ctx: Context, path: str) -> AsyncIterator[str]:
    yield path


def streams() -> None:
    assert_type(count(3), Iterator[int])
    assert_type(count.stream(3), Iterator[int])
    assert_type(count.call(3), list[int])
    assert_type(count.submit(3), JobFuture[list[int]])
    assert_type(count.map([1, 2]), Iterator[list[int]])
    assert_type(count.enqueue(3).result(), list[int])
    assert_type(tail("x"), AsyncIterator[str])
    assert_type(tail.astream("x"), AsyncIterator[str])
    assert_type(tail.amap(["x"]), AsyncIterator[list[str]])
    count.stream("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    task(max_running=4, max_running_per_tenant=2, rate="100/min")
    count.with_options(tenant="acme").call(3)
    task(rate=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    task(parts="always")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def direct() -> None:
    assert_type(add(1, 2), int)
    assert_type(add(1), int)
    add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add(1, 2, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def calls() -> None:
    assert_type(add.call(1, b=2), int)
    assert_type(add.submit(1), JobFuture[int])
    assert_type(add.map([1, 2, 3], b=2), Iterator[int])
    assert_type(join.call(["a"], separator="-"), str)
    assert_type(fetch.call("x"), bytes)
    add.call(1, b="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.call()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    add.map(["a"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    join.call("a", sep="-")  # type: ignore  # pyright: ignore
    wrong: str = add.call(1)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(wrong)


def background() -> None:
    handle = add.with_options(attempts=5, delay=10).enqueue(1, 2)
    assert_type(handle, JobHandle[int])
    assert_type(handle.result(timeout=5), int)
    assert_type(handle.id, str)
    assert_type(handle.why(), str)
    assert_type(handle.cancel(), bool)
    assert_type(add.handle(handle.id).result(), int)
    add.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.with_options(attempt=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def awaited() -> None:
    assert_type(await fetch("x"), bytes)
    assert_type(await watch(1.5), None)
    assert_type(await fetch.acall("x"), bytes)
    assert_type(await add.acall(1), int)
    assert_type(add.asubmit(1), Future[int])
    assert_type(fetch.amap(["x"]), AsyncIterator[bytes])
    handle = await add.aenqueue(1)
    assert_type(await handle.aresult(), int)
    await fetch.acall(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def worker() -> None:
    made = Worker()
    made.include(add, join, fetch, watch)
    with Client() as client, using(client):
        assert_type(add.call(1), int)
