"""Sentences about the idempotency key of a job, and about the time for which its outcome is kept."""

from __future__ import annotations

from typing import Final

from dragoman.core.archive import FOREVER, keeps_forever
from dragoman.core.job_keys import holds_key
from dragoman.core.model import Job
from dragoman.core.states import ENDED, Unique
from dragoman.operations.validation import duration

AUTOMATIC: Final = "cron/"  # start of keys that a schedule has made
HELD: Final = {
    Unique.WAITING: "until it starts",
    Unique.UNFINISHED: "until it ends",
    Unique.KEPT: "while its outcome is kept",
}


def key_sentence(job: Job) -> str:
    """Return a sentence about a key that the caller chose; empty if there is none."""
    if job.key is None or job.key.startswith(AUTOMATIC):
        return ""
    if holds_key(job):
        return f"It holds the key '{job.key}' {HELD[job.options.unique]}."
    return f"It does not hold its key '{job.key}' any more."


def keep_sentence(job: Job, now: float) -> str:
    """Return a sentence about the time for which its outcome is kept, if the caller chose one; else an empty text."""
    keep = job.options.keep
    if keep is None:
        return ""
    if job.state is ENDED and job.is_archived and job.keep_until != FOREVER:
        return f"Its outcome is kept for {duration(round(max(0.0, job.keep_until - now)))} from now."
    time = "until it is deleted" if keeps_forever(job) else f"for {duration(keep)}"
    return f"Its outcome is kept {time}." if keep else "Its outcome is not kept."
