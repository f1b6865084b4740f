"""Records requests and responses of operations in the conversation of the job that they are about."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from dragoman.core.conversation import RECEIVED, SENT, Entry
from dragoman.core.model import Job
from dragoman.core.recording import CALLER, address_of
from dragoman.core.states import DONE, Outcome
from dragoman.operations.operation import Operation
from dragoman.operations.responders import Responder

# HTTP status of each outcome except *done*.
OUTCOME_STATUSES: Final = {
    Outcome.FAILED: 502,
    Outcome.LOST: 502,
    Outcome.TIMED_OUT: 504,
    Outcome.CANCELLED: 409,
    Outcome.REFUSED: 503,
}


def record_request(job: Job | None, row: Operation[Any, Any], responder: Responder, size: int, now: float) -> None:
    """Record a request, in front of all others if it submitted the job."""
    conversation = job.conversation if job is not None else None
    if conversation is not None:
        is_first = row.creates_job and not any(each.role == CALLER for each in conversation.lanes)
        lane = conversation.lane(CALLER, "", address_of(responder.owner.label), responder.dialect)
        conversation.add(Entry(now, RECEIVED, lane, name_of(row, responder.dialect), size), is_first=is_first)


def record_response(job: Job, responder: Responder | None, status: int, size: int, now: float) -> None:
    """Record the response to a request. `status`: that of HTTP."""
    conversation = job.conversation
    if conversation is not None and responder is not None:
        lane = conversation.lane(CALLER, "", address_of(responder.owner.label), responder.dialect)
        text = status_line(status) if responder.dialect == "http" else "TELL"
        conversation.add(Entry(now, SENT, lane, text, size))


def status_line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"


def status_of(outcome: Outcome) -> int:
    return 200 if outcome is DONE else OUTCOME_STATUSES[outcome]


def name_of(row: Operation[Any, Any], dialect: str) -> str:
    """Return the request as its dialect spells it. A schedule enqueues its jobs itself."""
    if dialect == "http":
        return f"{row.method} {row.path.replace('/v1/jobs/{id}/', '…/').replace('{id}', '…')}"
    return f"ASK {row.name}" if dialect == "native" else row.name
