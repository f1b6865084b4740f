"""Interface of a dialect in the pairs: a caller and a worker, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dragoman.core.states import Outcome
from pairs.world import World

JOB_TIMEOUT = 50.0  # seconds, for every listener and caller
MAX_PAYLOAD = 200_000
TOO_LARGE = MAX_PAYLOAD + 1
ATTEMPTS = 1  # of every caller's jobs: the outcome of the attempt is that of the job


class Caller(Protocol):
    def __init__(self, world: World) -> None: ...

    def submit(self, payload: bytes) -> None: ...

    def told(self) -> list[tuple[Outcome, bytes]]:
        """Return the outcomes received since the last call, with the result if there is one. Silence is no outcome."""


class Worker(Protocol):
    def __init__(self, world: World) -> None:
        """Connect, and become idle."""

    def jobs(self) -> list[bytes]:
        """Return the payloads of jobs received since the last call."""

    def finish(self, result: bytes) -> None: ...

    def fail(self) -> None: ...

    def vanish(self) -> None:
        """Leave for good, in a way that the broker notices."""

    def recover(self, world: World) -> None:
        """Become idle again after an attempt without a result, as the dialect's page describes."""


@dataclass(frozen=True)
class Participants:
    name: str
    dialect: str
    caller: type[Caller] | None  # some dialects have workers only
    worker: type[Worker]
    silent: frozenset[Outcome] = frozenset()  # outcomes for which its callers' wire has no word
    hangs_up: frozenset[Outcome] = frozenset()  # after these its workers are hung up on: nothing late can come of them
    impossible: Mapping[Outcome, str] = field(default_factory=dict)  # what its workers cannot bring about, and why

    def __str__(self) -> str:
        return self.name

    def call(self, world: World) -> Caller:
        assert self.caller is not None, f"nobody calls in {self.name}"
        return self.caller(world)
