"""Responses for the outcome of a job: the bytes of its result, or a problem."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.http.problems import MEDIA_TYPE
from dragoman.http.route import BYTES
from dragoman.operations.recorded_requests import OUTCOME_STATUSES
from dragoman.operations.views import failure_view

JOB = "Dragoman-Job"

TITLES = {
    "failed": "The job failed",
    "lost": "The job was lost",
    "timed out": "The job timed out",
    "cancelled": "The job was cancelled",
    "refused": "The job was refused",
}
# Status and title of each outcome except *done*.
STATUSES = {outcome.value: (status, TITLES[outcome.value]) for outcome, status in OUTCOME_STATUSES.items()}


def outcome_response(id: str, outcome: str, reason: str, result: Payload, failure: Failure | None) -> Response:
    if outcome == "done":
        return Response(bytes(result), headers={JOB: id}, media_type=BYTES)
    status, title = STATUSES[outcome]
    document = {
        "type": f"urn:dragoman:{outcome.replace(' ', '-')}",
        "title": title,
        "status": status,
        "detail": reason,
        "job": id,
    }
    if failure is not None:
        document["error"] = msgspec.to_builtins(failure_view(failure))
    return Response(msgspec.json.encode(document), status, headers={JOB: id}, media_type=MEDIA_TYPE)
