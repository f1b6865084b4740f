"""Time, randomness and the order of events: a run depends on its seed only.

Time jumps from one event to the next, so an hour costs as much as its events. It moves on a grid of one millisecond, on
purpose: many things then happen at the same instant, as for a real loop that finds ten sockets readable at once. Events
of one instant happen in the order of their requests.

`note` adds to the trace. Its hash shows whether two runs were the same (I15); its tail is printed by a failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from math import ceil
from random import Random
from typing import Any

GRID = 1000  # instants a second
MAX_EVENTS = 1_000_000
BEGIN = 1000  # seconds: the clock of a real machine does not begin at 0 either


class World:
    def __init__(self, seed: int, tail: int = 60) -> None:
        self.random = Random(seed)
        self.now = float(BEGIN)
        self.events = 0
        self.after_event: Callable[[], None] = lambda: None
        self.tail: deque[tuple[float, str, object]] = deque(maxlen=tail)
        self._instant = BEGIN * GRID
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._trace = blake2b(digest_size=16)

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        """At this instant, after all that is already due in it."""
        self._push(self._instant, call, args)

    def after(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        self._push(self._instant + max(0, round(delay * GRID)), call, args)

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Call back at `when`, and never within this instant: a call for now is made a moment later."""
        self._push(max(self._instant + 1, ceil(when * GRID - 1e-6)), call, args)

    def run(self, until: float) -> None:
        """Let everything happen that is due before `until`."""
        heap, last = self._heap, round(until * GRID)
        while heap and heap[0][0] <= last:
            self._instant, _, call, args = heappop(heap)
            self.now = self._instant / GRID
            self.events += 1
            assert self.events < MAX_EVENTS, "this run does not come to an end"
            call(*args)
            self.after_event()
        self._instant = last
        self.now = until

    def note(self, who: str, what: object) -> None:
        """Add an event to the trace; `what` is bytes, or an object whose repr is the same in every run."""
        self.tail.append((self.now, who, what))
        self._trace.update(b"%d %s " % (self._instant, who.encode()))
        self._trace.update(what if isinstance(what, bytes) else repr(what).encode())

    def trace(self) -> str:
        return self._trace.hexdigest()

    def chance(self, likelihood: float) -> bool:
        return self.random.random() < likelihood

    def _push(self, instant: int, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._number += 1
        heappush(self._heap, (instant, self._number, call, args))
