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
    handle = add.with_options(attempts=5, delay=10, key="k", unique="unfinished", keep="forever").enqueue(1, 2)
    assert_type(handle, JobHandle[int])
    assert_type(handle.result(timeout=5), int)
    assert_type(handle.id, str)
    assert_type(handle.why(), str)
    assert_type(handle.cancel(), bool)
    assert_type(add.handle(handle.id).result(), int)
    assert_type(add.find("k"), JobHandle[int])
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
    assert_type(await add.afind("k"), JobHandle[int])
    assert_type(await handle.aresult(), int)
    await fetch.acall(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def worker() -> None:
    made = Worker()
    made.include(add, join, fetch, watch)
    with Client() as client, using(client):
        assert_type(add.call(1), int)
