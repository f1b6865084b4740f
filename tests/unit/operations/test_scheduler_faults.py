"""The scheduler with wrong clocks, crashes and refusals: each run is made once."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dragoman.operations.scheduler import MAX_RUNS_PER_TICK

from .two_clocks import DAY, HOUR, MINUTE, NOON, STARTED, World, clock

# ---------------------------------------------------------------- clocks


def test_after_downtime_what_was_missed_is_made_once() -> None:
    world = World()
    world.put(overlap=True)
    world.crash(down=5.5 * HOUR)
    world.tick()
    assert world.moments() == ["2024-05-15T13:00:00"]
    assert clock(world.scheduler.get("report").next) == "2024-05-15T18:00:00+00:00"
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
        world.scheduler.pause("report", world.now, world.wall)
        world.scheduler.resume("report", world.now, world.wall)
    else:
        world.put(overlap=True, cron="0 * * * *" if how == "put" else "0,1 * * * *")
    world.advance(1.5 * HOUR)
    assert world.moments() == []


def test_after_a_future_that_was_none_runs_go_on() -> None:
    """A clock that shows 2030 for a moment makes one run too early, and delays none."""
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
    """A machine whose clock shows 1970 until it is set: one run stood for three, and still does."""
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
    assert clock(world.scheduler.get("report").next) == "2024-05-15T16:00:00+00:00"


@pytest.mark.parametrize("days", [2, 400])
@pytest.mark.parametrize("how", ["run", "crash while it is ahead", "crash often", "put", "pause"])
def test_cron_goes_on_after_a_wall_clock_that_was_far_ahead(how: str, days: int) -> None:
    """A clock that was 400 days ahead for a minute stopped each schedule with a cron expression for 400 days."""
    world = World()
    world.put(overlap=True)
    world.advance(1.5 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00"]
    world.wall += days * DAY + 29 * MINUTE
    world.advance(2 * MINUTE)
    assert len(world.moments()) == 2  # what was missed, once; and the full hour
    if how == "crash while it is ahead":
        world.crash()
    world.wall -= days * DAY + 31 * MINUTE
    if how == "crash often":
        for _ in range(5):
            world.crash()
            world.advance(11 * MINUTE)
    else:
        if how == "put":
            world.put(overlap=True)
        world.advance(55 * MINUTE)
        if how == "pause":
            world.scheduler.pause("report", world.now, world.wall)
            world.scheduler.resume("report", world.now, world.wall)
    assert world.moments() == []
    assert [round(waits) for _, _, waits in world.scheduler.ahead(world.wall)] == [5 * MINUTE]
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T15:00:00"]
    assert list(world.scheduler.ahead(world.wall)) == []
    world.wall += days * DAY - 2 * HOUR
    world.advance(MINUTE)
    assert len(world.moments()) == 1, "the times of the wrong clock count when they come"


def test_cron_waits_for_the_times_of_runs_that_were_made_less_than_a_day_ahead() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += DAY - MINUTE
    world.advance(MINUTE)
    assert world.moments() == ["2024-05-15T13:00:00", "2024-05-16T12:00:00"]
    world.wall -= DAY
    world.advance(24 * HOUR)
    assert world.moments() == []
    world.advance(HOUR)
    assert world.moments() == ["2024-05-16T13:00:00"]


@pytest.mark.parametrize("back", [90.0, 100.0, HOUR, DAY])
def test_interval_goes_on_evenly_when_the_wall_clock_is_set_back(back: float) -> None:
    """R25: schedules with `every` stood still until the wall clock had caught up with their last run."""
    world = World()
    world.put(every=100.0, overlap=True)
    world.advance(230.0)
    assert len(world.moments()) == 2
    world.wall -= back
    world.advance(69.0)
    assert world.moments() == []
    world.advance(1.0)
    assert len(world.moments()) == 1
    world.advance(10 * MINUTE)
    assert len(world.moments()) == 6


@pytest.mark.parametrize("how", ["crash", "pause", "put", "put another", "cron before"])
def test_interval_costs_one_interval_at_most_when_the_wall_clock_is_set_back(how: str) -> None:
    """R25, in any order of events before the clock is read again."""
    world = World()
    world.put(overlap=True, **({"cron": "* * * * *"} if how == "cron before" else {"every": 100.0}))
    world.advance(230.0)
    world.moments()
    world.wall -= DAY
    if how == "crash":
        world.crash(down=5.0)
    elif how == "pause":
        world.scheduler.pause("report", world.now, world.wall)
        world.scheduler.resume("report", world.now, world.wall)
    else:
        world.put(overlap=True, every=100.0 if how == "put" else 50.0)
    world.advance(100.0)
    assert 1 <= len(world.moments()) <= 2
    world.crash()
    world.advance(100.0)
    assert 1 <= len(world.moments()) <= 2


def test_run_that_was_refused_before_the_wall_clock_was_set_back_is_made_once() -> None:
    world = World()
    world.put(every=100.0, overlap=True)
    world.is_open = False
    world.advance(100.5)
    world.wall -= DAY
    world.is_open = True
    world.advance(1.0)
    assert len(world.moments()) == 1
    world.advance(98.0)
    assert world.moments() == []


def test_clock_that_goes_back_a_little_makes_no_run_of_the_moment_it_was_put() -> None:
    world = World()
    world.put(every=600.0)
    world.wall -= 1.0
    world.advance(10.0)
    assert world.moments() == []


def test_clock_that_goes_back_a_little_loses_no_run_that_was_refused() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += 365 * DAY
    world.tick()
    world.wall = NOON
    world.advance(2 * HOUR - 1)
    world.moments()
    world.is_open = False
    world.advance(1.2)
    world.wall -= 0.1
    world.is_open = True
    world.advance(2.0)
    assert world.moments() == ["2024-05-15T14:00:00"]


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
    assert clock(world.scheduler.get("report").next) == "2024-05-15T14:00:00+00:00"


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
        world.scheduler.remove("report")
    elif how == "pause":
        world.scheduler.pause("report", world.now, world.wall)
    elif how == "put":
        world.put(overlap=True, payload="other")
    else:
        world.crash()
    world.is_open = True
    world.advance(2.0)
    assert len(world.moments()) == (how in ("put", "crash"))


def test_a_crowd_that_was_refused_comes_in_when_it_may() -> None:
    world = World()
    for number in range(MAX_RUNS_PER_TICK + 50):
        world.put(f"n{number}")
    world.is_open = False
    world.advance(HOUR + 5.0)
    world.is_open = True
    world.advance(1.0)
    assert len(set(world.moments())) == 1
    assert len(world.jobs) == MAX_RUNS_PER_TICK + 50


# ---------------------------------------------------------------- crashes


def test_schedules_are_restored_from_the_store() -> None:
    world = World()
    world.put("a", timezone="Europe/Berlin", payload="x", overlap=True)
    world.put("b", every=77.5, payload_base64="AP8=")
    world.put("c", paused=True)
    world.advance(2 * HOUR)
    before = world.scheduler.list()
    world.crash()
    assert world.scheduler.list() == before


def test_schedule_that_an_earlier_build_stored_is_loaded() -> None:
    """The request has the key `form`, as in stores of 2885e3f."""
    stored = '{"form":{"name":"a","service":"s","every":60.0},"start":%f,"since":%f,"decided":0.0,"runs":7}'
    world = World()
    assert world.scheduler.load({"cron/a": stored % (NOON, NOON)}, STARTED, NOON) == {}
    assert world.scheduler.get("a").runs == 7
    world.advance(60.0)
    assert world.notes["cron/a"].startswith('{"form":{"name":"a","service":"s","every":60.0},')


def test_stored_schedule_that_is_invalid_is_reported_and_the_others_run() -> None:
    world = World()
    world.put("a", overlap=True)
    world.put("b", overlap=True, timezone="Europe/Berlin")
    notes = {**world.notes, "cron/c": "{", "pause/a": "somebody"}
    notes["cron/b"] = notes["cron/b"].replace("Europe/Berlin", "Europe/Atlantis")
    fresh = World()
    problems = fresh.scheduler.load(notes, STARTED, NOON)
    assert problems.keys() == {"b", "c"}
    assert 'unknown time zone "Europe/Atlantis"' in problems["b"]
    fresh.advance(HOUR)
    assert [key for key, _ in fresh.made] == ["cron/a/2024-05-15T13:00:00+00:00"]


def test_crash_before_the_commit_makes_the_run_again_under_the_same_key() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1
    world.scheduler.tick(world.now, world.wall)
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
    """With right clocks, every scheduled time between two runs is covered by a run."""
    world = World()
    world.put(every=60.0, overlap=True)
    for step, seconds in steps:
        if step == "advance":
            world.advance(float(seconds))
        elif step == "crash":
            world.crash(down=float(seconds))
        elif step == "lose":  # what this turn does is never written
            world.wall += seconds
            world.scheduler.tick(world.now, world.wall)
            world.crash()
        else:
            world.is_open = step == "open"
    world.is_open = True
    world.advance(2.0)
    view = world.scheduler.get("report")
    assert view.runs == len(world.jobs)  # each under a key of its own, or the world had objected
    assert view.next is not None
    assert world.wall < view.next.timestamp() <= world.wall + 60.0
    assert (view.runs > 0) is (world.wall >= NOON + 60.0)


class ClocksGoWrong(RuleBasedStateMachine):
    """With any clocks, changes and losses: the world fails on a key that is used twice."""

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
        self.world.scheduler.tick(self.world.now, self.world.wall)
        self.world.crash()

    @rule(name=st.sampled_from(["hourly", "often", "once"]), paused=st.booleans())
    def somebody_pauses(self, name: str, paused: bool) -> None:
        (self.world.scheduler.pause if paused else self.world.scheduler.resume)(name, self.world.now, self.world.wall)
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
            for view in world.scheduler.list():
                assert view.paused is (view.next is None)
                assert view.next is None or view.next.timestamp() > world.wall
                assert view.every is None or view.next is None or view.next.timestamp() <= world.wall + view.every


TestClocksGoWrong = ClocksGoWrong.TestCase
TestClocksGoWrong.settings = settings(derandomize=True, deadline=None, max_examples=60, stateful_step_count=25)
