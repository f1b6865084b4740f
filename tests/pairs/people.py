"""What every people brings to the pairs: a caller and a worker that speak its wire by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dragoman.core.states import Outcome
from pairs.world import World

JOB_TIMEOUT = 50.0  # seconds, for every listener and caller
MAX_PAYLOAD = 200_000
TOO_LARGE = MAX_PAYLOAD + 1
ATTEMPTS = 1  # of every caller's jobs, whatever the worker's people would give: how an attempt ends is how its job does


class Caller(Protocol):
    def __init__(self, world: World) -> None: ...

    def submit(self, payload: bytes) -> None: ...

    def told(self) -> list[tuple[Outcome, bytes]]:
        """Answers since the last time: how it ended, with the result where there is one. Silence is no answer."""


class Worker(Protocol):
    def __init__(self, world: World) -> None:
        """Connect, and be idle."""

    def jobs(self) -> list[bytes]:
        """Payloads of jobs that it was given since the last time."""

    def finish(self, result: bytes) -> None: ...

    def fail(self) -> None: ...

    def vanish(self) -> None:
        """Be gone for good, so that the broker finds out."""

    def recover(self, world: World) -> None:
        """After an attempt that ended without a result: be idle again, as this people's page says."""


@dataclass(frozen=True)
class People:
    name: str
    dialect: str
    caller: type[Caller] | None  # some peoples have workers only
    worker: type[Worker]
    silent: frozenset[Outcome] = frozenset()  # outcomes for which its callers' wire has no word
    hangs_up: frozenset[Outcome] = frozenset()  # after these its workers are hung up on: nothing late can come of them
    impossible: Mapping[Outcome, str] = field(default_factory=dict)  # what its workers cannot bring about, and why

    def __str__(self) -> str:
        return self.name

    def call(self, world: World) -> Caller:
        assert self.caller is not None, f"nobody calls in {self.name}"
        return self.caller(world)
