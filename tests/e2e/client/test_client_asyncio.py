"""Clients of asyncio programs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from client_broker import OTHERS, Broker
from native_worker import HandWorker

from dragoman import AsyncClient, JobCancelled, JobFailed
from programs import PATIENCE


@pytest.fixture
def on_loop(loop_name: str) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a coroutine on the loop of this name."""
    factory = uvloop.new_event_loop if loop_name == "uvloop" else asyncio.new_event_loop

    def run(main: Callable[[], Awaitable[None]]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(2 * PATIENCE):
                await main()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())

    return run


def test_the_same_awaited(broker: Broker, worker: HandWorker, on_loop: Any) -> None:
    async def main() -> None:
        async with AsyncClient(broker.url) as client:
            assert await client.call("echo", b"hello", timeout=10) == b"hello"
            job = client.submit("echo", b"parts 2")
            assert [part async for part in job.parts()] == [b"part 0", b"part 1"]
            assert await job == b"parts 2"
            assert re.fullmatch("[0-9a-f]{32}", job.id)
            assert (await client.submit("echo", b"report 2")) == b"report 2"
            with pytest.raises(JobFailed, match="ValueError: no"):
                await client.call("echo", b"fail no")
            payloads = [b"%d" % number for number in range(500)]
            assert [result async for result in client.map("echo", payloads, window=50)] == payloads
            jobs = [client.submit("echo", payload) for payload in payloads[:10]]
            assert {job.result() async for job in client.as_completed(jobs, timeout=PATIENCE)} == set(payloads[:10])
            assert await asyncio.gather(*(client.call("echo", each) for each in payloads[:20])) == payloads[:20]

    on_loop(main)


def test_whoever_stops_waiting_cancels_the_job(broker: Broker, worker: HandWorker, on_loop: Any) -> None:
    async def main() -> None:
        async with AsyncClient(broker.url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.call("echo", b"hold")
            job = client.submit("echo", b"hold too")
            await asyncio.to_thread(worker.held.get, timeout=PATIENCE)
            _, token = await asyncio.to_thread(worker.held.get, timeout=PATIENCE)
            await asyncio.to_thread(worker.recalled.get, timeout=PATIENCE)
            assert job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            assert await asyncio.to_thread(worker.recalled.get, timeout=PATIENCE) == token

    on_loop(main)


def test_a_map_over_what_comes_now_and_then_does_not_keep_results_back(
    broker: Broker, worker: HandWorker, on_loop: Any
) -> None:
    async def main() -> None:
        answered = asyncio.Event()

        async def payloads() -> Any:
            yield b"first"
            await answered.wait()
            yield b"second"

        async with AsyncClient(broker.url) as client:
            results = []
            async for result in client.map("echo", payloads()):
                results.append(result)
                answered.set()
            assert results == [b"first", b"second"]

    on_loop(main)


def test_closing_an_async_client_ends_what_is_under_way(broker: Broker, worker: HandWorker, on_loop: Any) -> None:
    async def main() -> None:
        client = AsyncClient(broker.url)
        job = client.submit("echo", b"hold")
        await asyncio.to_thread(worker.held.get, timeout=PATIENCE)
        await client.close()
        with pytest.raises(JobCancelled, match="the client was closed"):
            await job
        with pytest.raises(RuntimeError, match="closed"):
            await client.call("echo", b"x")
        with pytest.raises(RuntimeError, match="closed"):
            await client.enqueue("echo")

    on_loop(main)


@pytest.mark.parametrize("dialect", OTHERS)
def test_every_dialect_is_spoken_there_too(broker: Broker, worker: HandWorker, dialect: str) -> None:
    async def main() -> None:
        async with AsyncClient(getattr(broker, dialect), connections=3) as client:
            payloads = [b"%d" % number for number in range(30)]
            assert [result async for result in client.map("echo", payloads, window=10)] == payloads
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.call("echo", b"hold")
            assert await client.call("echo", b"after", timeout=10) == b"after"

    asyncio.run(main())
