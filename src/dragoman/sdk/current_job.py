"""The job whose handler runs here: log lines carry its id, and jobs that the handler submits name it as their parent.

It is a context variable: of a thread of the worker, or of an asyncio task and those that it starts. A child process
runs one job at a time, so there it is known in all threads; and a program of `dragoman worker --exec` has it in its
environment.
"""

from __future__ import annotations

import os
import re
from contextvars import ContextVar

from dragoman.dialects.sides import JobExtras, JobId

JOB_VARIABLE = "DRAGOMAN_JOB_ID"
TRACE_VARIABLE = "TRACEPARENT"
ID = re.compile("[0-9a-f]{32}")

current_job: ContextVar[str] = ContextVar("dragoman_current_job", default="")  # empty: none, or it has no id
current_trace: ContextVar[str] = ContextVar("dragoman_current_trace", default="")  # traceparent of that job


class ProcessJob:
    """The job of this process, for threads that a handler has started."""

    __slots__ = ("id", "traceparent")

    def __init__(self, id: str = "", traceparent: str = "") -> None:
        self.id = id
        self.traceparent = traceparent


process_job = ProcessJob()
if JOB_VARIABLE in os.environ:  # this is a program that a worker has started
    process_job = ProcessJob(os.environ[JOB_VARIABLE], os.environ.get(TRACE_VARIABLE, ""))


def begin_job(id: str, traceparent: str) -> None:
    """Set the job of this thread or task. Both are empty if there is none any more."""
    current_job.set(id)
    current_trace.set(traceparent)


def begin_process_job(id: str, traceparent: str) -> None:
    """Set the job of this process, which runs one at a time."""
    begin_job(id, traceparent)
    process_job.id, process_job.traceparent = id, traceparent


def current_extras() -> JobExtras | None:
    """Return the extras of a job that is submitted here: its parent and its trace; None outside of a job."""
    id, traceparent = current_job.get(), current_trace.get()
    if not id:
        id, traceparent = process_job.id, process_job.traceparent
        if not id:
            return None
    parent = JobId(bytes.fromhex(id)) if ID.fullmatch(id) else None
    return JobExtras(parent, traceparent) if parent is not None or traceparent else None
