"""Requests that a client repeats because their answer was lost (R234).

`enqueue` and `enqueue many` look for themselves whether a request was accepted before: their answer is the job. The
acts below are carried out once, and their answer is remembered with the request. What is remembered, for how long, and
why nothing runs twice when it is forgotten, is in `core/remembered.py`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from dragoman.core.broker import Broker
from dragoman.core.model import JobId
from dragoman.core.remembered import NOT_REMEMBERED, Repeated, RequestId, read_request_id
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import EnqueueRequest, JobView, OperationError, View
from dragoman.operations.table import DELETE, DELETE_SCHEDULE, PURGE, RETRY, RUN_SCHEDULE
from dragoman.operations.views import moment

ACTS: Final = (DELETE, RETRY, DELETE_SCHEDULE, RUN_SCHEDULE, PURGE)
MOST_REASON: Final = 256  # characters of the reason in a remembered view of a job
FORGOTTEN_JOB: Final = "this request was accepted before; its job has ended, and its outcome is deleted"
OTHER_ACT: Final = "this request_id came with another request before; choose another one"
LOST_ANSWER: Final = (
    "this request was carried out before, and its answer is not remembered any more; look at its effect, and do not "
    "send it as a new one"
)


def request_id_of(text: str | None) -> RequestId | None:
    """Read the id of a request. Raises OperationError."""
    if text is None:
        return None
    try:
        return read_request_id(text)
    except ValueError as error:
        raise OperationError("invalid", str(error)) from None


def find_repeated(broker: Broker, asked: RequestId, principal: str, shard: int, now: float) -> Repeated | None:
    """Return what is remembered of a request; None: it is new. Raises OperationError if that cannot be known."""
    try:
        return broker.job_registry.remembered.find(asked, principal, shard, now)
    except ValueError as error:
        raise OperationError("conflict", str(error)) from None


def remembered_view(row: Operation[Any, Any], request: Any, found: Repeated) -> View:
    """Return the answer of an act that was carried out before. Raises OperationError, also if the same free id came
    with another request."""
    if not found.answer or found.answer == NOT_REMEMBERED:
        raise OperationError("conflict", LOST_ANSWER)
    mark, _, text = found.answer.partition(" ")
    if mark != _mark_of(row, request):
        raise OperationError("conflict", OTHER_ACT)
    view: View = msgspec.json.decode(text, type=row.view)
    return view


def _mark_of(row: Operation[Any, Any], request: Any) -> str:
    """Return a digest of what an act is: its operation and its target."""
    target = request.id if hasattr(request, "id") else request.name
    return blake2b(f"{row.name}\0{target}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def purge_id(principal: str, asked: RequestId) -> str:
    """Return the id of the act on many jobs that a purge is: its repetition joins it, or finds its end."""
    return f"purge {principal} {asked.name}"


def answer_text(row: Operation[Any, Any], request: Any, view: View) -> str:
    """Return the answer of an act, as it is remembered: with a mark of the request."""
    mark = _mark_of(row, request)
    if isinstance(view, JobView):
        view = msgspec.structs.replace(
            view, attempts=[], reason=view.reason[:MOST_REASON], payload=None, progress=None, error=None, children=[]
        )
    return f"{mark} {msgspec.json.encode(view).decode()}"


def forgotten_job(id: JobId, request: EnqueueRequest, wall: float) -> JobView:
    """Return the view of a job of an earlier request that is deleted. `wall`: the present time; when the job was made
    is not known any more."""
    return JobView(
        id=id.hex(),
        service=request.service,
        state="ended",
        outcome=None,
        reason=FORGOTTEN_JOB,
        background=True,
        quarantined=False,
        priority=request.priority,
        attempts=[],
        max_attempts=request.attempts,
        created=moment(wall),
    )
