"""Extras of a job: facts that its caller gives with it and that few jobs have.

Options (`core/options.py`) are shared by many jobs. Extras belong to one job, so most jobs have none.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.core.ids import JobId


@dataclass(frozen=True, slots=True)
class JobExtras:
    """Extras of one job. A default means that the caller did not give the fact."""

    parent: JobId | None = None  # the job whose handler submitted this one
    traceparent: str = ""  # W3C trace context of the submit
    request: str = ""  # id of the request, chosen by the client: a repeated request finds the job that the first made
