"""Tasks that yield, as a module that `dragoman worker` runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from dragoman import Context, PermanentFailure, Worker, task


@dataclass
class Line:
    number: int
    text: str


@task
def lines(text: str, count: int = 3) -> Iterator[Line]:
    for number in range(count):
        yield Line(number, text)


@task(parts="require", attempts=3)
def frames(count: int) -> Iterator[int]:
    yield from range(count)


@task(format="cbor")
async def slices(ctx: Context, data: bytes) -> AsyncIterator[bytes]:
    ctx.progress(0, len(data))
    for start in range(len(data)):
        yield data[start : start + 1]


@task(never_retry_on=LookupError, attempts=5)
def broken(after: int) -> Iterator[int]:
    yield from range(after)
    raise LookupError("no more")


@task(attempts=2)
def dying(ctx: Context) -> Iterator[int]:
    """Its process ends after the first value, at the first attempt."""
    yield ctx.attempt
    if ctx.attempt == 1:
        os._exit(1)
    yield ctx.attempt


@task
def endless(path: str) -> Iterator[int]:
    """Yield until the job is cancelled, then write that into a file."""
    number = 0
    try:
        while True:
            yield number
            number += 1
    finally:
        with open(path, "w") as file:
            file.write("closed")


@task
def refuses() -> Iterator[int]:
    raise PermanentFailure("not today")
    yield 1


worker = Worker()


@worker.service("raw", parts="require")
def raw(payload: bytes, ctx: Context) -> bytes:
    ctx.emit(payload[:1])
    return payload[1:]
