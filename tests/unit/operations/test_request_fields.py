"""Fields of requests as data: documented limits and defaults are those that are checked."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import pytest
from msgspec import Meta

from dragoman.core.options import DEFAULT_PRIORITY
from dragoman.core.policy import Policy
from dragoman.operations.list_schemas import ListJobsRequest
from dragoman.operations.request_fields import RequestField, request_fields
from dragoman.operations.schemas import (
    EnqueueRequest,
    OperationRequest,
    PauseRequest,
    PurgeRequest,
    ResultRequest,
    ScheduleRequest,
)
from dragoman.operations.table import OPERATIONS
from dragoman.sdk import operation_steps
from dragoman.sdk.submit_options import SubmitOptionsCache


def field(request: type[OperationRequest], name: str) -> RequestField:
    (found,) = (each for each in request_fields(request) if each.name == name)
    return found


@pytest.mark.parametrize(
    ("request_type", "name", "limits", "default"),
    [
        (EnqueueRequest, "priority", "0 to 9", "5"),
        (EnqueueRequest, "timeout", "more than 0, at most 86400 (1 day)", "60"),
        (EnqueueRequest, "delay", "0 to 2592000 (30 days)", "0"),
        (EnqueueRequest, "retry_jitter", "0 to 1", ""),
        (EnqueueRequest, "key", "1 to 256 characters", ""),
        (ScheduleRequest, "overlap", "", "false"),
        (ListJobsRequest, "state", "waiting, delayed, dependent, running or ended", ""),
        (ListJobsRequest, "limit", "1 to 1000", "100"),
        (PurgeRequest, "states", "waiting, delayed, dependent or ended", "waiting, delayed, dependent"),
        (PauseRequest, "by", "1 to 128 characters", "an operator"),
    ],
)
def test_limits_and_defaults_are_those_of_the_type(
    request_type: type[OperationRequest], name: str, limits: str, default: str
) -> None:
    found = field(request_type, name)
    assert (found.limits, found.default_text) == (limits, default)


def test_kinds_of_fields() -> None:
    assert (field(EnqueueRequest, "not_before").kind, field(EnqueueRequest, "not_before").is_nullable) == (
        datetime,
        True,
    )
    assert (field(EnqueueRequest, "timeout").is_nullable, field(EnqueueRequest, "priority").is_nullable) == (
        True,
        False,
    )
    assert (field(PurgeRequest, "states").is_list, field(ListJobsRequest, "state").is_list) == (True, False)
    assert (field(EnqueueRequest, "service").is_required, field(EnqueueRequest, "key").is_required) == (True, False)


def test_a_type_that_no_command_and_no_query_can_say_has_no_place_in_a_request() -> None:
    class Odd(OperationRequest):
        facts: Annotated[dict[str, int], Meta(description="Facts.")]

    with pytest.raises(TypeError, match=r"field 'facts': type .* is not supported in a request"):
        request_fields(Odd)


def test_every_field_of_every_operation_is_described() -> None:
    bare = [
        f"{row.name}: {each.name}"
        for row in OPERATIONS.values()
        for each in request_fields(row.request)
        if not each.description
    ]
    assert bare == []


def test_calls_have_the_limits_of_background_jobs() -> None:
    """Calls are no operations: their limits are checked by the client, and must be the same."""
    asking = SubmitOptionsCache("tcp://127.0.0.1:7400")
    for name in ("priority", "attempts"):
        bounds = field(EnqueueRequest, name)
        assert bounds.least is not None
        assert bounds.most is not None
        for allowed in (int(bounds.least), int(bounds.most)):
            asking.submit_options("s", **{name: allowed})  # type: ignore[arg-type]
        for refused in (int(bounds.least) - 1, int(bounds.most) + 1):
            with pytest.raises(ValueError, match=f"from {bounds.least:g} to {bounds.most:g}"):
                asking.submit_options("s", **{name: refused})  # type: ignore[arg-type]
    assert field(EnqueueRequest, "priority").default == DEFAULT_PRIORITY
    assert field(EnqueueRequest, "delay").most == Policy().max_delay


def test_pages_that_clients_ask_for_are_within_the_limit() -> None:
    assert field(ListJobsRequest, "limit").most == operation_steps.PAGE
    assert (field(ResultRequest, "wait").most or 0.0) >= operation_steps.LONGEST_WAIT
