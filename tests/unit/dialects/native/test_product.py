"""Every state of a connection × every message type, as in the page's table.

A reaction is written as `messages it receives; its state; other effects`.
"""

from __future__ import annotations

import pytest

from case_tables import check_every_row

from .world import (
    MAX_PAYLOAD,
    SECRET,
    WORDS,
    A,
    B,
    End,
    Frames,
    World,
    ask,
    failed,
    hello,
    names,
    new_id,
    report,
    result,
    submit,
)

CLIENTS = ("client", "resumed client", "client without a session")
WORKERS = ("idle worker", "busy worker", "recalled worker")
DRAINED = ("busy worker after DRAIN", "recalled worker after DRAIN")
STATES = ("before HELLO", *CLIENTS, *WORKERS, *DRAINED)
UNKNOWN = b"nobody's token.."


class Scene:
    """A client or worker in a state, and a job that it has submitted or holds."""

    def __init__(self, state: str) -> None:
        self.world = world = World()
        self.token, self.id = UNKNOWN, A
        self.other = world.client()
        if state == "before HELLO":
            self.peer = world.connect()
        elif state in CLIENTS:
            self.peer = self._client(state)
        else:
            self.peer = self._worker(state)
        self.peer.told()
        self.other.told()

    def _client(self, state: str) -> End:
        world = self.world
        peer = world.client("" if state == "client without a session" else SECRET)
        if state == "resumed client":
            peer.cut()
            peer, is_resumed = world.resumed()
            assert is_resumed
        (self.id,) = world.submit(peer, b"job", flags=1)
        return peer

    def _worker(self, state: str) -> End:
        world = self.world
        peer = world.worker()
        if state != "idle worker":
            self.token, self.id = world.running(peer, self.other)
        if state.startswith("recalled"):
            self.other.say(*names("CANCEL", self.id))
        if state.endswith("DRAIN"):
            assert peer.say(b"\x05") in ([], [("RECALL", self.token, "cancelled by its caller")])
        return peer

    def message(self, word: str) -> Frames:
        token = self.token
        return {
            "HELLO": hello(1, {}),
            "HEARTBEAT": [b"\x04"],
            "SUBMIT": submit([(B, b"another")], flags=1),
            "CANCEL": names("CANCEL", self.id),
            "ACK": names("ACK", self.id),
            "RESUME": names("RESUME", self.id, B),
            "ASK": ask(b"question", "services"),
            "ASK for nothing": ask(b"question", "the time"),
            "TELL": [b"\x41question", b"{}", b""],
            "OBJECT": [b"\x42question", b"busy", b"no"],
            "RESULT": result((token, b"done")),
            "RESULT of a stranger": result((UNKNOWN, b"done")),
            "FAILED": failed(token),
            "FAILED of a stranger": failed(UNKNOWN),
            "PROGRESS": report("PROGRESS", token, b"half"),
            "PROGRESS of a stranger": report("PROGRESS", UNKNOWN, b"half"),
            "PART": report("PART", token, b"half"),
            "RETURN": names("RETURN", token),
            "RETURN of a stranger": names("RETURN", UNKNOWN),
            "DRAIN": [b"\x05"],
            "BYE": [b"\x06"],
            "BYE with a sentence": [b"\x06\x01", b"that is all"],
            "WELCOME": [b"\x02\x01", b"{}"],
            "ERROR": [b"\x03\x01", b"role", b"no"],
            "ACCEPTED": names("ACCEPTED", self.id),
            "MISSING": names("MISSING", self.id),
            "JOB": [b"\x30echo", bytes(38), b"job"],
            "RECALL": [b"\x31" + token, b"why"],
            "MOVE": [b"\x33", b"the broker stops"],
            "a word of later": [b"\x77"],
            "nothing": [b""],
            "zero": [b"\0"],
        }[word]

    def react(self, word: str) -> str:
        world, peer = self.world, self.peer
        late, ended = world.counters.late_results, dict(world.ended)
        told = peer.say(*self.message(word))
        outcomes = [name for name, count in world.ended.items() if count > ended.get(name, 0)]
        notes = ["late"] * (world.counters.late_results - late) + outcomes
        notes += [said[0].lower() + " to its client" for said in self.other.told() if said[0] in ("PROGRESS", "PART")]
        words = " ".join(
            f"ERROR {said[2]}" if said[0] == "ERROR" else f"{said[0]} {said[1]}" if said[0] == "FAILED" else said[0]
            for said in told
        )
        head = self.message(word)[0]
        number = head[0] if head else 0
        assert {said[1] for said in told if said[0] == "ERROR"} <= {WORDS.get(number, number)}
        assert sum(world.bad.values()) == sum(said[0] == "ERROR" for said in told)
        return "; ".join(filter(None, (words or "-", "closed" if peer.is_over else self.state, ", ".join(notes))))

    @property
    def state(self) -> str:
        state = self.world.state(self.peer)
        return "there" if state == "gone" else state


def row(before: str, client: str, *by_worker: str) -> dict[str, str]:
    """Return the reactions before HELLO, for a client, and for a worker in each of its states."""
    workers = dict(zip((*WORKERS, *DRAINED), by_worker, strict=True))
    return {"before HELLO": before, **dict.fromkeys(CLIENTS, client), **workers}


NAMES = ("idle", "busy", "stuck", "draining", "draining")


def error(code: str, before: str = "hello first") -> dict[str, str]:
    """Return the same error for all states, without other effects."""
    return row(f"ERROR {before}; closed", f"ERROR {code}; there", *(f"ERROR {code}; {name}" for name in NAMES))


def role(client: str) -> dict[str, str]:
    """Return the reactions to a client's message."""
    return row("ERROR hello first; closed", client, *(f"ERROR role; {name}" for name in NAMES))


def work(*workers: str) -> dict[str, str]:
    """Return the reactions to a worker's message."""
    return row("ERROR hello first; closed", "ERROR role; there", *workers)


LATE = ("-; idle; late", "-; busy; late", "-; stuck; late", "-; draining; late", "-; draining; late")
QUIET = tuple(f"-; {name}" for name in NAMES)
TABLE = {
    "HELLO": error("twice") | {"before HELLO": "WELCOME; there"},
    "HEARTBEAT": row("ERROR hello first; closed", "HEARTBEAT; there", *(f"HEARTBEAT; {name}" for name in NAMES)),
    "SUBMIT": role("-; there"),
    "CANCEL": role("FAILED cancelled; there; cancelled"),
    "ACK": role("-; there"),
    "RESUME": role("MISSING; there"),
    "ASK": role("TELL; there"),
    "ASK for nothing": role("OBJECT; there"),
    "RESULT": work("-; idle; late", "-; idle; done", "-; idle; late", "BYE; closed; done", "BYE; closed; late"),
    "RESULT of a stranger": work(*LATE),
    "FAILED": work("-; idle; late", "-; idle; failed", "-; idle; late", "BYE; closed; failed", "BYE; closed; late"),
    "FAILED of a stranger": work(*LATE),
    "PROGRESS": work(
        "-; idle",
        "-; busy; progress to its client",
        "-; stuck",
        "-; draining; progress to its client",
        "-; draining",
    ),
    "PROGRESS of a stranger": work(*QUIET),
    "PART": work(
        "-; idle",
        "-; busy; part to its client",
        "-; stuck",
        "-; draining; part to its client",
        "-; draining",
    ),
    "RETURN": work("-; idle", "JOB; busy", "-; idle", "BYE; closed", "BYE; closed"),
    "RETURN of a stranger": work(*QUIET),
    "DRAIN": work("BYE; closed", *(f"-; {name}" for name in ("draining", "draining", "draining", "draining"))),
    "BYE": row(
        "ERROR hello first; closed",
        "-; closed; cancelled",
        "-; closed",
        "-; closed; lost",
        "-; closed",
        "-; closed; lost",
        "-; closed",
    ),
    "a word of later": error("unknown word"),
    "zero": error("unknown word"),
    "nothing": error("malformed", "malformed"),
}
TABLE["BYE with a sentence"] = TABLE["BYE"]
TABLE |= {
    word: error("role")
    for word in ("WELCOME", "ERROR", "ACCEPTED", "MISSING", "JOB", "RECALL", "MOVE", "TELL", "OBJECT")
}

every_state = pytest.mark.parametrize("state", STATES)
ROWS = [(state, word) for word in TABLE for state in STATES]
WITH_A_HEAD = (
    "SUBMIT",
    "CANCEL",
    "ACK",
    "RESUME",
    "ASK",
    "RESULT",
    "FAILED",
    "PROGRESS",
    "PART",
    "RETURN",
    "HELLO",
)


def test_every_word_in_every_state_has_its_reaction() -> None:
    def check(state: str, word: str) -> None:
        assert Scene(state).react(word) == TABLE[word][state]

    check_every_row(check, ROWS)


def test_whatever_was_said_the_connection_may_end_in_the_same_turn() -> None:
    def check(state: str, word: str) -> None:
        scene = Scene(state)
        scene.peer.receive(scene.message(word))
        scene.peer.cut()
        assert scene.world.workers == 0
        scene.other.cut()
        scene.world.wait(35)
        assert scene.world.present == 0

    check_every_row(check, ROWS)


def test_whatever_was_said_again_harms_nobody() -> None:
    """Twenty times in a row: the connection may be closed for it, and others are served."""

    def check(state: str, word: str) -> None:
        scene = Scene(state)
        world = scene.world
        for _ in range(25):
            if not scene.peer.is_over:
                scene.peer.receive(scene.message(word))
        world.run_once()
        worker = world.worker("honest")
        token, id = world.running(worker, scene.other, b"fine", service="honest")
        worker.say(*result((token, b"FINE")))
        assert ("RESULT", id, b"FINE") in scene.other.told()

    check_every_row(check, ROWS)


def test_a_word_with_too_many_frames_is_an_error() -> None:
    """A head that is too short, frames missing or too many."""

    def check(state: str, word: str) -> None:
        scene = Scene(state)
        frames = [*scene.message(word), b"one", b"more", b"or two"]
        code = _code(state, word, "malformed")
        assert [said[2] for said in scene.peer.say(*frames)] == [code]
        assert scene.peer.is_over == (state == "before HELLO")
        assert scene.world.ended.get("done", 0) == 0

    check_every_row(check, [row for row in ROWS if row[1] not in ("nothing", "zero", "a word of later")])


def test_a_word_with_a_short_head_or_without_its_frames_is_an_error() -> None:
    def check(state: str, word: str) -> None:
        for cut in ("head", "frames"):
            scene = Scene(state)
            frames = scene.message(word)
            if cut == "head" and len(frames[0]) == 1:
                continue
            said = scene.peer.say(*([frames[0][:2], *frames[1:]] if cut == "head" else frames[:1]))
            assert [each[2] for each in said] == [_code(state, word, "malformed")]
            assert scene.world.ended.get("done", 0) == 0

    check_every_row(check, [row for row in ROWS if row[1] in WITH_A_HEAD])


def test_a_word_that_is_too_large_is_an_error() -> None:
    def check(state: str, word: str) -> None:
        scene = Scene(state)
        frames = [*scene.message(word), bytes(MAX_PAYLOAD + 65_536)]
        assert [said[2] for said in scene.peer.say(*frames)] == ["too large"]
        assert scene.peer.is_over == (state == "before HELLO")

    check_every_row(
        check, [row for row in ROWS if not row[1].startswith(("nothing", "zero", "SUBMIT", "RESULT", "FAILED", "ASK"))]
    )


@every_state
def test_a_submit_that_is_too_large_is_refused_job_by_job(state: str) -> None:
    scene = Scene(state)
    ids = [new_id(number) for number in range(3)]
    told = scene.peer.say(*submit([(id, bytes(60_000)) for id in ids], flags=1))
    if state in CLIENTS:
        assert [said[:4] for said in told] == [("FAILED", "refused", id, "too large") for id in ids]
        assert scene.world.bad == {"too large": 1}
        assert scene.world.present == 1
    else:
        assert [said[2] for said in told] == ["too large"]


@every_state
@pytest.mark.parametrize("word", ["RESULT", "FAILED"])
def test_an_answer_that_is_too_large_has_failed(state: str, word: str) -> None:
    """A FAILED that was too large ended nothing: its worker thought it was free, and the broker that it was not."""
    scene = Scene(state)
    frames = scene.message(word)
    told = scene.peer.say(*frames[:-1], bytes(MAX_PAYLOAD + 65_536))
    if state in ("before HELLO", *CLIENTS):
        assert [said[2] for said in told] == ["too large"]
        return
    assert [said[0] for said in told] == (["BYE"] if state in DRAINED else [])
    assert scene.world.bad == {"too large": 1}
    assert scene.world.ended.get("failed", 0) == state.startswith("busy")
    assert scene.world.counters.late_results == (not state.startswith("busy"))
    if state not in DRAINED:
        assert scene.world.state(scene.peer) == "idle"


def _code(state: str, word: str, otherwise: str) -> str:
    """Return the error code for a malformed message: the role is checked first."""
    if state == "before HELLO":
        return otherwise if word == "HELLO" else "hello first"
    if "ERROR" in TABLE[word][state]:
        return TABLE[word][state].split(";")[0].removeprefix("ERROR ")
    return otherwise


def test_the_table_has_a_reaction_for_every_state_and_a_row_for_every_word() -> None:
    assert all(set(reactions) == set(STATES) for reactions in TABLE.values())
    assert set(WORDS.values()) <= set(TABLE)
