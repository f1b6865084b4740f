"""The event loop of the broker: uvloop's or asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the event loop: uvloop if installed, else asyncio's, or the named one."""
    if name != "asyncio":
        try:
            import uvloop
        except ImportError:
            if name == "uvloop":
                raise
        else:
            factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
            return factory
    return asyncio.new_event_loop
