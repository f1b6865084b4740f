"""Operations of an `AsyncClient`.

Written by tools/client_methods.py from the table of operations: change that table, or the tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from dragoman.sdk import operation_steps
from dragoman.sdk.ids import ids_of, new_batch_id
from dragoman.sdk.option_types import Result
from dragoman.sdk.performing import AsyncPerformer

if TYPE_CHECKING:
    from dragoman.operations.bulk_schemas import BulkView
    from dragoman.operations.cluster_schemas import ClusterView
    from dragoman.operations.dashboard_schemas import OverviewView, SeriesView
    from dragoman.operations.group_schemas import GroupView
    from dragoman.operations.ladder_schemas import ConversationView
    from dragoman.operations.list_schemas import BrokerView, FleetView, JobCountsView, ListenerView
    from dragoman.operations.quarantine_schemas import QuarantineGroupView, RetryGroupView
    from dragoman.operations.schemas import AccessView, HealthView, JobView, ScheduleView, ServiceView, WorkerView
    from dragoman.sdk.job_names import JobNames
    from dragoman.sdk.new_jobs import NewJob


class AsyncClientOperations(AsyncPerformer, Generic[Result]):
    """Operations of an `AsyncClient`. Ids of jobs are 32 hex digits.

    They raise Unsupported if the dialect of the client's address has no operations, NoSuchJob, NoSuchService or
    NotFound for an unknown job, service or other name, and ValueError for a value outside its limits.
    """

    async def enqueue(
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
        unique: Literal["waiting", "unfinished", "kept"] = "kept",
        keep: float | Literal["forever"] | None = None,
        retry_first: float | None = None,
        retry_cap: float | None = None,
        retry_jitter: float | None = None,
        tenant: str | None = None,
        parent: str | None = None,
        traceparent: str | None = None,
        parameters: Sequence[str] = (),
        after: JobNames = (),
        after_failure: Literal["cancel", "run"] = "cancel",
        input: Literal["payload", "result", "results"] = "payload",
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
        - `unique`: How long the job holds its key: `waiting` until it starts, `unfinished` until it ends, `kept` while
          its outcome is kept. A submit with a key that no job holds makes a new job. [waiting, unfinished or kept;
          default: kept]
        - `keep`: Seconds for which the outcome is kept; 0: not at all; `forever`: until it is deleted. By default the
          broker's setting (outcome_retention). [0 to 315360000, or forever]
        - `retry_first`: Delay before the second attempt, in seconds; it doubles with each further attempt. By default
          the broker's setting. [0 to 86400 (1 day)]
        - `retry_cap`: Longest delay between two attempts, in seconds. By default the broker's setting. [0 to 86400 (1
          day)]
        - `retry_jitter`: Random fraction that is added to or subtracted from each retry delay. By default the broker's
          setting. [0 to 1]
        - `tenant`: Tenant: the customer or account that the job is for, at most 128 bytes. Tenants take turns. [1 to
          128 characters]
        - `parent`: Id of the job whose handler submits this one. Python clients set it by themselves.
        - `traceparent`: Trace context of the submit (W3C `traceparent`), which the worker receives. An invalid one is
          ignored. [0 to 255 characters]
        - `parameters`: Names of all parameters of the task, as the caller knows it. A worker that does not know a
          parameter of the job refuses it; the job then waits for a worker of a newer version, if these are newer than
          those of the worker. Python tasks set it by themselves. [0 to 256 entries; default: none]
        - `after`: Ids of jobs or groups. The job starts when all of them are done; if one ends otherwise, it is
          cancelled. [0 to 1000 entries; default: none]
        - `after_failure`: If a job in `after` ends otherwise than done: cancel this job, or run it when all have ended.
          [cancel or run; default: cancel]
        - `input`: The payload that the worker gets: the submitted one; the result of the only job in `after`; or the
          submitted one and the results of all jobs in `after`, in CBOR. [payload, result or results; default: payload]
        - `codec`: Encoding of the payload. [default: the client's]
        """
        from dragoman.operations.schemas import EnqueueRequest

        return await self._follow(
            operation_steps.enqueue(
                EnqueueRequest(
                    service=service,
                    delay=delay,
                    not_before=not_before,
                    priority=priority,
                    attempts=attempts,
                    timeout=timeout,
                    key=key,
                    unique=unique,
                    keep=keep,
                    retry_first=retry_first,
                    retry_cap=retry_cap,
                    retry_jitter=retry_jitter,
                    tenant=tenant,
                    parent=parent,
                    traceparent=traceparent,
                    parameters=tuple(parameters),
                    after=ids_of(after),
                    after_failure=after_failure,
                    input=input,
                ),
                self._encoded(payload, codec),
            )
        )

    async def enqueue_many(
        self,
        service: str,
        payloads: Iterable[Any],
        *,
        codec: str | None = None,
        delay: float = 0.0,
        not_before: datetime | None = None,
        priority: int = 5,
        attempts: int = 3,
        timeout: float | None = 60.0,
        keep: float | Literal["forever"] | None = None,
        retry_first: float | None = None,
        retry_cap: float | None = None,
        retry_jitter: float | None = None,
        tenant: str | None = None,
        parent: str | None = None,
        traceparent: str | None = None,
        parameters: Sequence[str] = (),
    ) -> list[str]:
        """Enqueue a background job for each payload, in one commit.

        Returns their ids, in order, when all of them are on disk. Either all are enqueued, or none and the error says
        why. More than 10,000 jobs, or more bytes than the broker accepts in a message, are several messages and
        commits; if a later one is refused, PartlyEnqueued has the ids of the jobs that are enqueued. The options are
        those of all jobs; see `enqueue`.
        """
        from dragoman.operations.group_schemas import EnqueueManyRequest
        from dragoman.sdk import batch_steps

        request = EnqueueManyRequest(
            service=service,
            delay=delay,
            not_before=not_before,
            priority=priority,
            attempts=attempts,
            timeout=timeout,
            keep=keep,
            retry_first=retry_first,
            retry_cap=retry_cap,
            retry_jitter=retry_jitter,
            tenant=tenant,
            parent=parent,
            traceparent=traceparent,
            parameters=tuple(parameters),
        )
        return await self._follow(batch_steps.enqueue_many(request, self._packed(payloads, codec)))

    async def enqueue_group(
        self,
        service: str,
        payloads: Iterable[Any],
        *,
        codec: str | None = None,
        delay: float = 0.0,
        not_before: datetime | None = None,
        priority: int = 5,
        attempts: int = 3,
        timeout: float | None = 60.0,
        keep: float | Literal["forever"] | None = None,
        retry_first: float | None = None,
        retry_cap: float | None = None,
        retry_jitter: float | None = None,
        tenant: str | None = None,
        parent: str | None = None,
        traceparent: str | None = None,
        parameters: Sequence[str] = (),
    ) -> str:
        """Enqueue a background job for each payload, in one commit, as a group.

        Returns the id of the group. `group` shows its progress, `group_results` returns all results, `cancel_group`
        cancels it, and another job may come after it: `enqueue(..., after=[group])`. At most 10,000 jobs. The options
        are those of all jobs; see `enqueue`.
        """
        from dragoman.operations.group_schemas import EnqueueManyRequest
        from dragoman.sdk import batch_steps

        request = EnqueueManyRequest(
            service=service,
            group_id=new_batch_id().hex(),
            delay=delay,
            not_before=not_before,
            priority=priority,
            attempts=attempts,
            timeout=timeout,
            keep=keep,
            retry_first=retry_first,
            retry_cap=retry_cap,
            retry_jitter=retry_jitter,
            tenant=tenant,
            parent=parent,
            traceparent=traceparent,
            parameters=tuple(parameters),
        )
        return await self._follow(batch_steps.enqueue_group(request, self._packed(payloads, codec)))

    async def enqueue_jobs(self, jobs: Iterable[NewJob]) -> list[str]:
        """Enqueue different background jobs, in one commit.

        Returns their ids. They may come after each other, in any order, and form groups; see `NewJob`. Jobs of groups
        are at most 10,000 and one message; others are several messages if necessary, as in `enqueue_many`, and must
        then come behind the jobs that they name.
        """
        from dragoman.operations.group_schemas import EnqueueManyRequest
        from dragoman.sdk import batch_steps

        found = list(jobs)
        packed = [each.packed(self._encoded) for each in found]
        if any(each.options.get("group") is not None for each in found):
            await self._follow(batch_steps.enqueue_whole(EnqueueManyRequest(), packed))
            return [each.id for each in found]
        return await self._follow(batch_steps.enqueue_many(EnqueueManyRequest(), packed))

    async def jobs(
        self,
        *,
        service: str | None = None,
        state: Literal["waiting", "delayed", "dependent", "running", "ended"] | None = None,
        outcome: Literal["done", "failed", "timed out", "lost", "cancelled", "refused"] | None = None,
        quarantined: bool | None = None,
        kind: Literal["call", "background"] | None = None,
        caller: str | None = None,
        worker: str | None = None,
        text: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        undone: bool = False,
        group: str | None = None,
        parent: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[JobView]:
        """List jobs, newest first.

        With another filter than `service`, `state`, `outcome` and `quarantined`, at most 20,000 jobs are looked at:
        `searched` is their number, and `complete` is false if there are older ones. A `limit` over 1000 is fetched in
        several pages.

        - `service`: Only jobs of this service. [1 to 128 characters]
        - `state`: Only jobs in this state. [waiting, delayed, dependent, running or ended]
        - `outcome`: Only jobs with this outcome. [done, failed, timed out, lost, cancelled or refused]
        - `quarantined`: Only jobs in quarantine (true), or only jobs that are not (false).
        - `kind`: Only calls, or only background jobs. [call or background]
        - `caller`: Only jobs of callers of this dialect. [1 to 256 characters]
        - `worker`: Only jobs with an attempt on the worker of this name or number. [1 to 256 characters]
        - `text`: Only jobs whose id begins with this text, or whose key, worker or reason contains it. [1 to 256
          characters]
        - `reason`: Only jobs with this text in their reason, or in that of an attempt. [1 to 256 characters]
        - `since`: Only jobs that ended, or were submitted if they have not, at this time or later.
        - `until`: Only jobs that ended, or were submitted, before this time.
        - `undone`: Only jobs that ended otherwise than done. [default: false]
        - `group`: Only jobs of the group with this id.
        - `parent`: Only jobs that the handler of this job submitted.
        - `limit`: Maximum number of jobs. [1 to 1000; default: 100]
        - `after`: Only jobs older than this one.
        """
        from dragoman.operations.list_schemas import ListJobsRequest
        from dragoman.operations.table import JOBS

        return await self._follow(
            operation_steps.all_pages(
                JOBS,
                ListJobsRequest(
                    service=service,
                    state=state,
                    outcome=outcome,
                    quarantined=quarantined,
                    kind=kind,
                    caller=caller,
                    worker=worker,
                    text=text,
                    reason=reason,
                    since=since,
                    until=until,
                    undone=undone,
                    group=group,
                    parent=parent,
                    limit=limit,
                    after=after,
                ),
            )
        )

    async def job_counts(self, service: str | None = None) -> JobCountsView:
        """Count jobs by state, exactly.

        `done`, `undone` and `quarantined` count the ended jobs whose outcome is kept. Without a service, `see` over all
        services is needed.

        - `service`: Only jobs of this service. [1 to 128 characters]
        """
        from dragoman.operations.list_schemas import JobCountsRequest
        from dragoman.operations.table import JOB_COUNTS

        return await self.operation(JOB_COUNTS, JobCountsRequest(service=service))

    async def find_job(self, service: str, key: str, owner: str | None = None) -> JobView:
        """Find a job by its idempotency key.

        Of several jobs with the key, it is the one that was submitted last. The view is that of `job`.

        - `owner`: Principal that owns the job, by default the one that asks. Jobs of others need `administer` over the
          service. [1 to 256 characters]
        """
        from dragoman.operations.list_schemas import FindJobRequest
        from dragoman.operations.table import FIND_JOB

        return await self.operation(FIND_JOB, FindJobRequest(service=service, key=key, owner=owner))

    async def job(self, id: str) -> JobView:
        """Show one job.

        The view has its times and attempts, the first bytes of its payload while that is kept, its last progress report
        and, once it has ended, its result or its error.
        """
        from dragoman.operations.schemas import JobRef
        from dragoman.operations.table import JOB

        return await self.operation(JOB, JobRef(id=id))

    async def payload(self, id: str) -> bytes:
        """Get the payload of a job as it was submitted.

        It is kept until the job ends, and in quarantine. Returns bytes. Raises JobRefused if the payload is no longer
        kept.
        """
        return await self._follow(operation_steps.payload(id))

    async def cancel(self, id: str) -> bool:
        """Cancel a job that has not ended.

        Returns True if the job is cancelled now, False if it had already ended in another way.
        """
        return await self._follow(operation_steps.cancel(id))

    @overload
    async def result(self, job: str, timeout: float | None = None, *, codec: None = None) -> Result: ...

    @overload
    async def result(self, job: str, timeout: float | None = None, *, codec: Literal["bytes"]) -> bytes: ...

    @overload
    async def result(self, job: str, timeout: float | None = None, *, codec: str) -> Any: ...

    async def result(self, job: str, timeout: float | None = None, *, codec: str | None = None) -> Any:
        """Wait for the result of a background job, over lost connections and restarts of the broker.

        Raises JobError by its outcome, JobTimeout after `timeout` seconds (the job continues), NoSuchJob and
        BrokerUnavailable.
        """
        return await self._follow(operation_steps.result(job, timeout, self._codec_of(codec)))

    async def retry(self, id: str) -> str:
        """Retry a job in quarantine: a new job is created with its payload, and the old one leaves the quarantine.

        `retry_of` of the new job and `retried_as` of the old one link the two. Returns the id of the new job. Raises
        JobRefused if the job is not in quarantine.
        """
        from dragoman.operations.schemas import JobAct
        from dragoman.operations.table import RETRY

        return (await self.operation(RETRY, JobAct(id=id))).id

    async def delete(self, id: str) -> str:
        """Delete an ended job with its outcome, in quarantine or not.

        Its key is free then.
        """
        from dragoman.operations.schemas import JobAct
        from dragoman.operations.table import DELETE

        return (await self.operation(DELETE, JobAct(id=id))).id

    async def why(self, id: str) -> str:
        """Explain in one sentence why a job is not running, or how it ended.

        `kind` is the reason for programs, `ahead` the number of jobs that start first, `turn_in` the seconds until its
        turn at the present rate.
        """
        from dragoman.operations.schemas import JobRef
        from dragoman.operations.table import WHY

        return (await self.operation(WHY, JobRef(id=id))).why

    async def group(self, group: str) -> GroupView:
        """Show a group: the numbers of its jobs by outcome."""
        from dragoman.operations.group_schemas import GroupRef
        from dragoman.operations.table import GROUP

        return await self.operation(GROUP, GroupRef(id=group))

    @overload
    async def group_results(
        self, group: str, timeout: float | None = None, *, errors: Literal["raise"] = "raise", codec: None = None
    ) -> list[Result]: ...

    @overload
    async def group_results(
        self,
        group: str,
        timeout: float | None = None,
        *,
        errors: Literal["raise", "return"] = "raise",
        codec: str | None = None,
    ) -> list[Any]: ...

    async def group_results(
        self,
        group: str,
        timeout: float | None = None,
        *,
        errors: Literal["raise", "return"] = "raise",
        codec: str | None = None,
    ) -> list[Any]:
        """Wait until all jobs of a group have ended, and return their results in order.

        If some are not done, raises the JobError of the first of them; with `errors="return"`, the exceptions are in
        the list in place of the results. Raises JobTimeout after `timeout` seconds (the jobs continue), NoSuchGroup
        and BrokerUnavailable.
        """
        from dragoman.sdk import batch_steps

        return await self._follow(batch_steps.group_results(group, timeout, errors, self._codec_of(codec)))

    async def cancel_group(self, group: str) -> GroupView:
        """Cancel all jobs of a group that have not ended."""
        from dragoman.operations.group_schemas import GroupRef
        from dragoman.operations.table import CANCEL_GROUP

        return await self.operation(CANCEL_GROUP, GroupRef(id=group))

    async def retry_jobs(
        self,
        *,
        service: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        all: bool = False,
        dry_run: bool = False,
        rate: float | None = None,
        outcome: Literal["done", "failed", "timed out", "lost", "cancelled", "refused"] | None = None,
    ) -> BulkView:
        """Retry all jobs in quarantine that match a filter, oldest first.

        Jobs that the principal may not act on are left out. The response is sent when the first jobs are done; `bulk
        act` returns the progress. A restart of the broker ends it: what is done stays done, and the request can be
        repeated. Waits for the end. If this program ends before, the act stops within ten seconds.

        - `service`: Only jobs of this service. [1 to 128 characters]
        - `reason`: Only jobs with this text in their reason, or in that of an attempt. [1 to 256 characters]
        - `since`: Only jobs that ended, or were submitted if they have not, at this time or later.
        - `until`: Only jobs that ended, or were submitted, before this time.
        - `all`: All jobs that match; needed if there is no filter. [default: false]
        - `dry_run`: Change nothing: only count the jobs, and show the first. [default: false]
        - `rate`: Jobs a second; without it as many as the broker can. [0.1 to 100000]
        - `outcome`: Only jobs with this outcome. [done, failed, timed out, lost, cancelled or refused]
        """
        from dragoman.operations.bulk_schemas import RetryJobsRequest
        from dragoman.operations.table import RETRY_JOBS

        return await self._follow(
            operation_steps.bulk(
                RETRY_JOBS,
                RetryJobsRequest(
                    service=service,
                    reason=reason,
                    since=since,
                    until=until,
                    all=all,
                    dry_run=dry_run,
                    rate=rate,
                    outcome=outcome,
                ),
            )
        )

    async def cancel_jobs(
        self,
        *,
        service: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        all: bool = False,
        dry_run: bool = False,
        rate: float | None = None,
        state: Literal["dependent", "waiting", "delayed", "running", "pending"] | None = None,
    ) -> BulkView:
        """Cancel all jobs that match a filter and have not ended, oldest first.

        Jobs that the principal may not act on are left out. The response is sent when the first jobs are done; `bulk
        act` returns the progress. A restart of the broker ends it: what is done stays done, and the request can be
        repeated. Waits for the end. If this program ends before, the act stops within ten seconds.

        - `service`: Only jobs of this service. [1 to 128 characters]
        - `reason`: Only jobs with this text in their reason, or in that of an attempt. [1 to 256 characters]
        - `since`: Only jobs that ended, or were submitted if they have not, at this time or later.
        - `until`: Only jobs that ended, or were submitted, before this time.
        - `all`: All jobs that match; needed if there is no filter. [default: false]
        - `dry_run`: Change nothing: only count the jobs, and show the first. [default: false]
        - `rate`: Jobs a second; without it as many as the broker can. [0.1 to 100000]
        - `state`: Only jobs in this state; pending: dependent, waiting or delayed ones. [dependent, waiting, delayed,
          running or pending]
        """
        from dragoman.operations.bulk_schemas import CancelJobsRequest
        from dragoman.operations.table import CANCEL_JOBS

        return await self._follow(
            operation_steps.bulk(
                CANCEL_JOBS,
                CancelJobsRequest(
                    service=service,
                    reason=reason,
                    since=since,
                    until=until,
                    all=all,
                    dry_run=dry_run,
                    rate=rate,
                    state=state,
                ),
            )
        )

    async def delete_jobs(
        self,
        *,
        service: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        all: bool = False,
        dry_run: bool = False,
        rate: float | None = None,
        outcome: Literal["done", "failed", "timed out", "lost", "cancelled", "refused"] | None = None,
        quarantined: bool | None = None,
    ) -> BulkView:
        """Delete all ended jobs that match a filter, with their outcomes, oldest first.

        Jobs that the principal may not act on are left out. The response is sent when the first jobs are done; `bulk
        act` returns the progress. A restart of the broker ends it: what is done stays done, and the request can be
        repeated. Waits for the end. If this program ends before, the act stops within ten seconds.

        - `service`: Only jobs of this service. [1 to 128 characters]
        - `reason`: Only jobs with this text in their reason, or in that of an attempt. [1 to 256 characters]
        - `since`: Only jobs that ended, or were submitted if they have not, at this time or later.
        - `until`: Only jobs that ended, or were submitted, before this time.
        - `all`: All jobs that match; needed if there is no filter. [default: false]
        - `dry_run`: Change nothing: only count the jobs, and show the first. [default: false]
        - `rate`: Jobs a second; without it as many as the broker can. [0.1 to 100000]
        - `outcome`: Only jobs with this outcome. [done, failed, timed out, lost, cancelled or refused]
        - `quarantined`: Only jobs in quarantine (true), or only jobs that are not (false).
        """
        from dragoman.operations.bulk_schemas import DeleteJobsRequest
        from dragoman.operations.table import DELETE_JOBS

        return await self._follow(
            operation_steps.bulk(
                DELETE_JOBS,
                DeleteJobsRequest(
                    service=service,
                    reason=reason,
                    since=since,
                    until=until,
                    all=all,
                    dry_run=dry_run,
                    rate=rate,
                    outcome=outcome,
                    quarantined=quarantined,
                ),
            )
        )

    async def bulk_act(self, id: str) -> BulkView:
        """Show the progress of an act on many jobs.

        It is known for ten minutes after its end, to the principal that has requested it.
        """
        from dragoman.operations.bulk_schemas import BulkRef
        from dragoman.operations.table import BULK_ACT

        return await self.operation(BULK_ACT, BulkRef(id=id))

    async def stop_bulk_act(self, id: str) -> BulkView:
        """Stop an act on many jobs.

        What is done stays done; the other jobs are unchanged.
        """
        from dragoman.operations.bulk_schemas import BulkRef
        from dragoman.operations.table import STOP_BULK_ACT

        return await self.operation(STOP_BULK_ACT, BulkRef(id=id))

    async def quarantine(self) -> list[QuarantineGroupView]:
        """List the jobs in quarantine by cause.

        A group has one service, outcome and reason, apart from numbers and quoted texts in the reason.
        """
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import QUARANTINE

        return (await self.operation(QUARANTINE, EmptyRequest())).groups

    async def retry_group(self, group: str, rate: float = 20.0) -> RetryGroupView:
        """Retry the jobs of a group in quarantine.

        Each becomes a new job, one after the other; jobs that have left the quarantine meanwhile are left out. The
        response is sent at the start; a second request returns the progress. A restart of the broker ends the retry,
        and the rest stays in quarantine.

        - `rate`: Jobs to retry a second. [0.1 to 1000; default: 20]
        """
        from dragoman.operations.quarantine_schemas import RetryGroupRequest
        from dragoman.operations.table import RETRY_GROUP

        return await self.operation(RETRY_GROUP, RetryGroupRequest(group=group, rate=rate))

    async def ladder(self, job: str, format: Literal["json", "svg", "mermaid", "text"] = "json") -> ConversationView:
        """Show the messages of a job: between its callers, the broker and its workers, each in its own dialect.

        Payloads are not part of it. The messages of a job that has not ended are recorded from now on.

        - `format`: Format of the HTTP response. Clients of other dialects get the view. [json, svg, mermaid or text;
          default: json]
        """
        from dragoman.operations.ladder_schemas import LadderRequest
        from dragoman.operations.table import LADDER

        return await self.operation(LADDER, LadderRequest(id=job, format=format))

    async def services(
        self,
        *,
        sort: Literal["need", "name", "waiting", "rate"] | None = None,
        text: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> list[ServiceView]:
        """List services with their queues and workers.

        - `sort`: Order: need of attention, name, most waiting jobs, or highest rate. Without it by name if there is a
          `limit` or an `after`, else as the services became known. [need, name, waiting or rate]
        - `text`: Only services whose name contains this text. [1 to 256 characters]
        - `limit`: Maximum number of services; without it all. [1 to 1000]
        - `after`: Only rows after this one: `after` of the previous page. [1 to 512 characters]
        """
        from dragoman.operations.list_schemas import ListServicesRequest
        from dragoman.operations.table import SERVICES

        return await self._follow(
            operation_steps.all_pages(SERVICES, ListServicesRequest(sort=sort, text=text, limit=limit, after=after))
        )

    async def service(self, service: str) -> ServiceView:
        """Show one service."""
        from dragoman.operations.schemas import ServiceRef
        from dragoman.operations.table import SERVICE

        return await self.operation(SERVICE, ServiceRef(name=service))

    async def pause(self, service: str, by: str = "an operator") -> ServiceView:
        """Pause a service: none of its jobs is dispatched until the service is resumed.

        New jobs are accepted, and running jobs continue.

        - `by`: Name and reason, shown as `paused_by`. [1 to 128 characters; default: an operator]
        """
        from dragoman.operations.schemas import PauseRequest
        from dragoman.operations.table import PAUSE

        return await self.operation(PAUSE, PauseRequest(name=service, by=by))

    async def resume(self, service: str) -> ServiceView:
        """Resume a paused service."""
        from dragoman.operations.schemas import ServiceRef
        from dragoman.operations.table import RESUME

        return await self.operation(RESUME, ServiceRef(name=service))

    async def limit(
        self,
        service: str,
        *,
        max_running: int | None = None,
        max_running_per_tenant: int | None = None,
        rate: str | None = None,
        reset: bool = False,
    ) -> ServiceView:
        """Limit a service: its running jobs, those of one tenant, and the rate of their starts.

        A limit survives restarts of the broker and beats what workers declare. Jobs beyond it wait; running jobs
        continue.

        - `max_running`: Most jobs that run at once; 0: no limit, whatever its workers declare. Without it, unchanged.
          [0 to 1000000]
        - `max_running_per_tenant`: Most jobs of one tenant that run at once; 0: no limit, whatever its workers declare.
          Without it, unchanged. [0 to 1000000]
        - `rate`: Rate of starts: a number and a unit, `s`, `min` or `h`, such as `100/min`. Starts are spread evenly.
          `none`: no limit, whatever its workers declare. Without it, unchanged. [1 to 16 characters]
        - `reset`: Remove the limits that an operator has set before, then set the given ones. Limits that its workers
          declare hold again. [default: false]
        """
        from dragoman.operations.limit_schemas import LimitRequest
        from dragoman.operations.table import LIMIT

        return await self.operation(
            LIMIT,
            LimitRequest(
                name=service,
                max_running=max_running,
                max_running_per_tenant=max_running_per_tenant,
                rate=rate,
                reset=reset,
            ),
        )

    async def purge(
        self,
        service: str,
        states: Sequence[Literal["waiting", "delayed", "dependent", "ended"]] = ("waiting", "delayed", "dependent"),
    ) -> int:
        """Cancel the waiting, delayed and dependent jobs of a service.

        With the state `ended`, delete the outcomes of its ended jobs, except those that other jobs wait for. Running
        jobs continue. Returns the number of deleted jobs.

        - `states`: States of the jobs to purge. [waiting, delayed, dependent or ended; default: waiting, delayed,
          dependent]
        """
        from dragoman.operations.schemas import PurgeRequest
        from dragoman.operations.table import PURGE

        return (await self.operation(PURGE, PurgeRequest(name=service, states=tuple(states)))).purged

    async def workers(
        self,
        *,
        state: Literal["starting", "idle", "busy", "stuck", "backing off", "detached", "draining"] | None = None,
        dialect: str | None = None,
        service: str | None = None,
        text: str | None = None,
        sort: Literal["need", "slow", "silent", "name"] | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> list[WorkerView]:
        """List workers of every dialect with their jobs.

        `counts` has the numbers of all workers by state and dialect, for a client with `see` over all services.

        - `state`: Only workers in this state. [starting, idle, busy, stuck, backing off, detached or draining]
        - `dialect`: Only workers of this dialect. [1 to 256 characters]
        - `service`: Only workers that offer this service. [1 to 128 characters]
        - `text`: Only workers whose name or service contains this text, or with this number. [1 to 256 characters]
        - `sort`: Order: need of attention, slowest, longest silent as a share of the lease, or name. Without it by
          number if there is a `limit` or an `after`, else as the workers joined. [need, slow, silent or name]
        - `limit`: Maximum number of workers; without it all. [1 to 1000]
        - `after`: Only rows after this one: `after` of the previous page. [1 to 512 characters]
        """
        from dragoman.operations.list_schemas import ListWorkersRequest
        from dragoman.operations.table import WORKERS

        return await self._follow(
            operation_steps.all_pages(
                WORKERS,
                ListWorkersRequest(
                    state=state, dialect=dialect, service=service, text=text, sort=sort, limit=limit, after=after
                ),
            )
        )

    async def fleet(self) -> FleetView:
        """Show the state of every worker as one letter.

        i is idle, b busy, s stuck, d detached, r draining, t starting, o backing off. With more than 2,000 workers, a
        letter stands for `each` workers and is the state that needs attention most.
        """
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import FLEET

        return await self.operation(FLEET, EmptyRequest())

    async def worker(self, worker: int) -> WorkerView:
        """Show one worker."""
        from dragoman.operations.schemas import WorkerRef
        from dragoman.operations.table import WORKER

        return await self.operation(WORKER, WorkerRef(id=worker))

    async def drain(self, worker: int, *, now: bool = False) -> WorkerView:
        """Drain a worker: it gets no more jobs and finishes those it has, then it is told to exit.

        A worker whose `comes_back` is true would join again, so it stays connected without jobs. With `now`, its jobs
        are taken from it and it is removed at once.

        - `now`: Do not wait for its jobs: they are given to other workers, or end as lost. [default: false]
        """
        from dragoman.operations.schemas import DrainRequest
        from dragoman.operations.table import DRAIN

        return await self.operation(DRAIN, DrainRequest(id=worker, now=now))

    async def worker_ladder(
        self, worker: int, format: Literal["json", "svg", "mermaid", "text"] = "json"
    ) -> ConversationView:
        """Show the last messages of a worker, with its heartbeats.

        They are recorded for 30 seconds after each request, so the first one shows none.

        - `format`: Format of the HTTP response. Clients of other dialects get the view. [json, svg, mermaid or text;
          default: json]
        """
        from dragoman.operations.ladder_schemas import WorkerLadderRequest
        from dragoman.operations.table import WORKER_LADDER

        return await self.operation(WORKER_LADDER, WorkerLadderRequest(id=worker, format=format))

    async def schedules(self) -> list[ScheduleView]:
        """List schedules."""
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import SCHEDULES

        return (await self.operation(SCHEDULES, EmptyRequest())).schedules

    async def schedule(self, name: str) -> ScheduleView:
        """Show one schedule."""
        from dragoman.operations.schemas import ScheduleRef
        from dragoman.operations.table import SCHEDULE

        return await self.operation(SCHEDULE, ScheduleRef(name=name))

    async def set_schedule(
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
        tenant: str | None = None,
        keep: float | Literal["forever"] | None = None,
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
        - `tenant`: Tenant: the customer or account that the job is for, at most 128 bytes. Tenants take turns. [1 to
          128 characters]
        - `keep`: Seconds for which the outcome is kept; 0: not at all; `forever`: until it is deleted. By default the
          broker's setting (outcome_retention). [0 to 315360000, or forever]
        - `codec`: Encoding of the payload. [default: the client's]
        """
        from dragoman.operations.schemas import ScheduleRequest
        from dragoman.operations.table import SET_SCHEDULE

        return await self.operation(
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
                tenant=tenant,
                keep=keep,
            ),
            self._encoded(payload, codec),
        )

    async def delete_schedule(self, name: str) -> ScheduleView:
        """Delete a schedule.

        Jobs that it has already enqueued are not affected.
        """
        from dragoman.operations.schemas import ScheduleAct
        from dragoman.operations.table import DELETE_SCHEDULE

        return await self.operation(DELETE_SCHEDULE, ScheduleAct(name=name))

    async def pause_schedule(self, name: str) -> ScheduleView:
        """Pause a schedule: it enqueues no jobs until it is resumed."""
        from dragoman.operations.schemas import ScheduleRef
        from dragoman.operations.table import PAUSE_SCHEDULE

        return await self.operation(PAUSE_SCHEDULE, ScheduleRef(name=name))

    async def resume_schedule(self, name: str) -> ScheduleView:
        """Resume a paused schedule."""
        from dragoman.operations.schemas import ScheduleRef
        from dragoman.operations.table import RESUME_SCHEDULE

        return await self.operation(RESUME_SCHEDULE, ScheduleRef(name=name))

    async def run_schedule(self, name: str) -> ScheduleView:
        """Enqueue the job of a schedule now, paused or not.

        The scheduled runs stay as they are. `last_job` of the view is the new job. If the last job has not ended, it is
        a conflict, unless the schedule has `overlap`.
        """
        from dragoman.operations.schemas import ScheduleAct
        from dragoman.operations.table import RUN_SCHEDULE

        return await self.operation(RUN_SCHEDULE, ScheduleAct(name=name))

    async def reload_access(self) -> AccessView:
        """Read the access folder again.

        If a file is invalid, nothing changes. The answer names the principals that were added, removed and changed;
        connections of principals that lost their access are closed.
        """
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import RELOAD_ACCESS

        return await self.operation(RELOAD_ACCESS, EmptyRequest())

    async def listeners(self, broker: str | None = None) -> list[ListenerView]:
        """List the listeners with their connections, traffic and bad messages.

        - `broker`: Broker of the cluster; the default is the one that is asked. [1 to 32 characters]
        """
        from dragoman.operations.cluster_schemas import NamedBroker
        from dragoman.operations.table import LISTENERS

        return (await self.operation(LISTENERS, NamedBroker(broker=broker))).listeners

    async def broker(self, broker: str | None = None) -> BrokerView:
        """Show the broker itself.

        The view has its version, the limits and how much of each is used, the settings that are not default, and the
        size of its store.

        - `broker`: Broker of the cluster; the default is the one that is asked. [1 to 32 characters]
        """
        from dragoman.operations.cluster_schemas import NamedBroker
        from dragoman.operations.table import BROKER

        return await self.operation(BROKER, NamedBroker(broker=broker))

    async def cluster(self) -> ClusterView:
        """Show the brokers of the cluster, as this broker knows them."""
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import CLUSTER

        return await self.operation(CLUSTER, EmptyRequest())

    async def release_shards(self, broker: str) -> ClusterView:
        """Let a broker of the cluster give its shards to others, for example before its machine is serviced.

        It takes none for a minute. Running jobs continue. While no other broker takes shards, it keeps its own.
        """
        from dragoman.operations.cluster_schemas import BrokerRef
        from dragoman.operations.table import RELEASE_SHARDS

        return await self.operation(RELEASE_SHARDS, BrokerRef(broker=broker))

    async def health(self) -> HealthView:
        """Show whether the broker accepts new jobs, the reasons if not, and the numbers of jobs and workers.

        `peers` is the number of connections. Without `see` over all services, reasons and numbers are left out.
        """
        from dragoman.operations.schemas import EmptyRequest
        from dragoman.operations.table import HEALTH

        return await self.operation(HEALTH, EmptyRequest())

    async def overview(self, range: Literal["5m", "1h", "24h"] = "5m") -> OverviewView:
        """Show the state and the history of the broker, in a cluster those of all brokers.

        The view has totals, services, findings that need attention, changes, and the series of a range. Without `see`
        over all services, only visible services are shown.

        - `range`: Length of the series: 150 values of 2 s, 180 of 20 s, or 180 of 8 minutes. [5m, 1h or 24h; default:
          5m]
        """
        from dragoman.operations.dashboard_schemas import OverviewRequest
        from dragoman.operations.table import OVERVIEW

        return await self.operation(OVERVIEW, OverviewRequest(range=range))

    async def service_series(self, service: str, range: Literal["5m", "1h", "24h"] = "5m") -> SeriesView:
        """Show the history of one service: rates, waiting and running jobs, quantiles of wait and run times.

        The history is in memory and begins with the start of the broker. In a cluster, those of all brokers are added
        up; a quantile is the highest of them.

        - `range`: Length of the series: 150 values of 2 s, 180 of 20 s, or 180 of 8 minutes. [5m, 1h or 24h; default:
          5m]
        """
        from dragoman.operations.dashboard_schemas import ServiceSeriesRequest
        from dragoman.operations.table import SERVICE_SERIES

        return await self.operation(SERVICE_SERIES, ServiceSeriesRequest(name=service, range=range))
