"""Rows of the table of operations: schedules."""

from __future__ import annotations

from typing import Final

from dragoman.operations.operation import Operation
from dragoman.operations.schemas import (
    EmptyRequest,
    ScheduleAct,
    ScheduleRef,
    ScheduleRequest,
    SchedulesView,
    ScheduleView,
)

SCHEDULES: Final = Operation(
    name="schedules",
    request=EmptyRequest,
    view=SchedulesView,
    summary="List schedules.",
    right="see",
    target="list",
    method="GET",
    path="/v1/schedules",
    answered_by="all",
    command="schedule list",
    returned="schedules",
)
SCHEDULE: Final = Operation(
    name="schedule",
    request=ScheduleRef,
    view=ScheduleView,
    summary="Show one schedule.",
    right="see",
    target="schedule",
    method="GET",
    path="/v1/schedules/{name}",
    answered_by="schedule",
    errors=("not found",),
    command="schedule show",
)
SET_SCHEDULE: Final = Operation(
    name="set schedule",
    request=ScheduleRequest,
    view=ScheduleView,
    summary="Create a schedule, or replace the one of this name. Exactly one of `cron` and `every` is needed. A name "
    "that another principal uses is a conflict.",
    right="call",
    target="schedule",
    method="PUT",
    path="/v1/schedules/{name}",
    answered_by="shard 0",
    writes=True,
    takes_payload=True,
    errors=("busy", "conflict", "too large"),
    command="schedule set",
)
DELETE_SCHEDULE: Final = Operation(
    name="delete schedule",
    request=ScheduleAct,
    view=ScheduleView,
    summary="Delete a schedule. Jobs that it has already enqueued are not affected.",
    right="call",
    target="schedule",
    method="DELETE",
    path="/v1/schedules/{name}",
    answered_by="schedule",
    writes=True,
    errors=("not found", "conflict"),
    command="schedule remove",
)
PAUSE_SCHEDULE: Final = Operation(
    name="pause schedule",
    request=ScheduleRef,
    view=ScheduleView,
    summary="Pause a schedule: it enqueues no jobs until it is resumed.",
    right="call",
    target="schedule",
    method="POST",
    path="/v1/schedules/{name}/pause",
    answered_by="schedule",
    writes=True,
    errors=("not found",),
    command="schedule pause",
)
RESUME_SCHEDULE: Final = Operation(
    name="resume schedule",
    request=ScheduleRef,
    view=ScheduleView,
    summary="Resume a paused schedule.",
    right="call",
    target="schedule",
    method="POST",
    path="/v1/schedules/{name}/resume",
    answered_by="schedule",
    writes=True,
    errors=("not found",),
    command="schedule resume",
)

RUN_SCHEDULE: Final = Operation(
    name="run schedule",
    request=ScheduleAct,
    view=ScheduleView,
    summary="Enqueue the job of a schedule now, paused or not. The scheduled runs stay as they are. `last_job` of the "
    "view is the new job. If the last job has not ended, it is a conflict, unless the schedule has `overlap`.",
    right="call",
    target="schedule",
    method="POST",
    path="/v1/schedules/{name}/run",
    answered_by="schedule",
    writes=True,
    errors=("not found", "conflict", "busy"),
    command="schedule run",
)
