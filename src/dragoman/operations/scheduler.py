"""The scheduler: computes when each schedule is due, and enqueues its runs.

Each run is one background job. Its key contains the scheduled time. The state of the schedule is stored in the same
iteration, so the store has both or neither. A schedule has two times. All runs scheduled up to `since` are handled: a
late run stands for all that were missed, and sets `since` to the time at which it was enqueued. `decided` is the
scheduled time of the last run that was enqueued or skipped; no run is ever enqueued for that time or an earlier one.
The two differ because the wall clock may be wrong: when it goes back to before `since`, the schedule goes on from the
new time, or from `decided` if that is later. A schedule with a cron expression that enqueued runs while the clock was
ahead waits for that time. To avoid the wait, remove the schedule and create it again.

An interval (`every`) does not wait for the wall clock to catch up: when the clock is set back, all times of the
schedule are moved back by the same number of seconds (`Schedule.move_back`). While the broker runs, that number comes
from the monotonic clock; after a restart, from the last stored time. In both cases the next run is due within one
interval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import floor, inf
from typing import Final

import msgspec

from dragoman.core.deadlines import Deadlines
from dragoman.core.model import JobId
from dragoman.core.names import is_name
from dragoman.operations.cron import Cron, parse, zone_of
from dragoman.operations.payloads import payload_of
from dragoman.operations.schemas import OperationError, ScheduleRequest, ScheduleView

MOST: Final = 10_000
MOST_AT_ONCE: Final = 100  # runs in one iteration: at midnight, other requests must not wait
MOST_PAYLOAD: Final = 64 << 10  # bytes: it is stored again with every run
MOST_NAME: Final = 128  # bytes
LONGEST_WAIT: Final = 60.0  # seconds after which the wall clock is read again
REST: Final = 1.0  # seconds after a run that was refused
STEP: Final = 1.0  # seconds: a wall clock that falls back by less is being adjusted, not set
PREFIX: Final = "cron/"


class ScheduleState(msgspec.Struct, kw_only=True):
    """The stored state of a schedule. Times are seconds of the wall clock."""

    form: ScheduleRequest
    start: float  # time at which it was created: the grid of `every` begins there
    since: float
    decided: float
    last: float | None = None  # the scheduled time of the last run that was enqueued
    last_job: str | None = None
    runs: int = 0
    skipped: int = 0
    set_back: int = 0  # number of times that its times were moved back: part of the keys, because times then repeat


class Schedule:
    """A schedule with its parsed expression and the time of its next run."""

    __slots__ = ("alarm", "alarm_number", "before", "cron", "due", "is_refused", "memory", "payload", "zone")

    def __init__(self, memory: ScheduleState) -> None:
        """Raises OperationError if the request contradicts itself or has an invalid value."""
        form = memory.form
        self.memory = memory
        self.payload = small_payload_of(form)
        self.cron = cron_of(form)
        self.zone = zone_of(form.timezone)
        self.due = inf  # by the wall clock; inf: never
        self.is_refused = False  # its run is due, and was refused
        self.before: ScheduleState | None = None  # the state before the last run
        self.alarm = inf
        self.alarm_number = 0

    def next(self, since: float) -> float:
        """The first scheduled time after this one."""
        form = self.memory.form
        if self.cron is not None:
            moment = self.cron.next(datetime.fromtimestamp(since, self.zone))
            return moment.timestamp() if moment is not None else inf
        assert form.every is not None
        step = floor((since - self.memory.start) / form.every)
        while (due := self.memory.start + step * form.every) <= since or step == 0:
            step += 1
        return due

    def move_back(self, seconds: float) -> None:
        """Move all times back, after the wall clock was set back, as if it had always shown the new time."""
        memory = self.memory
        memory.start -= seconds
        memory.since -= seconds
        memory.decided -= seconds
        memory.set_back += 1
        self.due -= seconds
        self.before = None

    def key(self) -> str:
        """The idempotency key of the run that is due."""
        memory = self.memory
        moment = datetime.fromtimestamp(self.due, UTC).isoformat()
        return f"{PREFIX}{memory.form.name}/{moment}{f'~{memory.set_back}' if memory.set_back else ''}"

    def view(self) -> ScheduleView:
        memory, form = self.memory, self.memory.form
        return ScheduleView(
            name=form.name,
            service=form.service,
            cron=form.cron,
            every=form.every,
            timezone=form.timezone,
            overlap=form.overlap,
            paused=form.paused,
            next=datetime.fromtimestamp(self.due, self.zone) if self.due != inf else None,
            last=datetime.fromtimestamp(memory.last, self.zone) if memory.last is not None else None,
            last_job=memory.last_job,
            runs=memory.runs,
            skipped=memory.skipped,
        )


class Scheduler:
    """All schedules of a broker, with the runs that are due."""

    def __init__(
        self,
        submit: Callable[[ScheduleRequest, bytes, str, float], JobId | None],
        note: Callable[[str, str | None], None],
        is_over: Callable[[JobId], bool],
    ) -> None:
        self._submit = submit  # returns None if the job is refused for now
        self._note = note
        self._is_over = is_over
        self._entries: dict[str, Schedule] = {}
        self._coming: Deadlines[Schedule] = Deadlines()  # by the wall clock
        self._refused: deque[Schedule] = deque()
        self._retry_at = -inf  # by the clock of jobs
        self._wall = -inf  # the latest time of the wall clock
        self._ahead = -inf  # seconds that the wall clock was ahead of the clock of jobs

    # ---------------------------------------------------------------- operations

    def load(self, notes: Mapping[str, str], now: float, wall: float) -> dict[str, str]:
        """Load the stored schedules. Returns names and errors of those that are invalid, for example because of a time
        zone that this machine does not have; these stay in the store."""
        self._look_at_clocks(now, wall)
        problems = {}
        for key, value in notes.items():
            if not key.startswith(PREFIX):
                continue
            try:
                entry = Schedule(msgspec.json.decode(value, type=ScheduleState))
            except (msgspec.MsgspecError, OperationError) as error:
                problems[key.removeprefix(PREFIX)] = str(error)
                continue
            self._entries[entry.memory.form.name] = entry
            self._arm(entry, wall)
        return problems

    def list(self) -> list[ScheduleView]:
        return [self._entries[name].view() for name in sorted(self._entries)]

    def get(self, name: str) -> ScheduleView:
        return self._find(name).view()

    def put(self, form: ScheduleRequest, now: float, wall: float) -> ScheduleView:
        """Create or replace a schedule. If its expression or interval is the same, its grid and its counts go on."""
        self._look_at_clocks(now, wall)
        memory = ScheduleState(form=form, start=wall, since=wall, decided=0.0)
        entry = Schedule(memory)
        check_names(form)
        if entry.next(wall) == inf:
            raise OperationError("invalid", f'"{form.cron}" never comes: no year has such a day')
        before = self._entries.get(form.name)
        if before is not None:
            _go_on(memory, before)
            self._disarm(before)
        elif len(self._entries) >= MOST:
            raise OperationError("busy", f"there are {MOST} recurring jobs already: remove one of them first")
        self._entries[form.name] = entry
        self._arm(entry, wall)
        self._write(entry)
        return entry.view()

    def remove(self, name: str) -> None:
        """Remove a schedule. Jobs that it has enqueued go on."""
        self._disarm(self._find(name))
        del self._entries[name]
        self._note(PREFIX + name, None)

    def pause(self, name: str, now: float, wall: float) -> ScheduleView:
        return self._set_paused(name, True, now, wall)

    def resume(self, name: str, now: float, wall: float) -> ScheduleView:
        """Resume a schedule. Runs that it missed are not made up for."""
        return self._set_paused(name, False, now, wall)

    def take_back(self, name: str, job: JobId) -> None:
        """The store could not write this run, so it is still due."""
        entry = self._entries.get(name)
        if entry is None or entry.before is None or entry.memory.last_job != job.hex():
            return
        memory, before = entry.memory, entry.before
        if memory.decided != memory.last or memory.form.paused:
            return  # the schedule has changed since
        assert memory.last is not None
        entry.due, entry.before = memory.last, None
        entry.memory = msgspec.structs.replace(before, form=memory.form)
        self._coming.disarm(entry)
        self._refuse(entry)
        self._write(entry)

    def tick(self, now: float, wall: float) -> float:
        """Enqueue the runs that are due. Returns the time of the next tick, by the clock of `now`."""
        self._look_at_clocks(now, wall)
        left = MOST_AT_ONCE
        if now >= self._retry_at:
            for _ in range(min(left, len(self._refused))):
                left -= 1
                entry = self._refused.popleft()
                entry.is_refused = False
                self._come_up(entry, now, wall)
        if left:
            for entry in self._coming.due(wall):
                self._come_up(entry, now, wall)
                left -= 1
                if not left:
                    break
        return self._next_tick(now, wall)

    # ---------------------------------------------------------------- helpers

    def _look_at_clocks(self, now: float, wall: float) -> None:
        """Handle a wall clock that was set back. If it jumps ahead, or was right while the machine slept and the other
        clock stood still, missed runs are enqueued once."""
        back = self._ahead - (wall - now)
        if back >= STEP:
            for entry in self._entries.values():
                if entry.cron is None:
                    entry.move_back(back)
                    if not entry.is_refused:
                        self._rearm(entry)
        if back >= STEP or back < 0.0:
            self._ahead = wall - now
        if wall < self._wall:
            self._turn_back(wall)
        self._wall = wall

    def _next_tick(self, now: float, wall: float) -> float:
        after = now + min(max(self._coming.next() - wall, 0.0), LONGEST_WAIT) if self._coming.armed else inf
        return min(after, max(self._retry_at, now)) if self._refused else after

    def _come_up(self, entry: Schedule, now: float, wall: float) -> None:
        """Decide about a schedule whose reminder has come. The clock may have changed since that was set."""
        memory = entry.memory
        if entry.due <= memory.since <= wall:  # the clock had gone back, and is right again
            entry.due = entry.next(_believed(memory, wall))
        if entry.due > wall:
            self._rearm(entry)
        elif self._runs_still(memory):
            memory.skipped += 1
            self._decide(entry, wall)
        else:
            self._run(entry, now, wall)

    def _runs_still(self, memory: ScheduleState) -> bool:
        if memory.form.overlap or memory.last_job is None:
            return False
        return not self._is_over(JobId(bytes.fromhex(memory.last_job)))

    def _run(self, entry: Schedule, now: float, wall: float) -> None:
        memory = entry.memory
        job = self._submit(memory.form, entry.payload, entry.key(), now)
        if job is None:
            self._refuse(entry)
            self._retry_at = now + REST
            return
        entry.before = msgspec.structs.replace(memory)
        memory.last = entry.due
        memory.last_job = job.hex()
        memory.runs += 1
        self._decide(entry, wall)

    def _refuse(self, entry: Schedule) -> None:
        entry.is_refused = True
        self._refused.append(entry)

    def _decide(self, entry: Schedule, wall: float) -> None:
        entry.memory.decided = entry.due
        entry.memory.since = wall
        self._arm(entry, wall)
        self._write(entry)

    def _turn_back(self, wall: float) -> None:
        """Schedules that have handled a time in the future wait for less."""
        for entry in self._entries.values():
            is_due = entry.is_refused or entry.due <= wall
            if entry.memory.since > wall and not is_due:
                self._arm(entry, wall)

    def _arm(self, entry: Schedule, wall: float) -> None:
        self._wall = max(self._wall, wall)
        latest = max(entry.memory.since, entry.memory.decided)
        if entry.cron is None and latest > wall:
            entry.move_back(latest - wall)
        entry.due = inf if entry.memory.form.paused else entry.next(_believed(entry.memory, wall))
        self._rearm(entry)

    def _rearm(self, entry: Schedule) -> None:
        self._coming.disarm(entry)
        self._coming.arm(entry, entry.due)

    def _disarm(self, entry: Schedule) -> None:
        self._coming.disarm(entry)
        if entry.is_refused:
            entry.is_refused = False
            self._refused.remove(entry)

    def _set_paused(self, name: str, paused: bool, now: float, wall: float) -> ScheduleView:
        self._look_at_clocks(now, wall)
        entry = self._find(name)
        memory = entry.memory
        if memory.form.paused is not paused:
            memory.form = msgspec.structs.replace(memory.form, paused=paused)
            memory.since = wall
            self._disarm(entry)
            self._arm(entry, wall)
            self._write(entry)
        return entry.view()

    def _write(self, entry: Schedule) -> None:
        self._note(PREFIX + entry.memory.form.name, msgspec.json.encode(entry.memory).decode())

    def _find(self, name: str) -> Schedule:
        try:
            return self._entries[name]
        except KeyError:
            raise OperationError("not found", f'no recurring job is called "{name}"') from None


def _believed(memory: ScheduleState, wall: float) -> float:
    """The time up to which all runs are handled, if the wall clock is right."""
    return max(memory.decided, min(memory.since, wall))


def _go_on(memory: ScheduleState, before: Schedule) -> None:
    """The state that a new definition takes over from the one before it."""
    old, form = before.memory, memory.form
    memory.decided, memory.last, memory.last_job = old.decided, old.last, old.last_job
    memory.set_back = old.set_back
    if (before.cron, old.form.every, old.form.timezone) == (cron_of(form), form.every, form.timezone):
        memory.start, memory.runs, memory.skipped = old.start, old.runs, old.skipped
        if not old.form.paused:
            memory.since = old.since  # a run that is due is not lost


def cron_of(form: ScheduleRequest) -> Cron | None:
    """The parsed expression; None for an interval."""
    if (form.cron is None) is (form.every is None):
        raise OperationError("invalid", "say one of cron and every, and not both")
    try:
        return parse(form.cron) if form.cron is not None else None
    except ValueError as error:
        raise OperationError("invalid", str(error)) from None


def small_payload_of(form: ScheduleRequest) -> bytes:
    payload = payload_of(form, b"")
    if len(payload) > MOST_PAYLOAD:
        raise OperationError(
            "invalid", f"a recurring job's payload has at most {MOST_PAYLOAD} bytes, not {len(payload)}"
        )
    return bytes(payload)


def check_names(form: ScheduleRequest) -> None:
    for what, name in (("a recurring job's name", form.name), ("a service name", form.service)):
        if not is_name(name, MOST_NAME):
            raise OperationError("invalid", f"{what} is 1 to {MOST_NAME} bytes without control characters")
