"""Options of a job and of a worker: what callers ask for, and what a dialect says about its workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core.infinity import inf

DEFAULT_PRIORITY: Final = 5
HIGHEST_PRIORITY: Final = 9
ALWAYS_ASKS: Final = 1 << 60  # jobs that a worker asks for which does not pull: more than it is ever given


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """The properties of a worker that its dialect sets. One object serves all workers of a listener."""

    lease: float = inf  # how long a silent worker is believed to live
    silent_while_busy: bool = False  # D5: then the job's own timeout is the only judge
    may_decline: bool = False
    pulls: bool = False  # R131: it is given no more jobs than it asks for; others always ask
    capacity: int = 1
    stuck_timeout: float = 3_600.0  # how long an unproven worker is waited for (R36)
    detach_timeout: float = 60.0  # how long one is waited for that is out of reach and has no lease to run out (R64)
    can_resume: bool = False  # it can name an attempt that it was given before the broker was started anew (R107)
    comes_back: bool = False  # told to go, it joins again at once: its dialect has no word that ends a worker
    ends_with_connection: bool = False  # its session hangs up on a silent one, and then says what never left (R8)
    job_timeout: float = inf  # how long a job without any limit may run here: the listener's, where workers are silent
    max_payload: int = 64 << 20  # bytes of a result, with the parts that came ahead of it
    attempts: int = 1  # D8: the attempts its dialect's document gives a job that did not bring a number

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity {self.capacity} is less than 1")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a job. One object serves all jobs that ask for the same."""

    queue_timeout: float = inf  # waiting before a hand-out
    job_timeout: float = 60.0  # running time of one attempt; inf = none
    attempts: int | None = None  # None: the larger default of the caller's and the worker's dialect (D8)
    default_attempts: int = 1
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    waits: bool = False  # wait for a worker instead of `refused: no such service`
    durable: bool = False  # a background job: acknowledged when the diary has it
    retry_first: float | None = None  # R11: rest before the second attempt, doubled each time; None: the policy's
    retry_cap: float | None = None
    retry_jitter: float | None = None
    orphan_grace: float = 0.0  # how long a waiting call outlives its caller
    keeps_outcome: bool = True  # R136: False: nothing of it is kept when it has ended, unless it is in quarantine
    streams: bool = False  # parts of the result go to the caller as they come; else they are joined in front of it

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            raise ValueError(f"priority {self.priority} is not between 0 and {HIGHEST_PRIORITY}")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts {self.attempts} is less than 1")
