"""Schedules: the stored state of each, and its next due time."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, inf
from typing import Final

import msgspec

from dragoman.core.names import is_name
from dragoman.core.rights import LOCAL
from dragoman.operations.cron import Cron, parse, zone_of
from dragoman.operations.payloads import payload_of
from dragoman.operations.schedule_runs import RecentRuns
from dragoman.operations.schedule_words import words_of
from dragoman.operations.schemas import OperationError, ScheduleRequest, ScheduleView

MAX_PAYLOAD: Final = 64 << 10  # bytes: it is stored again with every run
MAX_NAME: Final = 128  # bytes
PREFIX: Final = "cron/"
MOST_STEPS: Final = 4  # times that are tried: that of the interval, the next two, and one for a rounding error


class ScheduleState(msgspec.Struct, kw_only=True):
    """Stored state of a schedule. Times are seconds of the wall clock."""

    request: ScheduleRequest = msgspec.field(name="form")  # its name in stores of all releases
    start: float  # creation; runs of `every` are at multiples of the interval from here
    since: float
    decided: float
    last: float | None = None  # scheduled time of the last run that was made
    last_job: str | None = None
    runs: int = 0
    skipped: int = 0
    set_back: int = 0  # number of times that the wall clock was set back; part of the keys, because times repeat then
    owner: str = LOCAL  # name of the principal that created it; runs are its jobs; stores before format 5 have none
    right_at: float | None = None  # if the wall clock seems wrong: the time at which it counts as right
    paused_reason: str = ""  # if the broker itself has paused it
    recent: RecentRuns = msgspec.field(default_factory=RecentRuns)  # earlier releases ignore it


class Schedule:
    """A schedule with its next due time. Raises OperationError if the request is invalid."""

    __slots__ = ("alarm", "alarm_number", "before", "cron", "due", "is_refused", "payload", "says", "stored", "zone")

    def __init__(self, state: ScheduleState) -> None:
        request = state.request
        self.stored = state
        self.payload = small_payload_of(request)
        self.cron = cron_of(request)
        self.zone = zone_of(request.timezone)
        self.says = words_of(self.cron, request.timezone, request.every)
        self.due = inf  # by the wall clock; inf: never
        self.is_refused = False  # its run is due and was refused
        self.before: ScheduleState | None = None  # the state before the last run
        self.alarm = inf
        self.alarm_number = 0

    def next(self, since: float) -> float:
        """Return the first scheduled time after `since`."""
        request = self.stored.request
        if self.cron is not None:
            moment = self.cron.next(datetime.fromtimestamp(since, self.zone))
            return moment.timestamp() if moment is not None else inf
        assert request.every is not None
        step = floor((since - self.stored.start) / request.every)
        for each in range(step, step + MOST_STEPS):
            due = self.stored.start + each * request.every
            if due > since and each != 0:
                return due
        return inf  # the wall clock is so far ahead that an interval does not change its time

    def move_back(self, seconds: float) -> None:
        """Move all times back, after the wall clock was set back by this number of seconds."""
        state = self.stored
        state.start -= seconds
        state.since -= seconds
        state.decided -= seconds
        state.set_back += 1
        self.due -= seconds
        self.before = None

    def start_again(self, wall: float) -> None:
        """Continue from this time, after the wall clock was far ahead. The runs made then count for no time of now."""
        state = self.stored
        state.since = state.decided = wall
        state.right_at = None
        state.set_back += 1
        self.before = None

    def key(self) -> str:
        """Return the idempotency key of the run that is due."""
        state = self.stored
        moment = datetime.fromtimestamp(self.due, UTC).isoformat()
        return f"{PREFIX}{state.request.name}/{moment}{f'~{state.set_back}' if state.set_back else ''}"

    def view(self) -> ScheduleView:
        state, request = self.stored, self.stored.request
        return ScheduleView(
            name=request.name,
            service=request.service,
            cron=request.cron,
            every=request.every,
            timezone=request.timezone,
            overlap=request.overlap,
            paused=request.paused,
            paused_reason=state.paused_reason,
            owner=state.owner,
            next=datetime.fromtimestamp(self.due, self.zone) if self.due != inf else None,
            last=datetime.fromtimestamp(state.last, self.zone) if state.last is not None else None,
            last_job=state.last_job,
            runs=state.runs,
            skipped=state.skipped,
            says=self.says,
            recent=state.recent.letters,
            last_took=state.recent.took,
        )

    def key_of_extra_run(self, wall: float) -> str:
        """Return the idempotency key of a run that was requested at this time. No scheduled run has such a key."""
        state = self.stored
        return f"{PREFIX}{state.request.name}/run {state.runs + 1} at {datetime.fromtimestamp(wall, UTC).isoformat()}"


def decided_until(state: ScheduleState, wall: float) -> float:
    """Time up to which everything is decided, if the wall clock is right."""
    return max(state.decided, min(state.since, wall))


def inherit(state: ScheduleState, before: Schedule) -> None:
    """Take over the state of the schedule that is being replaced."""
    old, request = before.stored, state.request
    state.decided, state.last, state.last_job, state.set_back = old.decided, old.last, old.last_job, old.set_back
    if (before.cron, old.request.every, old.request.timezone) == (cron_of(request), request.every, request.timezone):
        state.start, state.runs, state.skipped, state.recent = old.start, old.runs, old.skipped, old.recent
        if not old.request.paused:
            state.since = old.since  # keeps a run that is due


def cron_of(request: ScheduleRequest) -> Cron | None:
    """Return the parsed cron expression, or None for an interval. Raises OperationError if it is invalid."""
    if (request.cron is None) is (request.every is None):
        raise OperationError("invalid", "set exactly one of cron and every")
    try:
        return parse(request.cron) if request.cron is not None else None
    except ValueError as error:
        raise OperationError("invalid", str(error)) from None


def small_payload_of(request: ScheduleRequest) -> bytes:
    payload = payload_of(request, b"")
    if len(payload) > MAX_PAYLOAD:
        raise OperationError(
            "invalid", f"the payload has {len(payload)} bytes; a schedule's payload may have at most {MAX_PAYLOAD}"
        )
    return bytes(payload)


def check_names(request: ScheduleRequest) -> None:
    for what, name in (("schedule name", request.name), ("service name", request.service)):
        if not is_name(name, MAX_NAME):
            raise OperationError("invalid", f"{what} {name!r}: 1 to {MAX_NAME} bytes of visible text are allowed")
