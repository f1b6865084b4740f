"""Messages for requests that are not valid."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.http.worker_routes import JoinRequest
from dragoman.operations.list_schemas import ListJobsRequest
from dragoman.operations.schemas import (
    EmptyRequest,
    EnqueueRequest,
    JobIdText,
    JobRef,
    PurgeRequest,
    ScheduleRequest,
    ServiceName,
)
from dragoman.operations.validation import duration, explain

S = {"service": "s"}
CASES: list[tuple[Any, Any, str]] = [
    (JobRef, {"id": "xyz"}, "id: must be 32 lower-case hex digits"),
    (JobIdText, "xyz", "must be 32 lower-case hex digits"),
    (ServiceName, "a\0b", "must not have control characters or others that cannot be seen"),
    (EnqueueRequest, {"service": "a\0b"}, "service: must not have control characters or others that cannot be seen"),
    (EnqueueRequest, {"service": ""}, "service: must not be empty"),
    (EnqueueRequest, {"service": "a" * 129}, "service: must have at most 128 characters"),
    (ListJobsRequest, {"state": "bogus"}, "state: must be one of waiting, delayed, dependent, running, ended"),
    (ListJobsRequest, {"outcome": "x"}, "outcome: must be one of done, failed, timed out, lost, cancelled, refused"),
    (PurgeRequest, {"name": "s", "states": ["x"]}, "states[0]: must be one of waiting, delayed, dependent, ended"),
    (PurgeRequest, {"name": "s", "states": "x"}, "states: must be a list, not text"),
    (ListJobsRequest, {"quarantined": "yes"}, "quarantined: must be true or false"),
    (bool, "yes", "must be true or false"),
    (ListJobsRequest, {"limit": "x"}, "limit: must be a whole number, not text"),
    (ListJobsRequest, {"limit": "0"}, "limit: must be at least 1"),
    (EnqueueRequest, {**S, "delay": 1e9}, "delay: must be at most 2592000, 30 days"),
    (EnqueueRequest, {**S, "timeout": 0}, "timeout: must be more than 0"),
    (EnqueueRequest, {**S, "timeout": 86_401}, "timeout: must be at most 86400, 1 day"),
    (EnqueueRequest, {**S, "delay": float("nan")}, "delay: must be at least 0"),
    (EnqueueRequest, {**S, "attempts": 1.5}, "attempts: must be a whole number"),
    (EnqueueRequest, {"service": None}, "service: must be text, not null"),
    (EnqueueRequest, {}, "service is missing"),
    (JobRef, {"id": "0" * 32, "x": 1}, "unknown field 'x'; allowed are id"),
    (EmptyRequest, {"x": 1}, "unknown field 'x'; no fields are allowed"),
    (EnqueueRequest, [], "must be an object, not a list"),
    (
        EnqueueRequest,
        {**S, "not_before": "tomorrow"},
        "not_before: must be a time with its zone, such as 2030-01-01T08:00:00+01:00",
    ),
    (
        EnqueueRequest,
        {**S, "not_before": "2030-01-01T08:00:00"},
        "not_before: must be a time with its zone, such as 2030-01-01T08:00:00+01:00",
    ),
    (JoinRequest, {"services": []}, "services: must not be empty"),
    (JoinRequest, {"services": ["\n"]}, "services[0]: must not have control characters or others that cannot be seen"),
    (ScheduleRequest, {"name": "n", **S, "every": 0.5}, "every: must be at least 1"),
]


@pytest.mark.parametrize(("kind", "value", "message"), CASES, ids=[message for _, _, message in CASES])
def test_error_names_the_field_and_the_allowed_values(kind: Any, value: Any, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, kind, strict=False)
    assert explain(caught.value, kind) == message


def test_errors_of_the_json_parser_are_passed_on() -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(b'{"id": x', type=JobRef)
    assert explain(caught.value, JobRef) == "JSON is malformed: invalid character (byte 7)"
    assert explain(RecursionError(), JobRef) == "the request is nested too deeply"


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90 s"), (86_400, "1 day"), (129_600, "1.5 days"), (2_592_000, "30 days")]
)
def test_long_times_are_days(seconds: float, text: str) -> None:
    assert duration(seconds) == text
