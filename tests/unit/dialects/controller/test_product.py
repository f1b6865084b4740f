"""Every state of a worker × every pulse, and × every response to an open exchange: two tables of reactions.

A reaction is written `reply; state; sent; notes`: the reply to the pulse (`-` for none), the worker's state in the
broker afterwards, the message sent on the worker's socket, and other effects: a job's outcome, `again` for a retry,
`late` for a counted late result, `bad` for a counted bad message.
"""

from __future__ import annotations

import pytest

from case_tables import check_every_row

from .world import ROOT, Call, Caller, Fellow, World, editions

FOREIGN = 4711
# What a worker may be at. Its previous task, if it has had one, is task 1.
STATES = (
    "unknown",
    "starting",
    "idle",
    "given",  # its SET_TASK is not answered
    "busy",
    "fetched",  # its FETCH is not answered
    "given, cancelled",
    "cancelled, late fetch",
    "resting",  # it said BUSY
    "draining",
    "asked",  # its lease is over, and its GET_STATUS not answered
)
OPEN = ("starting", "given", "fetched", "given, cancelled", "cancelled, late fetch", "asked")


class Scene:
    def __init__(self, state: str, edition: str) -> None:
        self.world = world = World()
        self.caller = Caller()
        self.open: Call | None = None
        self.previous, self.own = 0, 0
        if state == "starting":
            self.fellow = world.register(edition)
            world.wait(0.05)
            self.open = self.fellow.call("GET_STATUS")
            world.wait(0.5)
            return
        self.fellow, _, first = world.busy(edition)
        self.previous = first.task
        self.fellow.finish(first)
        world.wait(1)
        self._go(state)
        world.wait(0.01)
        assert self.fellow.calls() == []

    def _go(self, state: str) -> None:
        world, fellow = self.world, self.fellow
        if state == "unknown":
            fellow.pulse("SHUTDOWN")
        elif state == "asked":
            world.wait(61.5)
            self.open = fellow.call("GET_STATUS")
        if state in ("unknown", "idle", "asked"):
            return
        self.caller = world.submit(attempts=2)
        task = fellow.call("SET_TASK")
        self.own = task.task
        if state in ("given", "given, cancelled"):
            self.open = task
        elif state == "resting":
            task.answer("BUSY", self.previous)
            return
        else:
            task.answer("OK", task.task)
        if state == "fetched":
            fellow.fetch_me(self.own)
            self.open = fellow.call("FETCH")
        elif state == "draining":
            world.broker.availability.drain(fellow.remote.worker, world.now)
            world.run_once()
        elif state == "given, cancelled":
            world.withdraw(self.caller)
        elif state == "cancelled, late fetch":
            world.withdraw(self.caller)
            fellow.fetch_me(self.own)
            self.open = fellow.call("FETCH")
            self.previous, self.own = self.own, 0
        if state == "given, cancelled":
            self.previous, self.own = self.own, 0

    def pulse(self, word: str) -> str:
        kind, _, about = word.partition(" ")
        task = {"": 0, "0": 0, "own": self.own or self.previous, "previous": self.previous, "foreign": FOREIGN}
        number = 9 if kind == "nonsense" else kind
        address = ROOT if about == "by another" else self.fellow.address
        return self.fellow.pulse(number, task.get(about, 0), address=address).error

    def react(self, word: str) -> str:
        world, counters = self.world, self.world.counters
        ended, late, waiting = dict(counters.ended), counters.late_results, len(self.caller.told)
        spent = self.caller.job.spent if self.caller.job is not None else 0
        told = "-"
        if word.startswith("answer "):
            assert self.open is not None
            error = word.removeprefix("answer ")
            if error == "cut":
                self.open.cut()
            else:
                with_task = FOREIGN if error == "foreign" else self.open.task or self.own
                code = 99 if error == "unknown" else "OK" if error == "foreign" else error
                self.open.answer(code, with_task, b"" if error == "unknown" else b"extra")
        else:
            told = self.pulse(word)
        said = " ".join(call.word for call in self.fellow.calls())
        notes = [str(outcome) for outcome, count in counters.ended.items() if count > ended[outcome]]
        assert len(self.caller.told) - waiting == len(notes)
        job = self.caller.job
        notes += ["again"] * (job is not None and job.outcome is None and job.spent > spent)
        notes += ["late"] * (counters.late_results - late)
        notes += ["bad"] * sum(world.bad.values())
        return "; ".join(filter(None, (told, self.fellow.state, said, " ".join(notes))))


PULSES = (
    "OK 0",
    "OK own",
    "OK previous",
    "OK foreign",
    "OK by another",
    "FETCH_ME 0",
    "FETCH_ME own",
    "FETCH_ME previous",
    "FETCH_ME foreign",
    "SHUTDOWN",
    "nonsense",
)
ANSWERS = ("OK", "foreign", "NO_FETCH", "BUSY", "TASK_FAILED", "FAILED", "unknown", "cut")

REACTIONS = """
unknown
    OK 0                 UNKNOWN_ID; gone
    OK own               UNKNOWN_ID; gone
    OK previous          UNKNOWN_ID; gone
    OK foreign           UNKNOWN_ID; gone
    OK by another        UNKNOWN_ID; gone
    FETCH_ME 0           UNKNOWN_ID; gone
    FETCH_ME own         UNKNOWN_ID; gone
    FETCH_ME previous    UNKNOWN_ID; gone
    FETCH_ME foreign     UNKNOWN_ID; gone
    SHUTDOWN             UNKNOWN_ID; gone
    nonsense             UNKNOWN_TYPE; gone; bad
starting
    OK 0                 OK; idle
    OK own               OK; idle
    OK previous          OK; idle
    OK foreign           OK; idle
    OK by another        UNKNOWN_ID; starting
    FETCH_ME 0           OK; idle; FETCH
    FETCH_ME own         OK; idle; FETCH
    FETCH_ME previous    OK; idle; FETCH
    FETCH_ME foreign     OK; idle; FETCH
    SHUTDOWN             OK; gone
    nonsense             UNKNOWN_TYPE; starting; bad
    answer OK            -; idle
    answer foreign       -; idle
    answer NO_FETCH      -; idle
    answer BUSY          -; idle
    answer TASK_FAILED   -; idle
    answer FAILED        -; gone
    answer unknown       -; gone
    answer cut           -; starting
idle
    OK 0                 OK; idle
    OK own               OK; idle
    OK previous          OK; idle
    OK foreign           OK; idle; GET_STATUS
    OK by another        UNKNOWN_ID; idle
    FETCH_ME 0           OK; idle; FETCH
    FETCH_ME own         OK; idle; FETCH
    FETCH_ME previous    OK; idle; FETCH
    FETCH_ME foreign     OK; idle; FETCH
    SHUTDOWN             OK; gone
    nonsense             UNKNOWN_TYPE; idle; bad
given
    OK 0                 OK; busy
    OK own               OK; busy
    OK previous          OK; busy
    OK foreign           OK; busy
    OK by another        UNKNOWN_ID; busy
    FETCH_ME 0           OK; busy
    FETCH_ME own         OK; busy
    FETCH_ME previous    OK; busy
    FETCH_ME foreign     OK; busy
    SHUTDOWN             OK; gone; again
    nonsense             UNKNOWN_TYPE; busy; bad
    answer OK            -; busy
    answer foreign       -; busy
    answer NO_FETCH      -; gone; again
    answer BUSY          -; backing off
    answer TASK_FAILED   -; idle; again
    answer FAILED        -; gone; again
    answer unknown       -; gone; again
    answer cut           -; gone; again
busy
    OK 0                 OK; busy
    OK own               OK; busy
    OK previous          OK; busy
    OK foreign           OK; busy; GET_STATUS
    OK by another        UNKNOWN_ID; busy
    FETCH_ME 0           OK; busy; FETCH
    FETCH_ME own         OK; busy; FETCH
    FETCH_ME previous    OK; busy
    FETCH_ME foreign     OK; busy; FETCH
    SHUTDOWN             OK; gone; again
    nonsense             UNKNOWN_TYPE; busy; bad
fetched
    OK 0                 OK; busy
    OK own               OK; busy
    OK previous          OK; busy
    OK foreign           OK; busy
    OK by another        UNKNOWN_ID; busy
    FETCH_ME 0           OK; busy
    FETCH_ME own         OK; busy
    FETCH_ME previous    OK; busy
    FETCH_ME foreign     OK; busy
    SHUTDOWN             OK; gone; again
    nonsense             UNKNOWN_TYPE; busy; bad
    answer OK            -; idle; done
    answer foreign       -; gone; again late
    answer NO_FETCH      -; busy
    answer BUSY          -; busy
    answer TASK_FAILED   -; idle; again
    answer FAILED        -; gone; again
    answer unknown       -; gone; again
    answer cut           -; busy; FETCH
given, cancelled
    OK 0                 OK; stuck
    OK own               OK; stuck
    OK previous          OK; stuck
    OK foreign           OK; stuck
    OK by another        UNKNOWN_ID; stuck
    FETCH_ME 0           OK; stuck
    FETCH_ME own         OK; stuck
    FETCH_ME previous    OK; stuck
    FETCH_ME foreign     OK; stuck
    SHUTDOWN             OK; gone
    nonsense             UNKNOWN_TYPE; stuck; bad
    answer OK            -; idle
    answer foreign       -; idle
    answer NO_FETCH      -; gone
    answer BUSY          -; backing off
    answer TASK_FAILED   -; idle
    answer FAILED        -; gone
    answer unknown       -; gone
    answer cut           -; gone
cancelled, late fetch
    OK 0                 OK; idle
    OK own               OK; idle
    OK previous          OK; idle
    OK foreign           OK; idle
    OK by another        UNKNOWN_ID; idle
    FETCH_ME 0           OK; idle
    FETCH_ME own         OK; idle
    FETCH_ME previous    OK; idle
    FETCH_ME foreign     OK; idle
    SHUTDOWN             OK; gone
    nonsense             UNKNOWN_TYPE; idle; bad
    answer OK            -; idle; late
    answer foreign       -; gone; late
    answer NO_FETCH      -; idle
    answer BUSY          -; idle
    answer TASK_FAILED   -; idle
    answer FAILED        -; gone
    answer unknown       -; gone
    answer cut           -; idle; FETCH
resting
    OK 0                 OK; busy; SET_TASK
    OK own               OK; backing off; GET_STATUS
    OK previous          OK; backing off
    OK foreign           OK; backing off; GET_STATUS
    OK by another        UNKNOWN_ID; backing off
    FETCH_ME 0           OK; backing off; FETCH
    FETCH_ME own         OK; backing off; FETCH
    FETCH_ME previous    OK; backing off; FETCH
    FETCH_ME foreign     OK; backing off; FETCH
    SHUTDOWN             OK; gone
    nonsense             UNKNOWN_TYPE; backing off; bad
draining
    OK 0                 OK; draining
    OK own               OK; draining
    OK previous          OK; draining
    OK foreign           OK; draining; GET_STATUS
    OK by another        UNKNOWN_ID; draining
    FETCH_ME 0           OK; draining; FETCH
    FETCH_ME own         OK; draining; FETCH
    FETCH_ME previous    OK; draining
    FETCH_ME foreign     OK; draining; FETCH
    SHUTDOWN             OK; gone; again
    nonsense             UNKNOWN_TYPE; draining; bad
asked
    OK 0                 OK; idle
    OK own               OK; idle
    OK previous          OK; idle
    OK foreign           OK; idle
    OK by another        UNKNOWN_ID; idle
    FETCH_ME 0           OK; idle; FETCH
    FETCH_ME own         OK; idle; FETCH
    FETCH_ME previous    OK; idle; FETCH
    FETCH_ME foreign     OK; idle; FETCH
    SHUTDOWN             OK; gone
    nonsense             UNKNOWN_TYPE; idle; bad
    answer OK            -; idle
    answer foreign       -; idle
    answer NO_FETCH      -; idle
    answer BUSY          -; idle
    answer TASK_FAILED   -; idle
    answer FAILED        -; gone
    answer unknown       -; gone
    answer cut           -; gone
"""


def read_table(text: str) -> dict[tuple[str, str], str]:
    """Parse a table: a state, and below it, indented, each message and its reaction."""
    found: dict[tuple[str, str], str] = {}
    state = ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            found[state, line[4:24].rstrip()] = line[25:]
        else:
            state = line
    return found


TABLE = read_table(REACTIONS)

PULSED = [(state, word) for word in PULSES for state in STATES]


@editions
def test_every_pulse_in_every_state_has_its_reaction(edition: str) -> None:
    def check(state: str, word: str) -> None:
        assert Scene(state, edition).react(word) == TABLE[state, word]

    check_every_row(check, PULSED)


@editions
def test_every_answer_in_every_state_has_its_reaction(edition: str) -> None:
    def check(state: str, error: str) -> None:
        assert Scene(state, edition).react(f"answer {error}") == TABLE[state, f"answer {error}"]

    check_every_row(check, [(state, error) for error in ANSWERS for state in OPEN])


@editions
def test_whatever_was_said_while_a_job_waits_nobody_gets_two_and_nothing_stays_for_ever(edition: str) -> None:
    """A job that waits goes out at most once; when its worker has died, others do it, and nothing is left."""

    def check(state: str, word: str) -> None:
        scene = Scene(state, edition)
        world = scene.world
        waiting = world.submit(b"waiting")
        given = world.counters.dispatched
        scene.pulse(word)
        assert world.counters.dispatched - given <= 1
        for call in world.calls:
            if call.is_open:
                call.cut()
        world.sockets.discard(scene.fellow.id)
        world.wait(70)  # leases are 62 s at most
        assert scene.fellow.state == "gone"
        other = world.worker()
        while calls := other.calls():
            (task,) = calls
            assert task.word == "SET_TASK"
            task.answer("OK", task.task)
            other.finish(task)
        assert [told[0] for told in waiting.told] == ["done"]
        assert not world.broker.jobs
        assert sum(world.counters.ended.values()) == world.counters.accepted

    check_every_row(check, PULSED)


@editions
@pytest.mark.parametrize("state", OPEN)
def test_an_exchange_that_is_never_answered_is_over_some_day_and_its_connection_is_not_closed(
    state: str, edition: str
) -> None:
    scene = Scene(state, edition)
    world = scene.world
    world.wait(200)  # nobody pulses: leases, job and control time-outs are over
    assert scene.fellow.state == "gone"
    assert scene.open is not None
    assert scene.open.is_open
    scene.open.answer("OK", scene.own)
    assert not scene.open.is_open


def test_the_table_has_a_reaction_for_every_state() -> None:
    words = {(state, word) for state in STATES for word in PULSES}
    words |= {(state, f"answer {error}") for state in OPEN for error in ANSWERS}
    assert set(TABLE) == words
    assert isinstance(Scene("idle", "seed").fellow, Fellow)
