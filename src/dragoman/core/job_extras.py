"""Extras of a job: facts that its caller gives with it and that few jobs have.

Options (`core/options.py`) are shared by many jobs. Extras belong to one job, so most jobs have none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from dragoman.core.ids import JobId

# W3C Trace Context: version, trace id, parent id, flags. Later versions may append fields.
TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
MOST_TRACEPARENT: Final = 255  # characters


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
    tenant: str = ""  # customer or account that the job is for; tenants of a principal take turns
    after: tuple[JobId, ...] = ()  # its predecessors: jobs and groups that must end before it may start
    runs_after_failure: bool = False  # start it even if a predecessor is not done; else it is cancelled
    input: JobInput = JobInput.PAYLOAD
    is_ready: bool = False  # its predecessors have ended, and its payload is the input
    group: JobId | None = None  # id of its group
    place: int = 0  # its index in the group
    # Parameters that a worker must know to get the job: the last one that did not has refused it with this message
    # (R269). Empty: no worker has refused it.
    needs: tuple[str, ...] = ()
    refused_by: str = ""
    refusal: str = ""


def given_extras(parent: JobId | None, traceparent: str | None, tenant: str = "") -> JobExtras | None:
    """Return the extras of a submit; None if there are none. An invalid traceparent is ignored, as W3C requires."""
    if traceparent is not None and not is_traceparent(traceparent):
        traceparent = None
    if parent is None and not traceparent and not tenant:
        return None
    return JobExtras(parent, traceparent or "", tenant)


def with_tenant(extras: JobExtras | None, tenant: str) -> JobExtras:
    """Return the extras with a tenant."""
    return JobExtras(tenant=tenant) if extras is None else replace(extras, tenant=tenant)


def without_needs(extras: JobExtras) -> JobExtras:
    """Return the extras of a job that begins again: no worker has refused it."""
    return replace(extras, needs=(), refused_by="", refusal="") if extras.needs else extras


def is_traceparent(text: str) -> bool:
    if len(text) > MOST_TRACEPARENT:
        return False
    found = TRACEPARENT.fullmatch(text)
    return found is not None and (found[1] is None or not text.startswith("00"))
