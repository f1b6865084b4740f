"""Extras of jobs in JOB: a JSON array in its last frame, an object or null for each job. Readers raise Malformed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.job_extras import is_traceparent
from dragoman.core.model import Attempt
from dragoman.dialects.native.messages import Job

TRACEPARENT: Final = "traceparent"
WAITED: Final = "waited"
PARTS: Final = "parts"
OF_JOB: Final = (TRACEPARENT, WAITED, PARTS)  # those that this broker sends, as in WELCOME
MOST_JOB_EXTRAS: Final = 1 << 20  # bytes


def write_job_extras(batch: Sequence[Attempt], parts: Sequence[str]) -> bytes:
    """Return the extras of these jobs; empty if none of them has any. `parts`: services whose callers must take
    parts."""
    found = [_facts(attempt, parts) for attempt in batch]
    return json.dumps(found).encode() if any(found) else b""


def _facts(attempt: Attempt, parts: Sequence[str]) -> dict[str, Any] | None:
    job = attempt.job
    extras = job.extras
    facts: dict[str, Any] = {}
    if extras is not None and extras.traceparent:
        facts[TRACEPARENT] = extras.traceparent
        if not job.spent:  # a retry has waited for its delay, too
            facts[WAITED] = round(max(0.0, attempt.given - job.arrival), 6)
    if parts and not job.options.streams and job.service.name in parts:
        facts[PARTS] = False
    return facts or None


def with_job_extras(jobs: list[Job], frame: Frame) -> list[Job]:
    """Return the jobs with their extras. Unknown keys are ignored."""
    try:
        found = json.loads(bytes(frame[: MOST_JOB_EXTRAS + 1]).decode()) if len(frame) <= MOST_JOB_EXTRAS else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != len(jobs):
        raise Malformed("malformed", "the last frame of a JOB must be JSON, an array with an entry for each job")
    return [_with(job, each) if isinstance(each, dict) else job for job, each in zip(jobs, found, strict=True)]


def _with(job: Job, facts: dict[str, Any]) -> Job:
    traceparent, waited = facts.get(TRACEPARENT), facts.get(WAITED)
    return replace(
        job,
        traceparent=traceparent if isinstance(traceparent, str) and is_traceparent(traceparent) else "",
        waited=float(waited) if isinstance(waited, int | float) and 0 <= waited < 1e9 else None,
        takes_parts=facts.get(PARTS) is not False,
    )
