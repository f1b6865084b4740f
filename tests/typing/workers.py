"""Types of workers, for type checkers: a decorated function keeps its type."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

from dragoman import Context, Tls, Worker

worker = Worker("tcp://127.0.0.1:7400", processes=2, max_memory=1 << 30, cancel_grace=0.5)

proven = Worker("tcp://broker:7400", threads=2, key="gpu-1", server_key="a41e")
inside_tls = Worker("tls://broker:7400", token_file=Path("token"), tls=Tls(ca="ca.pem"))
Worker(token=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@worker.service("resize")
def resize(image: bytes) -> bytes:
    return image


@worker.service
def shout(text: bytes) -> bytes:
    return text


@worker.service(codec="json")
def count(numbers: list[int]) -> int:
    return len(numbers)


@worker.service("slow", codec="json")
async def slow(data: Any, ctx: Context) -> int:
    ctx.progress(1, 2, note="half")
    ctx.emit(b"part")
    assert_type(ctx.cancelled, bool)
    assert_type(ctx.deadline, float | None)
    assert_type(ctx.job_id, str)
    assert_type(ctx.attempt, int)
    return 1


async def main() -> None:
    assert_type(resize(b""), bytes)
    assert_type(shout(b""), bytes)
    assert_type(count([1]), int)
    shout(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await slow({}, Context.__new__(Context)), int)
    resize("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    resize()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    resize(b"big", width=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await slow({})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Worker(7400)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Worker(process=4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    worker.service("x")(5)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    worker.service("x", codec=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    assert_type(worker.run(), int)
