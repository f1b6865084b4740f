"""Extras of a job: facts that its caller gives with it and that few jobs have.

Options (`core/options.py`) are shared by many jobs. Extras belong to one job, so most jobs have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dragoman.core.ids import JobId


class JobInput(StrEnum):
    """The payload that a worker receives with a job that comes after other jobs."""

    PAYLOAD = "payload"  # the one that was submitted
    RESULT = "result"  # the result of its only predecessor
    RESULTS = "results"  # the submitted payload and the results of all predecessors, see `core/results_payload.py`


@dataclass(frozen=True, slots=True)
class JobExtras:
    """Extras of one job. A default means that the caller did not give the fact."""

    parent: JobId | None = None  # the job whose handler submitted this one
    traceparent: str = ""  # W3C trace context of the submit
    after: tuple[JobId, ...] = ()  # its predecessors: jobs and groups that must end before it may start
    runs_after_failure: bool = False  # start it even if a predecessor is not done; else it is cancelled
    input: JobInput = JobInput.PAYLOAD
    is_ready: bool = False  # its predecessors have ended, and its payload is the input
    group: JobId | None = None  # id of its group
    place: int = 0  # its index in the group
