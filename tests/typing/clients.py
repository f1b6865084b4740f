"""Types of clients and of jobs, for type checkers. This file is never run."""

from __future__ import annotations

import concurrent.futures
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, assert_type

from dragoman import AsyncClient, AsyncJobFuture, Client, JobFuture, Tls

# ---------------------------------------------------------------- bytes, unless somebody says otherwise

with Client("tcp://127.0.0.1:7400") as client:
    assert_type(client, Client[bytes])
    assert_type(client.call("resize", b"big"), bytes)
    assert_type(client.call("resize", b"big", timeout=30, priority=9, wait_for_worker=True), bytes)
    assert_type(client.call("resize", "text is sent as UTF-8", codec="bytes"), bytes)
    assert_type(client.call("describe", {"picture": 42}, codec="json"), Any)
    assert_type(client.call("describe", {"picture": 42}, codec="cbor", attempts=3), Any)

    job = client.submit("resize", b"big", job_timeout=5)
    assert_type(job, JobFuture[bytes])
    assert_type(job.result(), bytes)
    assert_type(job.result(timeout=1), bytes)
    assert_type(job.parts(), Iterator[bytes])
    assert_type(job.id, str)
    assert_type(job.progress, Any)
    assert_type(job.cancel(), bool)
    assert_type(client.submit("describe", codec="json"), JobFuture[Any])

    assert_type(client.map("resize", [b"1", b"22"], window=10), Iterator[bytes])
    assert_type(client.map("describe", [{"picture": 42}], codec="json"), Iterator[Any])
    assert_type(client.as_completed([job]), Iterator[JobFuture[bytes]])

    client.call("resize", b"big", timeout="soon")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    client.call("resize", b"big", patience=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    client.call(b"resize")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    client.call("resize", window=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    client.call("resize").items()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

Client(7400)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Client(codec="bytes", timeout=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

# ---------------------------------------------------------------- proofs of identity

assert_type(Client("tcp://broker:7400", key="gpu-1", server_key="a41e"), Client[bytes])
assert_type(Client(key=Path("gpu-1.key_secret"), server_key="a41e", codec="json"), Client[Any])
assert_type(
    Client("https://broker:7480", token="dgm_", tls=Tls(ca=Path("ca.pem"), server_name="broker")), Client[bytes]
)
assert_type(AsyncClient("http://broker:7480", token_file="token", tls=True), AsyncClient[bytes])
Client(token=b"dgm_")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Client(tls="ca.pem")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Tls("ca.pem")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# ---------------------------------------------------------------- a client of objects

with Client(codec="json", connect_timeout=3) as objects:
    assert_type(objects, Client[Any])
    assert_type(objects.call("describe", {"picture": 42}), Any)
    assert_type(objects.submit("describe", {"picture": 42}), JobFuture[Any])
    assert_type(objects.map("describe", [1, 2]), Iterator[Any])
    assert_type(objects.call("resize", b"big", codec="bytes"), bytes)


# ---------------------------------------------------------------- what people write in their own annotations


def shrink(client: Client, picture: bytes) -> bytes:
    return client.call("resize", picture)


def first_of(jobs: list[JobFuture]) -> concurrent.futures.Future[bytes]:
    return jobs[0]


def size(client: Client) -> int:
    return client.call("resize")  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


# ---------------------------------------------------------------- executors


def count(word: str, letter: str) -> int:
    return word.count(letter)


with client.executor("python", codec="pickle", timeout=60) as pool:
    executor: concurrent.futures.Executor = pool
    assert_type(pool.submit(count, "dragoman", letter="a"), JobFuture[int])
    assert_type(pool.map(count, ["dragoman"], ["a"]), Iterator[int])
    assert_type(pool.submit(None, b"payload"), JobFuture[Any])
    assert_type(pool.map(None, [b"1", b"22"]), Iterator[Any])
    pool.submit(count, 5, "a")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    client.executor("python", codex="pickle")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# ---------------------------------------------------------------- the same, awaited


async def main() -> None:
    async with AsyncClient("tcp://127.0.0.1:7400") as client:
        assert_type(client, AsyncClient[bytes])
        assert_type(await client.call("resize", b"big", timeout=30), bytes)
        assert_type(await client.call("describe", {"picture": 42}, codec="json"), Any)
        assert_type(await client.call("resize", codec="bytes"), bytes)
        job = client.submit("resize", b"big")
        assert_type(job, AsyncJobFuture[bytes])
        assert_type(await job, bytes)
        assert_type(job.parts(), AsyncIterator[bytes])
        assert_type(client.map("resize", [b"1", b"22"]), AsyncIterator[bytes])
        assert_type(client.map("resize", client.map("turn", [b"1"])), AsyncIterator[bytes])
        async for done in client.as_completed([job]):
            assert_type(done, AsyncJobFuture[bytes])
        await client.call("resize", b"big", patience=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    async with AsyncClient(codec="cbor") as objects:
        assert_type(objects, AsyncClient[Any])
        assert_type(await objects.call("describe", [1, 2]), Any)
        assert_type(await objects.submit("describe", [1, 2]), Any)


async def shrink_soon(client: AsyncClient, picture: bytes) -> bytes:
    return await client.call("resize", picture)
