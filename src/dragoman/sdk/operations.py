"""Operations of a `Client`.

Written by tools/client_methods.py from the table of operations: change that table, or the tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from dragoman.sdk import operation_steps
from dragoman.sdk.option_types import Result
from dragoman.sdk.performing import Performer

if TYPE_CHECKING:
    from dragoman.operations.ladder_schemas import ConversationView
    from dragoman.operations.schemas import AccessView, HealthView, JobView, ScheduleView, ServiceView, WorkerView


class ClientOperations(Performer, Generic[Result]):
    """Operations of a `Client`. Ids of jobs are 32 hex digits.

    They raise Unsupported if the dialect of the client's address has no operations, NoSuchJob, NoSuchService or
    NotFound for an unknown job, service or other name, and ValueError for a value outside its limits.
    """

    def enqueue(
        self,
        service: str,
        payload: Any = b"",
        *,
        codec: str | None = None,
        delay: float = 0.0,
        not_before: datetime | None = None,
        priority: int = 5,
        attempts: int = 3,
        timeout: float | None = 60.0,
        key: str | None = None,
        retry_first: float | None = None,
        retry_cap: float | None = None,
        retry_jitter: float | None = None,
    ) -> str:
        """Enqueue a background job.

        The response is sent when the job is on disk. Returns the id of the job. It survives restarts of broker, workers
        and this program, and waits for a worker without a time limit. Without a `key` it gets a random one, so that a
        repeated request does not create a second job.

        - `delay`: Earliest start, in seconds from now. [0 to 2592000 (30 days); default: 0]
        - `not_before`: Earliest start, with its time zone.
        - `priority`: Priority; jobs with a higher one start first. One step equals a minute of waiting. [0 to 9;
          default: 5]
        - `attempts`: Maximum number of attempts before the job goes into quarantine. [1 to 100; default: 3]
        - `timeout`: Time limit of one attempt, in seconds; `None`: no limit. [more than 0, at most 86400 (1 day);
          default: 60]
        - `key`: Idempotency key. A second submit with the same key and payload returns the first job. [1 to 256
          characters]
        - `retry_first`: Delay before the second attempt, in seconds; it doubles with each further attempt. By default
          the broker's setting. [0 to 86400 (1 day)]
        - `retry_cap`: Longest delay between two attempts, in seconds. By default the broker's setting. [0 to 86400 (1
          day)]
        - `retry_jitter`: Random fraction that is added to or subtracted from each retry delay. By default the broker's
          setting. [0 to 1]
        - `codec`: Encoding of the payload. [default: the client's]
        """
        from dragoman.operations.schemas import EnqueueRequest

        return self._follow(
            operation_steps.enqueue(
                EnqueueRequest(
                    service=service,
                    delay=delay,
                    not_before=not_before,
                    priority=priority,
                    attempts=attempts,
                    timeout=timeout,
                    key=key,
                    retry_first=retry_first,
                    retry_cap=retry_cap,
                    retry_jitter=retry_jitter,
                ),
                self._encoded(payload, codec),
            )
        )

    def jobs(
        self,
        *,
        service: str | None = None,
        state: Literal["waiting", "delayed", "running", "ended"] | None = None,
        outcome: Literal["done", "failed", "timed out", "lost", "cancelled", "refused"] | None = None,
        quarantined: bool | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[JobView]:
        """List jobs, newest first.

        A `limit` over 1000 is fetched in several pages.

        - `service`: Only jobs of this service. [1 to 128 characters]
        - `state`: Only jobs in this state. [waiting, delayed, running or ended]
        - `outcome`: Only jobs with this outcome. [done, failed, timed out, lost, cancelled or refused]
        - `quarantined`: Only jobs in quarantine (true), or only jobs that are not (false).
        - `limit`: Maximum number of jobs. [1 to 1000; default: 100]
        - `after`: Only jobs older than this one.
        """
        from dragoman.operations.schemas import ListJobsRequest
        from dragoman.operations.table import JOBS

        return self._follow(
            operation_steps.all_pages(
                JOBS,
                ListJobsRequest(
                    service=service, state=state, outcome=outcome, quarantined=quarantined, limit=limit, after=after
                ),
            )
        )

    def job(self, id: str) -> JobView:
        """Show one job.

        The view has its times and attempts, the first bytes of its payload while that is kept, its last progress report
        and, once it has ended, its result or its error.
        """
        from dragoman.operations.schemas import JobRef
        from dragoman.operations.table import JOB

        return self.operation(JOB, JobRef(id=id))

    def payload(self, id: str) -> bytes:
        """Get the payload of a job as it was submitted.

        It is kept until the job ends, and in quarantine. Returns bytes. Raises JobRefused if the payload is no longer
        kept.
        """
        return self._follow(operation_steps.payload(id))

    def cancel(self, id: str) -> bool:
        """Cancel a job that has not ended.

        Returns True if the job is cancelled now, False if it had already ended in another way.
        """
        return self._follow(operation_steps.cancel(id))

    @overload
    def result(self, job: str, timeout: float | None = None, *, codec: None = None) -> Result: ...

    @overload
    def result(self, job: str, timeout: float | None = None, *, codec: Literal["bytes"]) -> bytes: ...

    @overload
    def result(self, job: str, timeout: float | None = None, *, codec: str) -> Any: ...

    def result(self, job: str, timeout: float | None = None, *, codec: str | None = None) -> Any:
        """Wait for the result of a background job, over lost connections and restarts of the broker.

        Raises JobError by its outcome, JobTimeout after `timeout` seconds (the job continues), NoSuchJob and
        BrokerUnavailable.
        """
        return self._follow(operation_steps.result(job, timeout, self._codec_of(codec)))

    def retry(self, id: str) -> str:
        """Retry a job in quarantine: a new job is created with its payload, and the old one leaves the quarantine.

        `retry_of` of the new job and `retried_as` of the old one link the two. Returns the id of the new job. Raises
        JobRefused if the job is not in quarantine.
        """
        from dragoman.operations.schemas import JobRef
        from dragoman.operations.table import RETRY

        return self.operation(RETRY, JobRef(id=id)).id

    def why(self, id: str) -> str:
        """Explain in one sentence why a job is not running, or how it ended."""
        from dragoman.operations.schemas import JobRef
        from dragoman.operations.table import WHY

        return self.operation(WHY, JobRef(id=id)).why

    def ladder(self, job: str, format: Literal["json", "svg", "mermaid", "text"] = "json") -> ConversationView:
        """Show the messages of a job: between its callers, the broker and its workers, each in its own dialect.

        Payloads are not part of it. The messages of a job that has not ended are recorded from now on.

        - `format`: Format of the HTTP response. Clients of other dialects get the view. [json, svg, mermaid or text;
          default: json]
        """
        from dragoman.operations.ladder_schemas import LadderRequest
        from dragoman.operations.table import LADDER

        return self.operation(LADDER, LadderRequest(id=job, format=format))

    def services(self) -> list[ServiceView]:
        """List services with their queues and workers."""
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import SERVICES

        return self.operation(SERVICES, EmptyRequest()).services

    def service(self, service: str) -> ServiceView:
        """Show one service."""
        from dragoman.operations.schemas import ServiceRef
        from dragoman.operations.table import SERVICE

        return self.operation(SERVICE, ServiceRef(name=service))

    def pause(self, service: str, by: str = "an operator") -> ServiceView:
        """Pause a service: none of its jobs is dispatched until the service is resumed.

        New jobs are accepted, and running jobs continue.

        - `by`: Name and reason, shown as `paused_by`. [1 to 128 characters; default: an operator]
        """
        from dragoman.operations.schemas import PauseRequest
        from dragoman.operations.table import PAUSE

        return self.operation(PAUSE, PauseRequest(name=service, by=by))

    def resume(self, service: str) -> ServiceView:
        """Resume a paused service."""
        from dragoman.operations.schemas import ServiceRef
        from dragoman.operations.table import RESUME

        return self.operation(RESUME, ServiceRef(name=service))

    def purge(
        self, service: str, states: Sequence[Literal["waiting", "delayed", "ended"]] = ("waiting", "delayed")
    ) -> int:
        """Cancel the waiting and delayed jobs of a service.

        With the state `ended`, delete the outcomes of its ended jobs. Running jobs continue. Returns the number of
        deleted jobs.

        - `states`: States of the jobs to purge. [waiting, delayed or ended; default: waiting, delayed]
        """
        from dragoman.operations.schemas import PurgeRequest
        from dragoman.operations.table import PURGE

        return self.operation(PURGE, PurgeRequest(name=service, states=tuple(states))).purged

    def workers(self) -> list[WorkerView]:
        """List workers of every dialect with their jobs."""
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import WORKERS

        return self.operation(WORKERS, EmptyRequest()).workers

    def worker(self, worker: int) -> WorkerView:
        """Show one worker."""
        from dragoman.operations.schemas import WorkerRef
        from dragoman.operations.table import WORKER

        return self.operation(WORKER, WorkerRef(id=worker))

    def drain(self, worker: int, *, now: bool = False) -> WorkerView:
        """Drain a worker: it gets no more jobs and finishes those it has, then it is told to exit.

        A worker whose `comes_back` is true would join again, so it stays connected without jobs. With `now`, its jobs
        are taken from it and it is removed at once.

        - `now`: Do not wait for its jobs: they are given to other workers, or end as lost. [default: false]
        """
        from dragoman.operations.schemas import DrainRequest
        from dragoman.operations.table import DRAIN

        return self.operation(DRAIN, DrainRequest(id=worker, now=now))

    def worker_ladder(
        self, worker: int, format: Literal["json", "svg", "mermaid", "text"] = "json"
    ) -> ConversationView:
        """Show the last messages of a worker, with its heartbeats.

        They are recorded for 30 seconds after each request, so the first one shows none.

        - `format`: Format of the HTTP response. Clients of other dialects get the view. [json, svg, mermaid or text;
          default: json]
        """
        from dragoman.operations.ladder_schemas import WorkerLadderRequest
        from dragoman.operations.table import WORKER_LADDER

        return self.operation(WORKER_LADDER, WorkerLadderRequest(id=worker, format=format))

    def schedules(self) -> list[ScheduleView]:
        """List schedules."""
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import SCHEDULES

        return self.operation(SCHEDULES, EmptyRequest()).schedules

    def schedule(self, name: str) -> ScheduleView:
        """Show one schedule."""
        from dragoman.operations.schemas import ScheduleRef
        from dragoman.operations.table import SCHEDULE

        return self.operation(SCHEDULE, ScheduleRef(name=name))

    def set_schedule(
        self,
        name: str,
        service: str,
        payload: Any = b"",
        *,
        codec: str | None = None,
        cron: str | None = None,
        every: float | None = None,
        timezone: str = "UTC",
        overlap: bool = False,
        paused: bool = False,
        priority: int = 5,
        attempts: int = 3,
        timeout: float | None = 60.0,
        retry_first: float | None = None,
        retry_cap: float | None = None,
        retry_jitter: float | None = None,
    ) -> ScheduleView:
        """Create a schedule, or replace the one of this name.

        Exactly one of `cron` and `every` is needed. A name that another principal uses is a conflict.

        - `cron`: Cron expression: minute, hour, day of the month, month, day of the week.
        - `every`: Interval in seconds, instead of a cron expression. [1 to 31622400 (366 days)]
        - `timezone`: Time zone of the cron expression. [default: UTC]
        - `overlap`: Enqueue a job even if the last one has not ended. [default: false]
        - `paused`: Enqueue no jobs until the schedule is resumed. [default: false]
        - `priority`: Priority; jobs with a higher one start first. One step equals a minute of waiting. [0 to 9;
          default: 5]
        - `attempts`: Maximum number of attempts before the job goes into quarantine. [1 to 100; default: 3]
        - `timeout`: Time limit of one attempt, in seconds; `None`: no limit. [more than 0, at most 86400 (1 day);
          default: 60]
        - `retry_first`: Delay before the second attempt, in seconds; it doubles with each further attempt. By default
          the broker's setting. [0 to 86400 (1 day)]
        - `retry_cap`: Longest delay between two attempts, in seconds. By default the broker's setting. [0 to 86400 (1
          day)]
        - `retry_jitter`: Random fraction that is added to or subtracted from each retry delay. By default the broker's
          setting. [0 to 1]
        - `codec`: Encoding of the payload. [default: the client's]
        """
        from dragoman.operations.schemas import ScheduleRequest
        from dragoman.operations.table import SET_SCHEDULE

        return self.operation(
            SET_SCHEDULE,
            ScheduleRequest(
                name=name,
                service=service,
                cron=cron,
                every=every,
                timezone=timezone,
                overlap=overlap,
                paused=paused,
                priority=priority,
                attempts=attempts,
                timeout=timeout,
                retry_first=retry_first,
                retry_cap=retry_cap,
                retry_jitter=retry_jitter,
            ),
            self._encoded(payload, codec),
        )

    def delete_schedule(self, name: str) -> ScheduleView:
        """Delete a schedule.

        Jobs that it has already enqueued are not affected.
        """
        from dragoman.operations.schemas import ScheduleRef
        from dragoman.operations.table import DELETE_SCHEDULE

        return self.operation(DELETE_SCHEDULE, ScheduleRef(name=name))

    def pause_schedule(self, name: str) -> ScheduleView:
        """Pause a schedule: it enqueues no jobs until it is resumed."""
        from dragoman.operations.schemas import ScheduleRef
        from dragoman.operations.table import PAUSE_SCHEDULE

        return self.operation(PAUSE_SCHEDULE, ScheduleRef(name=name))

    def resume_schedule(self, name: str) -> ScheduleView:
        """Resume a paused schedule."""
        from dragoman.operations.schemas import ScheduleRef
        from dragoman.operations.table import RESUME_SCHEDULE

        return self.operation(RESUME_SCHEDULE, ScheduleRef(name=name))

    def reload_access(self) -> AccessView:
        """Read the access folder again.

        If a file is invalid, nothing changes. The answer names the principals that were added, removed and changed;
        connections of principals that lost their access are closed.
        """
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import RELOAD_ACCESS

        return self.operation(RELOAD_ACCESS, EmptyRequest())

    def health(self) -> HealthView:
        """Show whether the broker accepts new jobs, the reasons if not, and the numbers of jobs and workers.

        `peers` is the number of connections. Without `see` over all services, reasons and numbers are left out.
        """
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import HEALTH

        return self.operation(HEALTH, EmptyRequest())
