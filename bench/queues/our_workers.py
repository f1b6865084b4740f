"""What Dragoman's workers run: `dragoman worker bench.queues.our_workers:on_a_loop` or `:elsewhere`."""

from __future__ import annotations

import os

from bench.queues.echo import WHO


async def on_a_loop(payload: bytes) -> bytes:
    """The payload, or who we are."""
    return elsewhere(payload)


def elsewhere(payload: bytes) -> bytes:
    """The same in a thread, or in a process of its own."""
    return payload if payload != WHO.encode() else str(os.getpid()).encode()
