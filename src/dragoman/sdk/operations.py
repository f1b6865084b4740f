"""What a `Client` does besides calling: background jobs, and looking after a broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from dragoman.sdk import operation_steps
from dragoman.sdk.client_settings import BACKGROUND, JOB_TIMEOUT, as_sent
from dragoman.sdk.codecs import Codec
from dragoman.sdk.codecs import codec as codec_of
from dragoman.sdk.errors import DragomanError
from dragoman.sdk.operation import OperationAnswer, OperationCall
from dragoman.sdk.operation_steps import Steps
from dragoman.sdk.option_types import EnqueueOptions, JobFilter, Result, ScheduleOptions
from dragoman.sdk.submit_options import SubmitOptionsCache

if TYPE_CHECKING:
    from dragoman.operations.schemas import JobView, ScheduleView, ServiceView, WorkerView

T = TypeVar("T")


class ClientOperations(Generic[Result]):
    """All of it needs a native address. Ids are 32 hex digits; who is asked about an unknown one raises NoSuchJob."""

    asking: SubmitOptionsCache
    _codec: Codec

    # ---------------------------------------------------------------- jobs

    def enqueue(
        self,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = JOB_TIMEOUT,
        codec: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Hand in a background job, and go on: its id. It is on disk when this returns, survives the broker, its
        workers and this program, and waits for a worker however long it takes.

        `delay`: seconds until it may start; `not_before`: a moment, with its zone. `priority`: 0 to 9, the higher the
        sooner; 5. `attempts`: how often it may be handed out; 3. Between two it rests, `retry_first` seconds at first
        and twice as long each time, up to `retry_cap`, give or take `retry_jitter` (0 to 1) of it. `timeout`: how long
        one attempt may run, at most 86400 (a day); None: no limit. `key`: whoever comes with the same key (and the same
        payload) gets the same job.
        """
        encoded = as_sent(self._codec if codec is None else codec_of(codec), payload)
        return self._follow(operation_steps.enqueue(service, encoded, timeout=timeout, **options))

    @overload
    def result(self, job: str, timeout: float | None = None, *, codec: None = None) -> Result: ...

    @overload
    def result(self, job: str, timeout: float | None = None, *, codec: Literal["bytes"]) -> bytes: ...

    @overload
    def result(self, job: str, timeout: float | None = None, *, codec: str) -> Any: ...

    def result(self, job: str, timeout: float | None = None, *, codec: str | None = None) -> Any:
        """Wait for the result of a background job, over lost connections and restarts of the broker. Raises JobError by
        its outcome, JobTimeout if it has not ended after `timeout` (it goes on), NoSuchJob, BrokerUnavailable."""
        return self._follow(operation_steps.result(job, timeout, self._codec if codec is None else codec_of(codec)))

    def job(self, id: str) -> JobView:
        """All that is known of a job."""
        return self._follow(operation_steps.job(id))

    def jobs(self, **filter: Unpack[JobFilter]) -> list[JobView]:
        """Jobs that are present or whose outcomes are kept, the newest first, `limit` at most (100); those of a
        `service`, in a `state`, with an `outcome`, `quarantined` or not, that came before the one called `after`."""
        return self._follow(operation_steps.jobs(**filter))

    def cancel(self, id: str) -> bool:
        """End a job wherever it is. Returns whether it is cancelled now: if not, it had ended before."""
        return self._follow(operation_steps.cancel(id))

    def retry(self, id: str) -> str:
        """Make a new job of one that is in quarantine; its id. Raises JobRefused if it is not."""
        return self._follow(operation_steps.retry(id))

    def why(self, id: str) -> str:
        """Why a job is not running, or how it ended, in a sentence."""
        return self._follow(operation_steps.why(id))

    # ---------------------------------------------------------------- services and workers

    def services(self) -> list[ServiceView]:
        """What is offered or asked for, and how much waits."""
        return self._follow(operation_steps.services())

    def workers(self) -> list[WorkerView]:
        """Who is there, and at what."""
        return self._follow(operation_steps.workers())

    def pause(self, service: str, by: str | None = None) -> ServiceView:
        """Hand out no more of its jobs until `resume`. `by`: who says so, for those who wonder."""
        return self._follow(operation_steps.pause(service, by))

    def resume(self, service: str) -> ServiceView:
        """Hand out its jobs again."""
        return self._follow(operation_steps.resume(service))

    def purge(
        self, service: str, states: Sequence[Literal["waiting", "delayed", "ended"]] = ("waiting", "delayed")
    ) -> int:
        """Cancel what waits for a service; of ended jobs forget the outcomes. How many these were."""
        return self._follow(operation_steps.purge(service, states))

    def drain(self, worker: int, *, now: bool = False) -> WorkerView:
        """Let a worker end what it has, and go. `now`: without waiting for that."""
        return self._follow(operation_steps.drain(worker, now))

    # ---------------------------------------------------------------- recurring jobs

    def recur(
        self,
        name: str,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = JOB_TIMEOUT,
        codec: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Make a background job again and again: by a `cron` expression in a `timezone` (UTC), or `every` so many
        seconds. A name that is there already is said anew. `overlap`: also while the last one has not ended. `paused`:
        not before `resume_recurring`. The rest is as for `enqueue`."""
        encoded = as_sent(self._codec if codec is None else codec_of(codec), payload)
        return self._follow(operation_steps.recur(name, service, encoded, timeout=timeout, **options))

    def recurring(self) -> list[ScheduleView]:
        """All recurring jobs."""
        return self._follow(operation_steps.recurring())

    def stop_recurring(self, name: str) -> ScheduleView:
        """Make no more of them. Raises NotFound."""
        return self._follow(operation_steps.recurrence("stop recurring", name))

    def pause_recurring(self, name: str) -> ScheduleView:
        """Make none until `resume_recurring`. Raises NotFound."""
        return self._follow(operation_steps.recurrence("pause recurring", name))

    def resume_recurring(self, name: str) -> ScheduleView:
        """Make them again. Raises NotFound."""
        return self._follow(operation_steps.recurrence("resume recurring", name))

    # ---------------------------------------------------------------- inside

    def _ask(self, question: OperationCall) -> OperationAnswer:
        raise NotImplementedError

    def _follow(self, plan: Steps[T]) -> T:
        self.asking.needs(BACKGROUND)
        try:
            step = next(plan)
            while True:
                try:
                    answer = self._take(step)
                except DragomanError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned

    def _take(self, step: OperationCall | float) -> OperationAnswer | None:
        if isinstance(step, OperationCall):
            return self._ask(step)
        time.sleep(step)
        return None
