"""The scheduler: enqueues one background job for each run of a schedule, and keeps the state of each schedule.

The idempotency key of a run contains its scheduled time. The job and the new state of the schedule are stored in one
commit. The state has two times:

- `since`: everything scheduled up to it is decided. A late run stands for all missed ones and sets `since` to the time
  at which it was made.
- `decided`: the scheduled time of the last run that was made or skipped. No run is made for it or an earlier time.

The two differ because the wall clock may be wrong. If it goes back to before `since`, the schedule continues from the
new time, or from `decided` if that is later. A schedule with a cron expression that made runs for future times waits
until these have passed, so that none is made twice; to avoid that, delete the schedule and create it again. If these
times are more than a day ahead, one of the two settings of the clock was wrong. It may be the present one, as on a
machine that shows 1970 until it has asked for the time. So the schedule waits for an hour, and then continues from the
present time (`Schedule.start_again`).

A schedule with an interval (`every`) does not wait: if the wall clock is set back, all times of the schedule are moved
back by the same amount (`Schedule.move_back`). While the broker runs, the monotonic clock gives the amount; after a
restart, the latest time in the state does. In both cases the next run is due within one interval.

A schedule belongs to the principal that set it, and so do the jobs of its runs (R143). If that principal may not call
the service when a run is due, the run is not made, and the schedule is paused until it is resumed or set again (R144).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from math import inf
from typing import Final

import msgspec

from dragoman.core.deadlines import Deadlines
from dragoman.core.model import JobId
from dragoman.core.rights import LOCAL
from dragoman.core.shares import Shares, share_problem
from dragoman.operations.schedule_runs import SKIPPED
from dragoman.operations.schedule_state import MAX_PAYLOAD as MAX_PAYLOAD
from dragoman.operations.schedule_state import PREFIX, check_names, decided_until, inherit
from dragoman.operations.schedule_state import Schedule as Schedule
from dragoman.operations.schedule_state import ScheduleState as ScheduleState
from dragoman.operations.schemas import JobView, OperationError, ScheduleRequest, ScheduleView

MAX_SCHEDULES: Final = 10_000
MAX_RUNS_PER_TICK: Final = 100  # many are due at midnight: messages must not wait for all of them
MAX_WAIT: Final = 60.0  # seconds until the wall clock is read again
RETRY_DELAY: Final = 1.0  # seconds after a run that was refused
MOST_AHEAD: Final = 86_400.0  # seconds: runs of times further ahead were made by a wall clock that was wrong, or is
WRONG_FOR: Final = 3_600.0  # seconds after which the present time counts as right
MIN_STEP: Final = 1.0  # seconds: a wall clock that goes back by less is being adjusted, not set


class Scheduler:
    """All schedules. `wall` is the time by the wall clock, `now` by the monotonic clock of jobs."""

    def __init__(
        self,
        submit: Callable[[ScheduleState, bytes, str, float], JobId | None],
        note: Callable[[str, str | None], None],
        has_ended: Callable[[JobId], bool],
        forbidden: Callable[[str, str], str | None],
    ) -> None:
        """`forbidden` returns the reason why a principal may not call a service, or None if it may."""
        self.when_paused: Callable[[str, str], None] = lambda name, reason: None  # called if the broker pauses one
        self.find_run: Callable[[str], JobView | None] = lambda job: None  # returns the job of a run
        self._submit = submit  # returns None if the job is refused
        self._note = note
        self._has_ended = has_ended
        self._forbidden = forbidden
        self._schedules: dict[str, Schedule] = {}
        self.shares = Shares(MAX_SCHEDULES)  # by principal (R254)
        self._upcoming: Deadlines[Schedule] = Deadlines()  # by the wall clock
        self._refused: deque[Schedule] = deque()
        self._retry_at = -inf  # by the clock of `now`
        self._wall = -inf  # latest time of the wall clock
        self._ahead = -inf  # lead of the wall clock over `now`

    # ---------------------------------------------------------------- operations

    def load(self, notes: Mapping[str, str], now: float, wall: float) -> dict[str, str]:
        """Restore the schedules from the store. An invalid one, such as one with a time zone that this machine does not
        know, is skipped. Returns the errors of these by name."""
        self._check_clocks(now, wall)
        problems = {}
        for key, value in notes.items():
            if not key.startswith(PREFIX):
                continue
            try:
                schedule = Schedule(msgspec.json.decode(value, type=ScheduleState))
            except (msgspec.MsgspecError, OperationError) as error:
                problems[key.removeprefix(PREFIX)] = str(error)
                continue
            if schedule.stored.request.name not in self._schedules:
                self.shares.enter(schedule.stored.owner)
            self._schedules[schedule.stored.request.name] = schedule
            self._arm(schedule, wall)
        return problems

    def unload(self) -> None:
        """Forget all schedules: another broker of the cluster runs them."""
        for schedule in self._schedules.values():
            self._disarm(schedule)
        self._schedules.clear()
        self.shares = Shares(MAX_SCHEDULES)
        self._refused.clear()

    def list(self, sees: Callable[[ScheduleState], bool] = lambda _: True) -> list[ScheduleView]:
        """Return the schedules for which `sees` returns True, by name."""
        return [self.get(name) for name in sorted(self._schedules) if sees(self._schedules[name].stored)]

    def __len__(self) -> int:
        return len(self._schedules)

    def skipping(self, fewest: int) -> Iterator[ScheduleState]:
        """Yield the schedules of which the latest runs, at least this many, were skipped."""
        ending = SKIPPED * fewest
        for schedule in self._schedules.values():
            if schedule.stored.recent.letters.endswith(ending):
                yield schedule.stored

    def ahead(self, wall: float) -> Iterator[tuple[ScheduleState, float, float]]:
        """Yield the schedules that made runs for times more than a minute ahead: the wall clock was set back. With the
        seconds by which these are ahead, and for which the schedule waits."""
        for schedule in self._schedules.values():
            state = schedule.stored
            seconds = state.decided - wall
            if seconds > MAX_WAIT and not state.request.paused:
                yield state, seconds, seconds if state.right_at is None else max(0.0, state.right_at - wall)

    def has(self, name: str) -> bool:
        return name in self._schedules

    def find(self, name: str) -> Schedule:
        """Raises OperationError if there is none."""
        schedule = self._schedules.get(name)
        if schedule is None:
            raise self.missing(name)
        return schedule

    def missing(self, name: str) -> OperationError:
        return OperationError("not found", f'no schedule is named "{name}"')

    def get(self, name: str) -> ScheduleView:
        schedule = self.find(name)
        schedule.stored.recent.look_up(self.find_run, is_complete=False)
        return schedule.view()

    def put(
        self, request: ScheduleRequest, now: float, wall: float, owner: str = LOCAL, *, is_administrator: bool = True
    ) -> ScheduleView:
        """Create or replace a schedule. With the same cron expression or interval, its times and counters continue. A
        schedule that is replaced keeps its owner."""
        self._check_clocks(now, wall)
        before = self._schedules.get(request.name)
        owner = owner if before is None else before.stored.owner
        state = ScheduleState(request=request, start=wall, since=wall, decided=0.0, owner=owner)
        schedule = Schedule(state)
        check_names(request)
        self._require_right(state)
        if schedule.next(wall) == inf:
            raise OperationError("invalid", f'cron expression "{request.cron}" never matches: no year has such a day')
        if before is not None:
            inherit(state, before)
            self._disarm(before)
        elif not self.shares.allows_holder(owner, is_administrator=is_administrator):
            shares = self.shares
            text = share_problem(owner, shares.held(owner), shares.taken, shares.most, "schedules", "")
            raise OperationError("busy", f"{text}; delete one first")
        else:
            self.shares.enter(owner)
        self._schedules[request.name] = schedule
        self._arm(schedule, wall)
        self._write(schedule)
        return schedule.view()

    def remove(self, name: str) -> None:
        """Delete a schedule. Its jobs are left unchanged."""
        schedule = self.find(name)
        self._disarm(schedule)
        del self._schedules[name]
        self.shares.leave(schedule.stored.owner)
        self._note(PREFIX + name, None)

    def pause(self, name: str, now: float, wall: float) -> ScheduleView:
        return self._set_paused(name, True, now, wall)

    def resume(self, name: str, now: float, wall: float) -> ScheduleView:
        """Resume a schedule. Runs that were due while it was paused are not made."""
        self._require_right(self.find(name).stored)
        return self._set_paused(name, False, now, wall)

    def run_now(self, name: str, now: float, wall: float) -> ScheduleView:
        """Make a run that is not scheduled. The scheduled runs stay as they are. Raises OperationError if it is not
        allowed now."""
        schedule = self.find(name)
        state = schedule.stored
        self._require_right(state)
        if self._is_running(state):
            raise OperationError(
                "conflict",
                f'the last job of schedule "{name}", {state.last_job}, has not ended; wait for it or cancel it, or set '
                "the schedule with overlap",
            )
        job = self._submit(state, schedule.payload, schedule.key_of_extra_run(wall), now)
        if job is None:
            raise OperationError("busy", f'the job of schedule "{name}" was refused; retry when jobs have ended')
        schedule.before = None
        self._note_run(schedule, job, wall)
        self._write(schedule)
        return schedule.view()

    def run_ended(self, name: str, view: JobView) -> None:
        """Record the end of a run's job."""
        schedule = self._schedules.get(name)
        if schedule is not None and schedule.stored.recent.end(view):
            self._write(schedule)

    def run_not_stored(self, name: str, job: JobId) -> None:
        """Make the run due again: the store could not write its job."""
        schedule = self._schedules.get(name)
        if schedule is None or schedule.before is None or schedule.stored.last_job != job.hex():
            return
        state, before = schedule.stored, schedule.before
        if state.decided != state.last or state.request.paused:
            return  # a later run was decided, or the schedule was paused
        assert state.last is not None
        schedule.due, schedule.before = state.last, None
        schedule.stored = msgspec.structs.replace(before, request=state.request)
        self._upcoming.disarm(schedule)
        self._refuse(schedule)
        self._write(schedule)

    def tick(self, now: float, wall: float) -> float:
        """Make the runs that are due. Returns the time of the next tick, by the clock of `now`."""
        self._check_clocks(now, wall)
        left = MAX_RUNS_PER_TICK
        if now >= self._retry_at:
            for _ in range(min(left, len(self._refused))):
                left -= 1
                schedule = self._refused.popleft()
                schedule.is_refused = False
                self._handle_due(schedule, now, wall)
        if left:
            for schedule in self._upcoming.due(wall):
                self._handle_due(schedule, now, wall)
                left -= 1
                if not left:
                    break
        return self._next_tick(now, wall)

    # ---------------------------------------------------------------- helpers

    def _check_clocks(self, now: float, wall: float) -> None:
        """Adjust the schedules if the wall clock was set back. A jump forward, or a sleep of the machine during which
        the monotonic clock stood still, needs no adjustment: missed runs are made once."""
        back = self._ahead - (wall - now)
        if back >= MIN_STEP:
            for schedule in self._schedules.values():
                if schedule.cron is None:
                    schedule.move_back(back)
                    if not schedule.is_refused:
                        self._rearm(schedule)
        if back >= MIN_STEP or back < 0.0:
            self._ahead = wall - now
        if wall < self._wall:
            self._rearm_after_step_back(wall)
        self._wall = wall

    def _next_tick(self, now: float, wall: float) -> float:
        after = now + min(max(self._upcoming.next() - wall, 0.0), MAX_WAIT) if self._upcoming.armed else inf
        return min(after, max(self._retry_at, now)) if self._refused else after

    def _handle_due(self, schedule: Schedule, now: float, wall: float) -> None:
        """Make or skip the run, unless the wall clock has changed so that it is not due."""
        state = schedule.stored
        if state.right_at is not None and state.right_at <= wall and state.decided - wall > MOST_AHEAD:
            schedule.start_again(wall)
            self._arm(schedule, wall)
            self._write(schedule)
            return
        if schedule.due <= state.since <= wall or state.right_at is not None:  # the clock had gone back, and is right
            state.right_at = None
            schedule.due = schedule.next(decided_until(state, wall))
        if schedule.due > wall:
            self._rearm(schedule)
        elif (reason := self._forbidden(state.owner, state.request.service)) is not None:
            self._change_pause(schedule, True, wall, reason)
            self.when_paused(state.request.name, reason)
        elif self._is_running(state):
            state.skipped += 1
            state.recent.skip()
            self._decide(schedule, wall)
        else:
            self._run(schedule, now, wall)

    def _is_running(self, state: ScheduleState) -> bool:
        if state.request.overlap or state.last_job is None:
            return False
        return not self._has_ended(JobId(bytes.fromhex(state.last_job)))

    def _run(self, schedule: Schedule, now: float, wall: float) -> None:
        state = schedule.stored
        job = self._submit(state, schedule.payload, schedule.key(), now)
        if job is None:
            self._refuse(schedule)
            self._retry_at = now + RETRY_DELAY
            return
        schedule.before = msgspec.structs.replace(state, recent=copy(state.recent))
        self._note_run(schedule, job, schedule.due)
        self._decide(schedule, wall)

    def _note_run(self, schedule: Schedule, job: JobId, at: float) -> None:
        state = schedule.stored
        state.last = at
        state.last_job = job.hex()
        state.runs += 1
        state.recent.look_up(self.find_run, is_complete=True)
        state.recent.begin(state.last_job)

    def _refuse(self, schedule: Schedule) -> None:
        schedule.is_refused = True
        self._refused.append(schedule)

    def _decide(self, schedule: Schedule, wall: float) -> None:
        schedule.stored.decided = schedule.due
        schedule.stored.since = wall
        self._arm(schedule, wall)
        self._write(schedule)

    def _rearm_after_step_back(self, wall: float) -> None:
        """Compute the next run of schedules whose `since` is now in the future."""
        for schedule in self._schedules.values():
            is_due = schedule.is_refused or schedule.due <= wall
            if schedule.stored.since > wall and not is_due:
                self._arm(schedule, wall)

    def _arm(self, schedule: Schedule, wall: float) -> None:
        self._wall = max(self._wall, wall)
        latest = max(schedule.stored.since, schedule.stored.decided)
        if schedule.cron is None and latest > wall:
            schedule.move_back(latest - wall)
        schedule.due = inf if schedule.stored.request.paused else schedule.next(decided_until(schedule.stored, wall))
        if schedule.stored.decided - wall > MOST_AHEAD:
            schedule.due = min(schedule.due, self._right_at(schedule, wall))
        else:
            schedule.stored.right_at = None
        self._rearm(schedule)

    def _right_at(self, schedule: Schedule, wall: float) -> float:
        """Return the time from which on the wall clock counts as right, although runs were made for later times."""
        state = schedule.stored
        if state.right_at is None or state.right_at > wall + WRONG_FOR:
            state.right_at = wall + WRONG_FOR
            self._write(schedule)
        return inf if state.request.paused else state.right_at

    def _rearm(self, schedule: Schedule) -> None:
        self._upcoming.disarm(schedule)
        self._upcoming.arm(schedule, schedule.due)

    def _disarm(self, schedule: Schedule) -> None:
        self._upcoming.disarm(schedule)
        if schedule.is_refused:
            schedule.is_refused = False
            self._refused.remove(schedule)

    def _set_paused(self, name: str, paused: bool, now: float, wall: float) -> ScheduleView:
        self._check_clocks(now, wall)
        schedule = self.find(name)
        if schedule.stored.request.paused is not paused:
            self._change_pause(schedule, paused, wall)
        return schedule.view()

    def _change_pause(self, schedule: Schedule, paused: bool, wall: float, reason: str = "") -> None:
        state = schedule.stored
        state.request = msgspec.structs.replace(state.request, paused=paused)
        state.paused_reason = reason
        state.since = wall
        self._disarm(schedule)
        self._arm(schedule, wall)
        self._write(schedule)

    def _require_right(self, state: ScheduleState) -> None:
        """Raise OperationError if the owner may not call the service: no run would be made."""
        reason = self._forbidden(state.owner, state.request.service)
        if reason is not None:
            advice = f"give it the right `call` over '{state.request.service}', or delete the schedule and set it anew"
            raise OperationError(
                "forbidden", f'schedule "{state.request.name}" belongs to {state.owner}, and {reason}; {advice}'
            )

    def _write(self, schedule: Schedule) -> None:
        self._note(PREFIX + schedule.stored.request.name, msgspec.json.encode(schedule.stored).decode())
