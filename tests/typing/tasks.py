"""Types of tasks: arguments and results are those of the function."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from dragoman import (
    AsyncTask,
    Client,
    Context,
    GroupHandle,
    JobFuture,
    JobHandle,
    PreparedGroup,
    PreparedJob,
    Task,
    Worker,
    aenqueue_many,
    chain,
    enqueue_many,
    group,
    task,
    using,
)


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


@task
def repeat(thing: object, times: int) -> Iterator[str]:
    yield from [repr(thing)] * times


@task()
async def repeat_later(thing: object) -> AsyncIterator[str]:
    yield repr(thing)


def streams() -> None:
    assert_type(repeat.call("x", 2), list[str])
    assert_type(repeat_later.astream("x"), AsyncIterator[str])
    repeat.stream(2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
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


@task()
def mean(*numbers: float, digits: int = 2, **weights: float) -> float:
    return round(sum(numbers) / len(numbers) + sum(weights.values()), digits)


@task
def describe(thing: object, /, *, loud: bool) -> str:
    return repr(thing).upper() if loud else repr(thing)


@task
async def describe_later(thing: object) -> str:
    return repr(thing)


@task
def tick() -> None: ...


@task
def pick(things: Any, index: int) -> Any:
    return things[index]


@task
async def pick_later(things: Any, index: int) -> Any:
    return things[index]


@task
def pick_here(ctx: Context, index: int) -> Any:
    return ctx.attempt + index


class Shop:
    @staticmethod
    @task(attempts=2)
    def price(ctx: Context | None, name: str) -> float:
        return float(len(name))


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


def calls_with_any_parameters() -> None:
    """The first parameter of `describe` could be a Context. It is none, so callers give it."""
    assert_type(mean.call(1, 2.5, digits=1, x=0.5), float)
    assert_type(mean.enqueue(1).result(), float)
    assert_type(mean.map([1.0], 2.0, digits=1), Iterator[float])
    assert_type(describe.call(5, loud=True), str)
    assert_type(describe.map([5, "a"], loud=True), Iterator[str])
    assert_type(describe_later.call(5), str)
    assert_type(describe_later.map([5]), Iterator[str])
    assert_type(mean.payload(1, digits=2), bytes)
    mean.payload("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(tick.call(), None)
    assert_type(tick.enqueue(), JobHandle[None])
    assert_type(Shop.price.call("tea"), float)
    mean.call("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mean.call(1, digits="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mean.enqueue(1, x="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    number: int = mean.submit(1).result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(number)
    describe.call(5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    describe.submit(5, loud=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    describe.map([5], loud=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tick.call(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tick.map([1])  # type: ignore  # pyright: ignore
    Shop.price.call(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def calls_with_any() -> None:
    """If the first parameter or the result of a function is Any, mypy finds several overloads and takes the task for
    Any. Pyright does not."""
    assert_type(pick_later.enqueue([1], 0), JobHandle[Any])  # type: ignore[assert-type]
    pick([1], index=0)  # no coroutine
    pick.call([1], "0")  # pyright: ignore[reportArgumentType]
    pick.call(things=[1], index=0)
    pick_later.call([1])  # pyright: ignore[reportCallIssue]
    pick_here.call(1)
    pick_here.call([1])  # pyright: ignore[reportArgumentType]


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
    assert_type(add.with_options(retry_on=OSError, never_retry_on=(KeyError, ValueError)).call(1), int)
    add.with_options(retry_on="OSError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    task(attempts="5")  # type: ignore  # pyright: ignore[reportArgumentType]
    task(format="xml")  # type: ignore  # pyright: ignore[reportArgumentType]
    text: JobHandle[str] = add.enqueue(1)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(text)


@task
def total(numbers: list[int], title: str) -> str:
    return f"{title}: {sum(numbers)}"


@task
def size(data: bytes, unit: int = 1) -> int:
    return len(data) // unit


def groups() -> None:
    assert_type(add.prepare(1), PreparedJob[int])
    assert_type(fetch.prepare("x").then(size, unit=2), PreparedJob[int])
    assert_type(chain(fetch.prepare("x"), size, add), PreparedJob[int])
    assert_type(add.group([1, 2], b=3), PreparedGroup[int])
    assert_type(fetch.group(["x"]), PreparedGroup[bytes])
    assert_type(group([add.prepare(1), size.prepare(b"")]), PreparedGroup[int])
    handle = add.group([1, 2]).enqueue()
    assert_type(handle, GroupHandle[int])
    assert_type(handle.result(timeout=5), list[int])
    assert_type(handle.result(errors="return"), list[int | Exception])
    assert_type(handle.progress(), str)
    assert_type(total.after(handle).enqueue("May"), JobHandle[str])
    assert_type(add.group([1]).then(total, title="May").enqueue(), JobHandle[str])
    assert_type(add.after(add.enqueue(1), add.prepare(2)).enqueue(), JobHandle[int])
    assert_type(add.enqueue_many([1, 2], b=3), list[JobHandle[int]])
    assert_type(fetch.enqueue_many(["x"]), list[JobHandle[bytes]])
    assert_type(enqueue_many([add.prepare(1)]), list[JobHandle[int]])
    add.prepare("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.group(["1"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    add.prepare(1).then(size)  # type: ignore  # pyright: ignore
    total.after(add.enqueue(1))  # type: ignore  # pyright: ignore
    total.after(handle).enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    chain(add.prepare(1), size)  # type: ignore  # pyright: ignore


async def awaited_groups() -> None:
    handle = await fetch.group(["x"]).aenqueue()
    assert_type(await handle.aresult(), list[bytes])
    assert_type(await add.aenqueue_many([1]), list[JobHandle[int]])
    assert_type(await aenqueue_many([add.prepare(1)]), list[JobHandle[int]])
    assert_type(await total.after(add.group([1])).aenqueue("May"), JobHandle[str])


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
    await add.aenqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.asubmit(1, c=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fetch.amap([1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    assert_type(await (await fetch.with_options(delay=5).aenqueue("x")).aresult(), bytes)
    assert_type(await (await fetch.aenqueue("x")).awhy(), str)


def worker() -> None:
    made = Worker()
    made.include(add, join, fetch, watch)
    with Client() as client, using(client):
        assert_type(add.call(1), int)


def takes_tasks(one: Task[[int, str], bytes], other: AsyncTask[[str], int], any: Task[..., Any]) -> None:
    """Programs name the types of tasks, too."""
    assert_type(one.call(1, "a"), bytes)
    assert_type(other.enqueue("a"), JobHandle[int])
    any.call(1, 2, 3)
    takes_tasks(add, other, any)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
