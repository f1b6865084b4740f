"""Load of Dragoman's own client and worker on native listeners: plain, with CURVE and with TLS.

Modes are `native`, `native-curve` and `native-tls`. One worker with as many jobs at once as there are calls in flight,
both in this process: compare the broker's CPU, and not the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from dataclasses import asdict

from bench.load import LoadError, read_options
from bench.measure import Run, run_between, take_reading
from bench.secure_load import CERTIFICATE, CLIENT_KEY, SERVER_KEY, secrets
from dragoman import AsyncClient, Worker

MODES = ("native", "native-curve", "native-tls")
SERVICE = "echo"
START_LIMIT = 10.0


def main() -> None:
    options = read_options("bench.native_secure_load", *MODES)
    url = _url(options)
    worker = Worker(url, concurrency=options.window)

    @worker.service(SERVICE)
    async def echo(payload: bytes) -> bytes:
        return payload

    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        print(json.dumps(asdict(asyncio.run(_measure(url, options)))))
    except LoadError as error:
        raise SystemExit(f"load: {error}") from None
    finally:
        worker.stop()
        thread.join(START_LIMIT)


def _url(options: argparse.Namespace) -> str:
    place = options.frontend.removeprefix("tcp://")
    if options.mode == "native-curve":
        server = (secrets() / SERVER_KEY).read_text()
        hex_key = _hex(server)
        return f"tcp://{place}?server_key={hex_key}&key={secrets() / CLIENT_KEY}"
    return f"tls://{place}?ca={secrets() / CERTIFICATE}" if options.mode == "native-tls" else f"tcp://{place}"


def _hex(key: str) -> str:
    from zmq.utils import z85

    return z85.decode(key).hex()


async def _measure(url: str, options: argparse.Namespace) -> Run:
    payload = bytes(options.size)
    latencies: list[int] = []
    wrong = 0
    is_measured = is_over = False

    async with AsyncClient(url) as client:

        async def call_again_and_again() -> None:
            nonlocal wrong
            while not is_over:
                start = time.monotonic_ns()
                reply = await client.call(SERVICE, payload, wait_for_worker=True, timeout=START_LIMIT)
                if is_measured:
                    latencies.append(time.monotonic_ns() - start)
                    wrong += len(reply) != len(payload)

        callers = [asyncio.ensure_future(call_again_and_again()) for _ in range(options.window)]
        await asyncio.sleep(options.warmup)
        before = take_reading(options.broker_pid)
        is_measured = True
        await asyncio.sleep(options.seconds)
        is_measured = False
        after = take_reading(options.broker_pid)
        is_over = True
        await asyncio.gather(*callers)
    if not latencies:
        raise LoadError("no call has ended")
    return run_between(before, after, latencies, wrong, 0)


if __name__ == "__main__":
    main()
