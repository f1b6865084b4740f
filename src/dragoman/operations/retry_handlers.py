"""Retries quarantined jobs. A job that has given its key up gets it back first, wherever that is decided.

With one broker, `retry_job` looks for another job with the key. In a cluster, that job may be in another shard: so the
key is reserved in its own shard, as for a job of a batch (`reserved_keys.py`). A job that holds its key until its
outcome is deleted needs no question.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dragoman.core.model import Job
from dragoman.core.states import Unique
from dragoman.operations.bulk_acts import Unsettled
from dragoman.operations.handler_base import HandlerBase
from dragoman.operations.job_acts import check_retry, retry_job
from dragoman.operations.recorded_requests import record_request, record_response
from dragoman.operations.reserved_keys import KeyItem, Reserving
from dragoman.operations.responders import OwnResponder, Responder
from dragoman.operations.schemas import ErrorView, JobAct, JobView, OperationError
from dragoman.operations.table import RETRY
from dragoman.operations.targets import Targets

Retried = Callable[[Job | ErrorView, float], None]  # the new job, or the error


class RetryHandlers(HandlerBase):
    """Retries for the operations on one job and on many."""

    targets: Targets

    def _retry(self, job: Job, request: JobAct, responder: Responder, now: float) -> None:
        """Retry a job for a request. One that repeats it gets the job that the first one created."""
        again = self.targets.retried(job)
        if again is None and self.needs_key(job):
            self._retry_with_key(job, partial(self._answer_retry, job, request, responder), now)
        else:
            self._answer_retry(job, request, responder, again or retry_job(self.broker, job, now), now)

    def _answer_retry(
        self, job: Job, request: JobAct, responder: Responder, again: Job | ErrorView, now: float
    ) -> None:
        if isinstance(again, ErrorView):
            responder.refuse(again)
            return
        record_request(again, RETRY, responder, 0, now)
        record_response(again, responder, RETRY.status, 0, now)
        shards = self._shards(job.id, again.id)
        self._answer_act(RETRY, request, self._job_view(again, responder), responder, shards, now)

    def _job_view(self, job: Job, reader: Responder) -> JobView:
        raise NotImplementedError

    def needs_key(self, job: Job) -> bool:
        """True if a job of another shard may hold the key of this one."""
        is_placed = self.placement is not None and job.options.durable and job.quarantined
        return is_placed and job.key is not None and job.options.unique is not Unique.KEPT

    def _retry_with_key(self, job: Job, done: Retried, now: float) -> None:
        """Retry a job when its key is reserved. `done` is called once. Raises OperationError."""
        placement, brokers = self.placement, self.brokers
        assert placement is not None
        assert brokers is not None
        assert job.key is not None
        check_retry(self.broker, job)
        item = KeyItem(job.service.name, job.key, job.id.hex(), job.digest.hex())
        owner = OwnResponder(self.broker.owners.of_stored(self.broker.principals.local))
        shard = placement.shard_of(job.id)
        reserving = Reserving(placement, shard, job.principal.name, {0: item}, owner, is_retry=True)

        def reserved(problem: ErrorView | None, _: int | None, taken: dict[int, str]) -> None:
            found: Job | ErrorView
            then = placement.now()
            try:
                if problem is not None:
                    raise OperationError(problem.kind, problem.detail)
                if taken:
                    raise OperationError(
                        "conflict",
                        f"job {job.id.hex()} has a key that job {taken[0]} of another shard of the cluster holds; "
                        "retry when that has given it up, or delete one of the two",
                    )
                reserving.check()
                found = self.targets.retried(job) or retry_job(self.broker, job, then)
            except OperationError as error:
                found = error.problem
            placement.keys.accepted([job.id])
            reserving.settle()
            done(found, then)
            self._store_access.wake()

        placement.keys.accept([job.id])
        reserving.begin(brokers, reserved, now)

    def retry_committed(self, job: Job, done: Callable[[Job | ErrorView], None], now: float) -> None:
        """Retry a job when its key is reserved. `done` is called once, when the new job is committed. Raises
        OperationError."""

        def retried(again: Job | ErrorView, then: float) -> None:
            if isinstance(again, ErrorView):
                done(again)
                return

            def saved(problem: str | None) -> None:
                done(again if problem is None else ErrorView(kind="store unavailable", detail=problem))

            self._store_access.when_saved(saved, self._shards(again.id))

        self._retry_with_key(job, retried, now)


class BulkRetry:
    """Retries the jobs of an act on many jobs, one after the other."""

    def __init__(self, handlers: RetryHandlers) -> None:
        self._handlers = handlers
        self._asked: Job | None = None  # its key is asked for
        self._found: Job | ErrorView | None = None  # the answer

    def __call__(self, job: Job, now: float) -> None:
        """Raises OperationError; or Unsettled if the owner of the key has not answered: then call it again."""
        if self._asked is None:
            if not self._handlers.needs_key(job):
                retry_job(self._handlers.broker, job, now)
                return
            self._handlers.retry_committed(job, self._take, now)
            self._asked = job
        if self._found is None:
            raise Unsettled
        found, self._asked, self._found = self._found, None, None
        if isinstance(found, ErrorView):
            raise OperationError(found.kind, found.detail)

    def _take(self, found: Job | ErrorView) -> None:
        self._found = found
