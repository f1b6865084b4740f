"""Every state of a worker × every message × its connection alive or ended: one table of reactions.

A reaction is written `reply; state; notes`: the reply to the worker (`-` for none: parked, or ignored), its state in
the broker afterwards (`detached` is also a worker whose HEARTBEAT is due), and other effects: a job's outcome, `late`
for a counted late result, `bad` for a counted bad message, `again` for a repeated reply, `new` for one more worker.

A state is the worker's last request and its reply: `ready parked` has sent READY and waits.
"""

from __future__ import annotations

import pytest

from case_tables import check_every_row

from .world import DISCONNECT, Side, World, header, heartbeat, job, ready, result

READY_REQUEST, BEAT_REQUEST, RESULT_REQUEST, NEXT_REQUEST = 1, 2, 3, 50
CALLER_REQUESTS = range(500, 510)

LASTS = ("ready", "heartbeat", "result")
PARKED = tuple(f"{last} parked" for last in LASTS)
OWING = tuple(f"{last} owing" for last in LASTS)
BUSY = tuple(f"{last} busy" for last in LASTS)
CANCELLED = tuple(f"{last} cancelled" for last in LASTS)
DRAINING = tuple(f"{last} draining" for last in LASTS)
STATES = ("unknown", *PARKED, *OWING, *BUSY, *CANCELLED, *DRAINING)
NAMES = {"parked": "idle", "owing": "detached", "busy": "busy", "cancelled": "stuck", "draining": "draining"}


class Scene:
    """A worker in a state, and the caller of its job, if any."""

    def __init__(self, state: str, is_away: bool) -> None:
        self.world = world = World(queue_timeout=10)
        self.side, self.caller = world.connect(), world.connect()
        self.last, _, self.step = state.partition(" ")
        if not self.step:
            self.id, self.last_request = b"nobody's, surely", (READY_REQUEST, ready())
        else:
            self.id = world.worker(self.side, READY_REQUEST)
            self.last_request = self._go_to_last()
            self._go_to_step()
        if is_away:
            world.cut(self.side)
            self.side = world.connect()
        self.side.heard()
        self.caller.heard()
        fitting = NAMES.get(self.step, "gone")
        if is_away and fitting not in ("gone", "draining"):
            fitting = "detached"
        assert world.state(self.id) == fitting

    def _go_to_last(self) -> tuple[int, bytes]:
        world, side = self.world, self.side
        if self.last == "ready":
            return READY_REQUEST, ready()
        if self.last == "heartbeat":
            world.wait(10)
            side.ask(BEAT_REQUEST, heartbeat(self.id))
            return BEAT_REQUEST, heartbeat(self.id)
        self.caller.ask(CALLER_REQUESTS[0], job(b"earlier"))
        side.ask(RESULT_REQUEST, result(self.id, b"earlier"))
        return RESULT_REQUEST, result(self.id, b"earlier")

    def _go_to_step(self) -> None:
        world = self.world
        if self.step == "owing":
            world.wait(10)
        elif self.step != "parked":
            self.caller.ask(CALLER_REQUESTS[1], job())
            if self.step == "cancelled":
                world.broker.withdraw(world.job(), world.now)
            elif self.step == "draining":
                world.broker.availability.drain(world.record(self.id), world.now)
            world.run_once()

    def message(self, word: str) -> tuple[int, bytes]:
        """Return the message for a name in the table."""
        id, new = self.id, NEXT_REQUEST
        return {
            "last again": self.last_request,
            "first READY again": (READY_REQUEST, ready()),
            "READY": (new, ready()),
            "HEARTBEAT": (new, heartbeat(id)),
            "RESULT": (new, result(id)),
            "RESULT false": (new, result(id, b"result", False)),
            "RESULT true": (new, result(id, b"result", True)),
            "JOB with id": (new, job(id=id)),
            "READY with id": (new, ready(id=id)),
            "DISCONNECT": (new, header(DISCONNECT, id)),
            "HEARTBEAT with payload": (new, heartbeat(id) + b"!"),
            "garbage": (new, b"\xff" * 20),
        }[word]

    def react(self, word: str) -> str:
        world = self.world
        counters = world.counters
        before = dict(counters.ended)
        late, again, workers = counters.late_results, counters.replayed_answers, set(world.session._remotes)
        said = self.side.ask(*self.message(word))
        notes = [str(outcome) for outcome, count in counters.ended.items() if count > before[outcome]]
        assert notes.count("done") == len(self.caller.heard())
        notes += ["late"] * (counters.late_results - late)
        notes += ["bad"] * sum(world.bad.values())
        notes += ["again"] * (counters.replayed_answers - again)
        notes += ["new"] * len(set(world.session._remotes) - workers)
        assert all(each.id == self.id for each in said)
        words = " ".join(each.word for each in said) or "-"
        return "; ".join(filter(None, (words, world.state(self.id), " ".join(notes))))


def row(unknown: str, parked: str, owing: str, busy: str, cancelled: str, draining: str) -> dict[str, str]:
    """Return reactions that do not depend on the worker's last request."""
    steps = {"parked": parked, "owing": owing, "busy": busy, "cancelled": cancelled, "draining": draining}
    return {"unknown": unknown, **{f"{last} {step}": steps[step] for last in LASTS for step in steps}}


def staying(note: str) -> dict[str, str]:
    """Return reactions without a reply or a change."""
    names = ("idle", "detached", "busy", "stuck", "draining")
    return row(*(f"-; {state}; {note}" for state in ("gone", *names)))


AGAIN = row(
    "-; gone; new",
    "-; idle",  # R60: nothing new happens
    "HEARTBEAT; detached; again",
    "JOB; busy; again",
    "JOB; stuck; again",  # as it was said the first time
    "JOB; draining; again",
)

TABLE = {
    "last again": AGAIN,
    "first READY again": {
        **staying("new"),  # R61: its first answer is confirmed, so this is somebody else
        **{state: AGAIN[state] for state in STATES if state.startswith("ready ")},
    },
    "READY": staying("new"),
    "HEARTBEAT": row(
        "DISCONNECT; gone",  # R66
        "-; idle",  # R69
        "-; idle",
        "DISCONNECT; gone; lost",  # R68
        "DISCONNECT; gone",
        "DISCONNECT; gone; lost",
    ),
    "RESULT": row(
        "DISCONNECT; gone; late",  # R66
        "DISCONNECT; gone; late",  # R67
        "DISCONNECT; gone; late",  # R67
        "-; idle; done",
        "-; idle; late",
        "DISCONNECT; gone; done",
    ),
    "RESULT true": row(
        "DISCONNECT; gone; late",
        "DISCONNECT; gone; late",
        "DISCONNECT; gone; late",
        "DISCONNECT; gone; done",  # R70
        "DISCONNECT; gone; late",
        "DISCONNECT; gone; done",
    ),
    "JOB with id": staying("bad"),  # R77
    "READY with id": staying("bad"),
    "DISCONNECT": staying("bad"),
    "HEARTBEAT with payload": staying("bad"),
    "garbage": staying("bad"),
}
TABLE["RESULT false"] = TABLE["RESULT"]

# While its connection is gone a worker stays detached, unless the message is its own: only these make it come back.
OWN = ("last again", "HEARTBEAT", "RESULT", "RESULT false", "RESULT true")


def expected(state: str, word: str, is_away: bool) -> str:
    reaction = TABLE[word][state]
    is_own = word in OWN or (word == "first READY again" and state.startswith("ready "))
    if is_away and not is_own:
        said, name, *notes = reaction.split("; ")
        name = name if name in ("gone", "draining") else "detached"
        return "; ".join((said, name, *notes))
    return reaction


AWAY = pytest.mark.parametrize("is_away", [False, True], ids=["there", "away"])
ROWS = [(state, word) for word in TABLE for state in STATES]


@AWAY
def test_every_message_in_every_state_has_its_reaction(is_away: bool) -> None:
    def check(state: str, word: str) -> None:
        assert Scene(state, is_away).react(word) == expected(state, word, is_away)

    check_every_row(check, ROWS)


@AWAY
def test_whatever_was_said_the_connection_may_end_in_the_same_turn(is_away: bool) -> None:
    def check(state: str, word: str) -> None:
        scene = Scene(state, is_away)
        world = scene.world
        scene.side.receive(*scene.message(word))
        world.cut(scene.side)
        assert {world.state(id) for id in world.session._remotes} <= {"detached", "draining"}

    check_every_row(check, ROWS)


@AWAY
def test_whatever_was_said_twice_in_a_row_is_said_once(is_away: bool) -> None:
    """R60: a message and its copy are one message."""

    def check(state: str, word: str) -> None:
        scene = Scene(state, is_away)
        world = scene.world
        request, body = scene.message(word)
        first = scene.side.ask(request, body)
        before = (
            world.counters.ended.copy(),
            set(world.session._remotes),
            world.state(scene.id),
            world.counters.dispatched,
        )
        second = scene.side.ask(request, body)
        assert second == first
        after = (
            world.counters.ended.copy(),
            set(world.session._remotes),
            world.state(scene.id),
            world.counters.dispatched,
        )
        assert after == before
        assert scene.caller.told.total() <= len(scene.caller.asked)

    check_every_row(check, ROWS)


@AWAY
def test_whatever_was_said_while_a_job_waits_nobody_gets_two_and_nothing_stays_for_ever(is_away: bool) -> None:
    """A waiting job is dispatched at most once; when all have disconnected, no record is left."""

    def check(state: str, word: str) -> None:
        scene = Scene(state, is_away)
        world, waiting = scene.world, scene.caller
        waiting.ask(CALLER_REQUESTS[-1], job(b"waiting"))
        dispatched = world.counters.dispatched
        scene.side.ask(*scene.message(word))
        assert world.counters.dispatched - dispatched <= 1
        busy = [remote for remote in world.session._remotes.values() if remote.attempt is not None]
        assert len({remote.attempt for remote in busy}) == len(busy)
        world.cut(scene.side)
        world.wait(25)  # jobs have 5 s, leases 20 s
        stuck = [remote for remote in world.session._remotes.values() if remote.attempt is None]
        assert not stuck
        assert world.present == 0
        assert world.session._callers.waiting == 0
        assert sum(world.counters.ended.values()) == world.counters.accepted

    check_every_row(check, ROWS)


def test_the_table_has_a_reaction_for_every_state() -> None:
    assert all(set(reactions) == set(STATES) for reactions in TABLE.values())
    assert isinstance(Scene("unknown", False).side, Side)
