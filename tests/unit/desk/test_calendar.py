"""The calendar: what is made when, and only once, whatever clocks, crashes and refusals do to it."""

from __future__ import annotations

from datetime import datetime
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dragoman.core.model import JobId
from dragoman.desk import calendar
from dragoman.desk.calendar import MOST, MOST_AT_ONCE, MOST_PAYLOAD, Calendar
from dragoman.desk.forms import CronForm, CronView, Objection

NOON = datetime.fromisoformat("2024-05-15T12:00:00+00:00").timestamp()
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
STARTED = 5_000.0  # the clock that jobs live by, at noon


class World:
    """A broker that remembers what it was asked for, a diary that commits at the end of a turn, and two clocks."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobId] = {}  # by key, as committed
        self.notes: dict[str, str] = {}
        self.made: list[tuple[str, bytes]] = []
        self.over: set[JobId] = set()
        self.is_open = True  # whether runs are let in
        self.now, self.wall = STARTED, NOON
        self._pending_jobs: dict[str, JobId] = {}
        self._pending_notes: list[tuple[str, str | None]] = []
        self.calendar = Calendar(self._submit, self._note, self._is_over)

    def _submit(self, form: CronForm, payload: bytes, key: str, now: float) -> JobId | None:
        assert now == self.now
        assert key.startswith(f"cron/{form.name}/")
        assert key not in self.jobs, f"{key} is made twice"
        assert key not in self._pending_jobs, f"{key} is made twice"
        if not self.is_open:
            return None
        job = JobId((len(self.jobs) + len(self._pending_jobs) + 1).to_bytes(16))
        self._pending_jobs[key] = job
        self.made.append((key, payload))
        return job

    def _note(self, key: str, value: str | None) -> None:
        self._pending_notes.append((key, value))

    def _is_over(self, job: JobId) -> bool:
        return job in self.over

    def commit(self) -> None:
        self.jobs |= self._pending_jobs
        self._pending_jobs = {}
        for key, value in self._pending_notes:
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = value
        self._pending_notes = []

    def crash(self, down: float = 0.0) -> None:
        """What was not committed is gone. The clock that jobs live by begins anew."""
        self._pending_jobs, self._pending_notes = {}, []
        self.now, self.wall = STARTED, self.wall + down
        self.calendar = Calendar(self._submit, self._note, self._is_over)
        assert self.calendar.load(self.notes, self.wall) == {}

    def finish_all(self) -> None:
        self.over |= set(self.jobs.values()) | set(self._pending_jobs.values())

    def put(self, name: str = "report", **form: object) -> CronView:
        if "every" not in form:
            form.setdefault("cron", "0 * * * *")
        view = self.calendar.put(CronForm(name=name, service="s", **form), self.wall)  # type: ignore[arg-type]
        self.commit()
        return view

    def tick(self) -> float:
        due = self.calendar.tick(self.now, self.wall)
        self.commit()
        return due

    def advance(self, seconds: float) -> None:
        """Let time pass, ticking when it was asked for."""
        end, start = self.now + seconds, self.now
        wall = self.wall
        while (due := self.tick()) <= end:
            self.now = max(due, self.now)
            self.wall = wall + self.now - start
        self.now, self.wall = end, wall + seconds
        self.tick()

    def moments(self) -> list[str]:
        """The scheduled moments of what was made since last asked."""
        made, self.made = self.made, []
        return [key.rpartition("/")[2].removesuffix("+00:00") for key, _ in made]


def clock(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment is not None else None


# ---------------------------------------------------------------- as it should be


def test_runs_are_made_when_they_are_due() -> None:
    world = World()
    view = world.put(overlap=True)
    assert clock(view.next) == "2024-05-15T13:00:00+00:00"
    world.advance(HOUR - 1)
    assert world.moments() == []
    world.advance(2 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00", "2024-05-15T14:00:00"]


def test_a_run_has_the_form_the_payload_and_a_key_with_its_moment() -> None:
    world = World()
    asked: list[tuple[CronForm, bytes, str, float]] = []

    def submit(form: CronForm, payload: bytes, key: str, now: float) -> JobId:
        asked.append((form, payload, key, now))
        return JobId(b"j" * 16)

    world.calendar = Calendar(submit, lambda key, value: None, lambda job: True)
    form = CronForm(name="report", service="s", cron="0 * * * *", payload_base64="AP8=", priority=7)
    world.calendar.put(form, NOON)
    world.calendar.tick(STARTED, NOON + HOUR)
    assert asked == [(form, b"\x00\xff", "cron/report/2024-05-15T13:00:00+00:00", STARTED)]


def test_view_tells_what_was_and_what_will_be() -> None:
    world = World()
    world.put(timezone="Europe/Berlin")
    world.advance(HOUR)
    view = world.calendar.get("report")
    assert (clock(view.last), clock(view.next)) == ("2024-05-15T15:00:00+02:00", "2024-05-15T16:00:00+02:00")
    assert view.last_job == JobId((1).to_bytes(16)).hex()
    assert (view.name, view.service, view.cron, view.every) == ("report", "s", "0 * * * *", None)
    assert (view.timezone, view.paused, view.overlap, view.runs, view.skipped) == ("Europe/Berlin", False, False, 1, 0)


def test_moments_are_those_of_the_zone() -> None:
    world = World()
    world.put(cron="30 2 * * *", timezone="America/New_York")
    world.advance(DAY)
    assert world.moments() == ["2024-05-16T06:30:00"]


def test_interval_keeps_to_its_grid_however_late_the_ticks_are() -> None:
    world = World()
    world.put(every=90.0, overlap=True)
    world.wall += 95.0
    world.tick()
    world.wall += 88.5
    world.tick()
    world.wall += 86.5
    world.tick()
    assert world.moments() == ["2024-05-15T12:01:30", "2024-05-15T12:03:00", "2024-05-15T12:04:30"]


def test_interval_of_odd_length_from_an_odd_moment_never_drifts() -> None:
    world = World()
    world.wall = start = NOON + 0.123457
    world.put(every=1.1, overlap=True)
    world.advance(1100.5)
    made = [datetime.fromisoformat(moment + "+00:00").timestamp() for moment in world.moments()]
    assert made == pytest.approx([start + 1.1 * number for number in range(1, 1001)], abs=1e-5)


def test_tick_says_when_the_next_is_due_but_never_more_than_a_minute_ahead() -> None:
    world = World()
    assert world.tick() == inf
    world.put(every=90.0)
    assert world.tick() == STARTED + 60.0
    world.now, world.wall = world.now + 60.0, world.wall + 60.0
    assert world.tick() == STARTED + 90.0


def test_a_crowd_is_made_a_few_at_a_time() -> None:
    world = World()
    for number in range(MOST_AT_ONCE * 2 + 1):
        world.put(f"n{number}")
    world.wall += HOUR
    assert world.tick() == world.now
    assert len(world.moments()) == MOST_AT_ONCE
    assert world.tick() == world.now
    assert world.tick() == world.now + 60.0
    assert len(world.moments()) == MOST_AT_ONCE + 1


def test_list_is_in_the_order_of_names() -> None:
    world = World()
    for name in ("b", "c", "a"):
        world.put(name)
    assert [view.name for view in world.calendar.list()] == ["a", "b", "c"]


def test_removed_one_runs_no_more_and_leaves_no_note() -> None:
    world = World()
    world.put()
    world.calendar.remove("report")
    world.commit()
    assert world.tick() == inf
    world.advance(2 * HOUR)
    assert (world.moments(), world.notes, world.calendar.list()) == ([], {}, [])


# ---------------------------------------------------------------- clocks


def test_after_downtime_what_was_missed_is_made_once() -> None:
    world = World()
    world.put(overlap=True)
    world.crash(down=5.5 * HOUR)
    world.tick()
    assert world.moments() == ["2024-05-15T13:00:00"]
    assert clock(world.calendar.get("report").next) == "2024-05-15T18:00:00+00:00"
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T18:00:00"]


def test_wall_clock_that_jumps_ahead_makes_what_was_missed_once() -> None:
    world = World()
    world.put(every=10.0, overlap=True)
    world.wall += HOUR
    world.tick()
    assert world.moments() == ["2024-05-15T12:00:10"]
    world.advance(10.0)
    assert world.moments() == ["2024-05-15T13:00:10"]


def test_wall_clock_that_goes_back_repeats_nothing() -> None:
    world = World()
    world.put(overlap=True)
    world.advance(2 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00", "2024-05-15T14:00:00"]
    world.wall -= 1.5 * HOUR
    world.advance(1.75 * HOUR)
    assert world.moments() == []
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T15:00:00"]


@pytest.mark.parametrize("how", ["crash", "pause", "put", "put another schedule"])
def test_wall_clock_that_goes_back_repeats_nothing_whatever_happens_meanwhile(how: str) -> None:
    world = World()
    world.put(overlap=True)
    world.advance(2 * HOUR)
    world.moments()
    world.wall -= 1.5 * HOUR
    if how == "crash":
        world.crash()
    elif how == "pause":
        world.calendar.pause("report", world.wall)
        world.calendar.resume("report", world.wall)
    else:
        world.put(overlap=True, cron="0 * * * *" if how == "put" else "0,1 * * * *")
    world.advance(1.5 * HOUR)
    assert world.moments() == []


def test_after_a_future_that_was_none_runs_go_on() -> None:
    """A clock that shows 2030 for a moment makes one run before its time, and holds none up."""
    world = World()
    world.put(overlap=True)
    world.wall += 6 * 365 * DAY
    world.tick()
    world.wall -= 6 * 365 * DAY
    world.advance(2 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00", "2024-05-15T14:00:00"]


@pytest.mark.parametrize("schedule", [{"cron": "0 * * * *"}, {"every": HOUR}])
def test_what_was_put_in_a_future_that_was_none_runs_too(schedule: dict[str, object]) -> None:
    world = World()
    world.wall += 365 * DAY
    world.put(overlap=True, **schedule)
    world.wall -= 365 * DAY
    world.advance(2 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00", "2024-05-15T14:00:00"]


def test_a_past_that_was_none_makes_nothing_again() -> None:
    """A machine that starts in 1970 until it has asked for the time: one run stood for three, and still does."""
    world = World()
    world.put(overlap=True)
    world.crash(down=3.5 * HOUR)
    world.tick()
    assert world.moments() == ["2024-05-15T13:00:00"]
    right, world.wall = world.wall, 10.0
    world.crash()
    world.advance(20.0)
    world.wall = right + 20.0
    world.advance(MINUTE)
    assert world.moments() == []
    assert clock(world.calendar.get("report").next) == "2024-05-15T16:00:00+00:00"


# ---------------------------------------------------------------- overlap


def test_run_is_skipped_while_the_last_one_has_not_ended() -> None:
    world = World()
    world.put()
    world.advance(3 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00"]
    view = world.calendar.get("report")
    assert (view.runs, view.skipped, clock(view.last)) == (1, 2, "2024-05-15T13:00:00+00:00")
    world.finish_all()
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T16:00:00"]


def test_a_skipped_run_is_not_made_later() -> None:
    world = World()
    world.put()
    world.advance(2 * HOUR)
    world.finish_all()
    world.moments()
    world.advance(HOUR / 2)
    world.crash()
    world.tick()
    assert world.moments() == []
    assert world.calendar.get("report").skipped == 1


def test_with_overlap_it_is_made_anyway() -> None:
    world = World()
    world.put(overlap=True)
    world.advance(3 * HOUR)
    assert len(world.moments()) == 3
    assert world.calendar.get("report").skipped == 0


def test_a_new_schedule_knows_the_job_of_the_old_one() -> None:
    world = World()
    world.put()
    world.advance(HOUR)
    view = world.put(cron="*/30 * * * *")
    assert view.runs == 0
    world.moments()
    world.advance(HOUR / 2)
    assert world.moments() == []
    assert world.calendar.get("report").skipped == 1


# ---------------------------------------------------------------- changing a definition


def test_same_schedule_keeps_grid_and_counts() -> None:
    world = World()
    world.put(every=600.0, overlap=True)
    world.advance(900.0)
    view = world.put(every=600.0, overlap=True, payload="other")
    assert (view.runs, clock(view.next)) == (1, "2024-05-15T12:20:00+00:00")
    world.advance(300.0)
    assert [payload for _, payload in world.made] == [b"", b"other"]


def test_another_schedule_begins_anew() -> None:
    world = World()
    world.put(every=600.0, overlap=True)
    world.advance(900.0)
    view = world.put(every=1200.0, overlap=True)
    assert (view.runs, clock(view.next)) == (0, "2024-05-15T12:35:00+00:00")


def test_run_that_is_due_outlives_a_new_definition() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1
    world.put(overlap=True, payload="other")
    world.tick()
    assert world.made == [("cron/report/2024-05-15T13:00:00+00:00", b"other")]


def test_definition_that_is_refused_leaves_the_old_one_alone() -> None:
    world = World()
    world.put(overlap=True)
    with pytest.raises(Objection):
        world.put(overlap=True, cron="61 * * * *")
    world.advance(HOUR)
    assert len(world.moments()) == 1


# ---------------------------------------------------------------- pausing


def test_paused_one_makes_nothing_and_catches_up_on_nothing() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1  # one is due
    view = world.calendar.pause("report", world.wall)
    world.commit()
    assert (view.paused, view.next) == (True, None)
    assert world.tick() == inf
    world.advance(3 * HOUR)
    world.crash(down=HOUR / 4)
    assert world.calendar.get("report").paused
    view = world.calendar.resume("report", world.wall)
    world.commit()
    assert (view.paused, clock(view.next)) == (False, "2024-05-15T17:00:00+00:00")
    world.tick()
    assert world.moments() == []
    world.crash()
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T17:00:00"]


def test_pausing_and_resuming_twice_changes_nothing() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1
    assert not world.calendar.resume("report", world.wall).paused
    world.tick()
    assert len(world.moments()) == 1  # what was due when it was resumed for nothing
    world.calendar.pause("report", world.wall)
    assert world.calendar.pause("report", world.wall).paused


def test_it_may_be_put_paused_and_put_to_go_on() -> None:
    world = World()
    world.put(overlap=True, paused=True)
    world.advance(2 * HOUR + 1)
    assert world.moments() == []
    assert clock(world.put(overlap=True).next) == "2024-05-15T15:00:00+00:00"
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T15:00:00"]


def test_resumed_interval_is_on_its_old_grid() -> None:
    world = World()
    world.put(every=600.0)
    world.calendar.pause("report", world.wall)
    world.advance(1700.0)
    assert clock(world.calendar.resume("report", world.wall).next) == "2024-05-15T12:30:00+00:00"


# ---------------------------------------------------------------- refusals


def test_refused_run_is_tried_again_each_second_and_is_not_lost() -> None:
    world = World()
    world.put(overlap=True)
    world.is_open = False
    world.wall += HOUR
    assert world.tick() == world.now + 1.0
    world.now, world.wall = world.now + 0.5, world.wall + 0.5
    world.is_open = True
    assert world.tick() == world.now + 0.5  # not yet
    assert world.moments() == []
    world.now, world.wall = world.now + 0.5, world.wall + 0.5
    world.tick()
    assert world.moments() == ["2024-05-15T13:00:00"]
    assert clock(world.calendar.get("report").next) == "2024-05-15T14:00:00+00:00"


def test_run_that_is_refused_for_long_stands_for_those_after_it() -> None:
    world = World()
    world.put(overlap=True)
    world.is_open = False
    world.advance(3.5 * HOUR)
    world.is_open = True
    world.advance(2.0)
    assert world.moments() == ["2024-05-15T13:00:00"]
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T16:00:00"]


@pytest.mark.parametrize("how", ["remove", "pause", "put", "crash"])
def test_refused_run_follows_its_definition(how: str) -> None:
    world = World()
    world.put(overlap=True)
    world.is_open = False
    world.wall += HOUR
    world.tick()
    if how == "remove":
        world.calendar.remove("report")
    elif how == "pause":
        world.calendar.pause("report", world.wall)
    elif how == "put":
        world.put(overlap=True, payload="other")
    else:
        world.crash()
    world.is_open = True
    world.advance(2.0)
    assert len(world.moments()) == (how in ("put", "crash"))


def test_a_crowd_that_was_refused_comes_in_when_it_may() -> None:
    world = World()
    for number in range(MOST_AT_ONCE + 50):
        world.put(f"n{number}")
    world.is_open = False
    world.advance(HOUR + 5.0)
    world.is_open = True
    world.advance(1.0)
    assert len(set(world.moments())) == 1
    assert len(world.jobs) == MOST_AT_ONCE + 50


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"cron": None}, "say one of cron and every, and not both"),
        ({"cron": "* * * * *", "every": 5.0}, "say one of cron and every, and not both"),
        ({"cron": "61 * * * *"}, '"61" is no number from 0 to 59'),
        ({"cron": "0 0 30 2 *"}, '"0 0 30 2 *" never comes'),
        ({"timezone": "Mars/Olympus"}, '"Mars/Olympus" is no time zone'),
        ({"every": 5.0, "timezone": "Mars/Olympus"}, '"Mars/Olympus" is no time zone'),
        ({"payload": "x", "payload_base64": "eA=="}, "say one of payload and payload_base64, not both"),
        ({"payload_base64": "e"}, "payload_base64 is not base64"),
        ({"payload_base64": "e A=="}, "payload_base64 is not base64"),
        ({"payload_base64": "é"}, "payload_base64 is not base64"),
        ({"payload": "x" * (MOST_PAYLOAD + 1)}, "at most 65536 bytes, not 65537"),
        ({"name": "a\nb"}, "a recurring job's name is 1 to 128 bytes without control characters"),
        ({"name": "é" * 65}, "a recurring job's name is 1 to 128 bytes"),
    ],
)
def test_form_that_cannot_be_is_refused(form: dict[str, object], sentence: str) -> None:
    world = World()
    with pytest.raises(Objection) as caught:
        world.put(**form)  # type: ignore[arg-type]
    assert caught.value.problem.kind == "invalid"
    assert sentence in caught.value.problem.detail
    assert (world.calendar.list(), world.notes) == ([], {})


def test_service_name_is_looked_at_when_it_is_put() -> None:
    with pytest.raises(Objection, match="a service name is"):
        World().calendar.put(CronForm(name="a", service="a\0", every=5.0), NOON)


@pytest.mark.parametrize("ask", ["get", "remove", "pause", "resume"])
def test_unknown_name_is_not_found(ask: str) -> None:
    world = World()
    arguments = ("nobody", NOON) if ask in ("pause", "resume") else ("nobody",)
    with pytest.raises(Objection, match='no recurring job is called "nobody"') as caught:
        getattr(world.calendar, ask)(*arguments)
    assert caught.value.problem.kind == "not found"


def test_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST == 10_000
    monkeypatch.setattr(calendar, "MOST", 3)
    world = World()
    for number in range(3):
        world.put(f"n{number}")
    with pytest.raises(Objection, match="there are 3 recurring jobs already") as caught:
        world.put("n3")
    assert caught.value.problem.kind == "busy"
    world.put("n1", payload="changed")
    world.calendar.remove("n0")
    world.put("n3")


# ---------------------------------------------------------------- crashes


def test_everything_comes_back_from_the_notes() -> None:
    world = World()
    world.put("a", timezone="Europe/Berlin", payload="x", overlap=True)
    world.put("b", every=77.5, payload_base64="AP8=")
    world.put("c", paused=True)
    world.advance(2 * HOUR)
    before = world.calendar.list()
    world.crash()
    assert world.calendar.list() == before


def test_note_that_cannot_be_read_is_given_back_and_holds_nothing_up() -> None:
    world = World()
    world.put("a", overlap=True)
    world.put("b", overlap=True, timezone="Europe/Berlin")
    notes = {**world.notes, "cron/c": "{", "pause/a": "somebody"}
    notes["cron/b"] = notes["cron/b"].replace("Europe/Berlin", "Europe/Atlantis")
    fresh = World()
    problems = fresh.calendar.load(notes, NOON)
    assert problems.keys() == {"b", "c"}
    assert '"Europe/Atlantis" is no time zone' in problems["b"]
    fresh.advance(HOUR)
    assert [key for key, _ in fresh.made] == ["cron/a/2024-05-15T13:00:00+00:00"]


def test_crash_before_the_commit_makes_the_run_again_under_the_same_key() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1
    world.calendar.tick(world.now, world.wall)
    assert world.moments() == ["2024-05-15T13:00:00"]
    world.crash(down=2 * HOUR)
    world.tick()
    assert world.moments() == ["2024-05-15T13:00:00"]
    assert list(world.jobs) == ["cron/report/2024-05-15T13:00:00+00:00"]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["advance", "crash", "lose", "shut", "open"]), st.integers(1, 400)), max_size=30
    )
)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_no_run_is_made_twice_and_none_is_lost(steps: list[tuple[str, int]]) -> None:
    """As long as clocks are right: between two runs there is no scheduled moment at which nothing stood for it."""
    world = World()
    world.put(every=60.0, overlap=True)
    for step, seconds in steps:
        if step == "advance":
            world.advance(float(seconds))
        elif step == "crash":
            world.crash(down=float(seconds))
        elif step == "lose":  # what this turn does is never written
            world.wall += seconds
            world.calendar.tick(world.now, world.wall)
            world.crash()
        else:
            world.is_open = step == "open"
    world.is_open = True
    world.advance(2.0)
    view = world.calendar.get("report")
    assert view.runs == len(world.jobs)  # each under a key of its own, or the world had objected
    assert view.next is not None
    assert world.wall < view.next.timestamp() <= world.wall + 60.0
    assert (view.runs > 0) is (world.wall >= NOON + 60.0)


class ClocksGoWrong(RuleBasedStateMachine):
    """Whatever clocks show, whatever is changed and lost: the world objects to a key that is made twice."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.world.put("hourly", overlap=True)
        self.world.put("often", every=900.0, overlap=True)
        self.world.put("once", every=1800.0)

    @rule(seconds=st.integers(1, 7_200))
    def time_passes(self, seconds: int) -> None:
        self.world.advance(float(seconds))

    @rule(seconds=st.sampled_from([-86_400, -7_200, -1_000, -1, 1, 1_000, 7_200, 86_400]))
    def clock_is_set(self, seconds: int) -> None:
        self.world.wall += seconds

    @rule(down=st.integers(0, 7_200))
    def broker_crashes(self, down: int) -> None:
        self.world.crash(down=float(down))

    @rule(seconds=st.integers(1, 7_200))
    def turn_is_lost(self, seconds: int) -> None:
        self.world.wall += seconds
        self.world.calendar.tick(self.world.now, self.world.wall)
        self.world.crash()

    @rule(name=st.sampled_from(["hourly", "often", "once"]), paused=st.booleans())
    def somebody_pauses(self, name: str, paused: bool) -> None:
        (self.world.calendar.pause if paused else self.world.calendar.resume)(name, self.world.wall)
        self.world.commit()

    @rule(cron=st.sampled_from(["0 * * * *", "*/30 * * * *"]))
    def somebody_changes(self, cron: str) -> None:
        self.world.put("hourly", overlap=True, cron=cron)

    @rule(is_open=st.booleans())
    def broker_is_full(self, is_open: bool) -> None:
        self.world.is_open = is_open

    @rule()
    def jobs_end(self) -> None:
        self.world.finish_all()

    @invariant()
    def next_ones_are_in_the_future(self) -> None:
        world = self.world
        due = world.tick()
        assert due > world.now
        assert due <= world.now + 60.0 or due == inf
        if world.is_open:
            world.advance(1.0)
            for view in world.calendar.list():
                assert view.paused is (view.next is None)
                assert view.next is None or view.next.timestamp() > world.wall


TestClocksGoWrong = ClocksGoWrong.TestCase
TestClocksGoWrong.settings = settings(derandomize=True, deadline=None, max_examples=60, stateful_step_count=25)
