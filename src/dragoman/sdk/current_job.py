"""The id of the job whose handler runs in this thread or task: log lines carry it."""

from __future__ import annotations

from contextvars import ContextVar

current_job: ContextVar[str] = ContextVar("dragoman_current_job", default="")  # empty: none, or it has no id
