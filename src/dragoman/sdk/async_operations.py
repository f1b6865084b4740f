"""What an `AsyncClient` does besides calling: background jobs, and looking after a broker."""

from __future__ import annotations

import asyncio
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


class AsyncClientOperations(Generic[Result]):
    """The same as `ClientOperations`, awaited; what it all means stands there."""

    asking: SubmitOptionsCache
    _codec: Codec

    # ---------------------------------------------------------------- jobs

    async def enqueue(
        self,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = JOB_TIMEOUT,
        codec: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Hand in a background job, and go on: its id. It is on disk when this returns."""
        encoded = as_sent(self._codec if codec is None else codec_of(codec), payload)
        return await self._follow(operation_steps.enqueue(service, encoded, timeout=timeout, **options))

    @overload
    async def result(self, job: str, timeout: float | None = None, *, codec: None = None) -> Result: ...

    @overload
    async def result(self, job: str, timeout: float | None = None, *, codec: Literal["bytes"]) -> bytes: ...

    @overload
    async def result(self, job: str, timeout: float | None = None, *, codec: str) -> Any: ...

    async def result(self, job: str, timeout: float | None = None, *, codec: str | None = None) -> Any:
        """Wait for the result of a background job, over lost connections and restarts of the broker."""
        return await self._follow(
            operation_steps.result(job, timeout, self._codec if codec is None else codec_of(codec))
        )

    async def job(self, id: str) -> JobView:
        """All that is known of a job."""
        return await self._follow(operation_steps.job(id))

    async def jobs(self, **filter: Unpack[JobFilter]) -> list[JobView]:
        """Jobs that are present or whose outcomes are kept, the newest first."""
        return await self._follow(operation_steps.jobs(**filter))

    async def cancel(self, id: str) -> bool:
        """End a job wherever it is. Returns whether it is cancelled now: if not, it had ended before."""
        return await self._follow(operation_steps.cancel(id))

    async def retry(self, id: str) -> str:
        """Make a new job of one that is in quarantine; its id. Raises JobRefused if it is not."""
        return await self._follow(operation_steps.retry(id))

    async def why(self, id: str) -> str:
        """Why a job is not running, or how it ended, in a sentence."""
        return await self._follow(operation_steps.why(id))

    # ---------------------------------------------------------------- services and workers

    async def services(self) -> list[ServiceView]:
        """What is offered or asked for, and how much waits."""
        return await self._follow(operation_steps.services())

    async def workers(self) -> list[WorkerView]:
        """Who is there, and at what."""
        return await self._follow(operation_steps.workers())

    async def pause(self, service: str, by: str | None = None) -> ServiceView:
        """Hand out no more of its jobs until `resume`."""
        return await self._follow(operation_steps.pause(service, by))

    async def resume(self, service: str) -> ServiceView:
        """Hand out its jobs again."""
        return await self._follow(operation_steps.resume(service))

    async def purge(
        self, service: str, states: Sequence[Literal["waiting", "delayed", "ended"]] = ("waiting", "delayed")
    ) -> int:
        """Cancel what waits for a service; of ended jobs forget the outcomes. How many these were."""
        return await self._follow(operation_steps.purge(service, states))

    async def drain(self, worker: int, *, now: bool = False) -> WorkerView:
        """Let a worker end what it has, and go. `now`: without waiting for that."""
        return await self._follow(operation_steps.drain(worker, now))

    # ---------------------------------------------------------------- recurring jobs

    async def recur(
        self,
        name: str,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = JOB_TIMEOUT,
        codec: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Make a background job again and again, by a `cron` expression or `every` so many seconds."""
        encoded = as_sent(self._codec if codec is None else codec_of(codec), payload)
        return await self._follow(operation_steps.recur(name, service, encoded, timeout=timeout, **options))

    async def recurring(self) -> list[ScheduleView]:
        """All recurring jobs."""
        return await self._follow(operation_steps.recurring())

    async def stop_recurring(self, name: str) -> ScheduleView:
        """Make no more of them. Raises NotFound."""
        return await self._follow(operation_steps.recurrence("stop recurring", name))

    async def pause_recurring(self, name: str) -> ScheduleView:
        """Make none until `resume_recurring`. Raises NotFound."""
        return await self._follow(operation_steps.recurrence("pause recurring", name))

    async def resume_recurring(self, name: str) -> ScheduleView:
        """Make them again. Raises NotFound."""
        return await self._follow(operation_steps.recurrence("resume recurring", name))

    # ---------------------------------------------------------------- inside

    async def _ask(self, question: OperationCall) -> OperationAnswer:
        raise NotImplementedError

    async def _follow(self, plan: Steps[T]) -> T:
        self.asking.needs(BACKGROUND)
        try:
            step = next(plan)
            while True:
                try:
                    answer = await self._take(step)
                except DragomanError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned

    async def _take(self, step: OperationCall | float) -> OperationAnswer | None:
        if isinstance(step, OperationCall):
            return await self._ask(step)
        await asyncio.sleep(step)
        return None
