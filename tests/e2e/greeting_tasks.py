"""Tasks for the tests, as a module that `dragoman worker` runs."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman import Context, PermanentFailure, Retry, task


@dataclass
class Greeting:
    text: str
    to: list[str]


@task
def greet(names: list[str], word: str = "hello") -> Greeting:
    return Greeting(f"{word} {' and '.join(names)}", names)


@task(name="numbers.add", attempts=2)
async def add(a: int, b: int) -> int:
    return a + b


@task
def add_three(a: int, b: int, c: int) -> int:
    return add.call(add.call(a, b), c)  # with the client of its process


@task(format="cbor")
def twice(ctx: Context, data: bytes) -> bytes:
    ctx.progress(1, 2, "half")
    return 2 * data


@task
def divide(a: float, b: float) -> float:
    return a / b


not_a_task = 5


@task(attempts=3, never_retry_on=ValueError)
def parse(text: str) -> int:
    return int(text)


@task(attempts=3, retry_on=(ConnectionError, TimeoutError))
async def fetch(ctx: Context, name: str) -> str:
    if name == "later" and ctx.attempt < 3:
        raise Retry(0, "not there yet")
    if name == "flaky" and ctx.attempt < 2:
        raise ConnectionError(name)
    if name == "gone":
        raise PermanentFailure("it is gone")
    if name == "wrong":
        raise LookupError(name)
    return f"{name} at attempt {ctx.attempt}"


class AgainAtOnce(Retry):
    def __init__(self, reason: str) -> None:
        super().__init__(0, reason)


@task(attempts=3, retry_first=0.01, retry_jitter=0, retry_on=OSError)
def open_twice(ctx: Context, kind: str) -> int:
    if ctx.attempt < 2:
        raise ERRORS[kind](kind) from KeyError("the cause")
    return ctx.attempt


class Refused(ConnectionError): ...


ERRORS: dict[str, type[Exception]] = {"refused": Refused, "value": ValueError, "retry": AgainAtOnce}
