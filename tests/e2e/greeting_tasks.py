"""Tasks for the tests, as a module that `dragoman worker` runs."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman import Context, task


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


@task(format="cbor")
def twice(ctx: Context, data: bytes) -> bytes:
    ctx.progress(1, 2, "half")
    return 2 * data


@task
def divide(a: float, b: float) -> float:
    return a / b


not_a_task = 5
