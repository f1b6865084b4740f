"""Sentry: failures of jobs are reported with service, job id and attempt.

sentry_sdk.init(dsn=...)
report_failures()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sentry_sdk

from dragoman.sdk.errors import Retry
from dragoman.sdk.hooks import JobHooks, add_hooks

if TYPE_CHECKING:
    from dragoman.sdk.context import Context


class SentryHooks(JobHooks):
    def failed(self, job: Context, error: BaseException) -> None:
        if isinstance(error, Retry):
            return  # the handler's own decision, not an error
        with sentry_sdk.new_scope() as scope:
            scope.set_tag("dragoman.service", job.service)
            scope.set_context("dragoman", {"service": job.service, "job": job.job_id, "attempt": job.attempt})
            scope.set_transaction_name(job.service)
            sentry_sdk.capture_exception(error)


_hooks = SentryHooks()


def report_failures() -> None:
    """Report failures of this process's jobs from now on. Call it in the module of the tasks, after `sentry_sdk.init`,
    so that child processes of the worker do it, too."""
    add_hooks(_hooks)
