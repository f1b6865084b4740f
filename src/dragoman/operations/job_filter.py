"""Filters of jobs, for lists and for acts on many jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.model import Job
from dragoman.core.rights import Principal
from dragoman.core.states import DONE, ENDED
from dragoman.operations.seen_links import reason_of
from dragoman.operations.visibility import reads_job


class JobFilter:
    """The filters that take long, or that few jobs match: a list with one of them looks at a limited number."""

    def __init__(
        self,
        principal: Principal,
        broker: Broker,
        offset: float,
        *,
        kind: str | None = None,
        caller: str | None = None,
        worker: str | None = None,
        text: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        undone: bool = False,
        read_match: Callable[[bool], bool] = bool,
    ) -> None:
        """`offset`: seconds that the wall clock is ahead of the broker's. `read_match` taps each comparison of a
        reason: a recording hides the texts."""
        self._read_match = read_match
        self._principal = principal
        self._broker = broker
        self._is_background = None if kind is None else kind == "background"
        self._caller = caller
        self._worker = worker
        self._text = text.casefold() if text is not None else None
        self._reason = reason.casefold() if reason is not None else None
        self._since = since.timestamp() - offset if since is not None else -inf
        self._until = until.timestamp() - offset if until is not None else inf
        self._undone = undone
        given = (self._is_background, caller, worker, text, reason, since, until)
        self.is_used = undone or any(each is not None for each in given)

    def matches(self, job: Job) -> bool:
        return (
            (self._is_background is None or job.options.durable == self._is_background)
            and (not self._undone or (job.state is ENDED and job.outcome is not DONE))
            and (self._caller is None or job.caller_dialect == self._caller)
            and self._since <= time_of(job) < self._until
            and (self._worker is None or self._ran_on(job, self._worker))
            and (self._reason is None or self._has_reason(job, self._reason))
            and (self._text is None or self._has_text(job, self._text))
        )

    def _ran_on(self, job: Job, worker: str) -> bool:
        attempt = job.attempt
        if attempt is not None and worker in (attempt.worker.name, str(attempt.worker.id)):
            return True
        return any(worker in (each.worker, str(each.worker_id)) for each in job.history or ())

    def _has_text(self, job: Job, text: str) -> bool:
        """True if the text begins its id, or is in its key, the names of its workers or a reason. A key is for readers
        of the job only (R147)."""
        attempt = job.attempt
        return (
            job.id.hex().startswith(text)
            or (job.key is not None and text in job.key.casefold() and reads_job(self._principal, job))
            or (attempt is not None and text in attempt.worker.name.casefold())
            or any(text in each.worker.casefold() for each in job.history or ())
            or self._has_reason(job, text)
        )

    def _has_reason(self, job: Job, text: str) -> bool:
        """True if the text is in its reason, as the principal sees it, or in that of an attempt."""
        reason = reason_of(job, self._principal, self._broker)
        found = text in reason.casefold() or any(text in each.reason.casefold() for each in job.history or ())
        return self._read_match(found)


def time_of(job: Job) -> float:
    """Return the time that `since` and `until` compare: that of the end, or of the submit if the job has not ended."""
    ended = job.ended if job.state is ENDED else None
    return ended if ended is not None else job.created
