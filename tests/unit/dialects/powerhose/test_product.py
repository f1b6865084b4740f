"""Every state of a worker × every message on either socket: one table of reactions.

A reaction on the registration socket is written `reply; state`, one on the work socket `state`. The effect on the job
follows, if any (`done`, `lost`, `failed`; `again` if it waits for another worker after a used attempt, `asked on` if
none was used), and `late` or `bad` if that was counted.
"""

from __future__ import annotations

import pytest

from case_tables import check_every_row

from .world import (
    ERROR,
    FIRST,
    FORBIDDEN,
    GIVE,
    JOBRES,
    MAX_PAYLOAD,
    PING,
    REMOVE,
    WAKE,
    Bench,
    Caller,
    World,
    fields,
)

STATES = (
    "unknown",
    "away",
    "resting",
    "dialling",
    "idle",
    "waking",
    "asked in vain",
    "working",
    "cancelled",
    "leaving",
)
# The states above, as the world calls them.
NAMES = {
    "asked in vain": "waking, stuck",
    "cancelled": "working, stuck",
    "leaving": "working, draining",
}
CONNECTED = ("idle", "waking", "asked in vain", "working", "cancelled", "leaving")


def arrange(state: str) -> tuple[World, Bench, Caller | None]:
    """Return a world, a worker in this state, and the caller of its job, if any."""
    world = World()
    if state in ("unknown", "away", "dialling", "idle"):
        bench = world.bench()
        if state == "dialling":
            world.places[FIRST] = "hangs"
        if state != "unknown":
            bench.ping()
        if state == "away":
            bench.end.cut()
        caller = None
    elif state in ("waking", "asked in vain", "resting"):
        bench, caller = world.asked()
        if state == "resting":
            world.wait(1)
            world.withdraw()
        if state == "asked in vain":
            world.withdraw()
        if state != "waking":
            assert caller.ending() == "cancelled"
    else:
        bench, caller = world.busy()
        if state == "cancelled":
            world.withdraw()
            assert caller.ending() == "cancelled"
        if state == "leaving":
            bench.remove()
    assert bench.state == NAMES.get(state, state)
    return world, bench, caller


def told(world: World, caller: Caller | None) -> str:
    if caller is None:
        return ""
    answers = caller.told()
    assert len(answers) <= 1
    if answers:
        return answers[0].decode().partition(":")[0] if world.ended != {"done": 1} else "done"
    if world.present and world.job().attempt is None:
        return "again" if world.job().spent else "asked on"
    return ""


def shown(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


# -------------------------------------------------------------------- the registration socket

NAMED_PING = (
    "PONG; idle",  # a ping from an unknown worker registers it
    "PONG; idle",
    "PONG; resting",  # R57
    "PONG; dialling",
    "PONG; idle",
    "PONG; waking",
    "PONG; waking, stuck",
    "PONG; working",  # R59
    "PONG; working, stuck",
    "PONG; working, draining",  # R58
)
NAMED_REMOVE = (
    "REMOVED; unknown",
    "REMOVED; unknown",
    "REMOVED; unknown",
    "REMOVED; unknown",
    "REMOVED; unknown",
    "REMOVED; unknown; asked on",  # it has not seen the job
    "REMOVED; unknown",
    "REMOVED; working, draining",  # R58
    "REMOVED; working, draining",
    "REMOVED; working, draining",
)
BAD = tuple(f"ERROR; {NAMES.get(state, state)}; bad" for state in STATES)

REGISTRATION: dict[str, tuple[tuple[bytes, ...], tuple[str, ...]]] = {
    "PING": ((b"", fields(PING, FIRST)), NAMED_PING),
    # A bare word means what this connection registered: all but the first have done so.
    "bare PING": ((b"", PING), ("ERROR; unknown; bad", *NAMED_PING[1:])),
    "REMOVE": ((b"", fields(REMOVE, FIRST)), NAMED_REMOVE),
    "bare REMOVE": ((b"", REMOVE), ("ERROR; unknown; bad", *NAMED_REMOVE[1:])),
    "PING of a forbidden place": ((b"", fields(PING, FORBIDDEN)), BAD),
    "REMOVE of another": ((b"", fields(REMOVE, "x")), tuple(f"REMOVED; {NAMES.get(each, each)}" for each in STATES)),
    "empty": ((b"", b""), BAD),
    "garbage": ((b"", b"HELLO"), BAD),
    "GIVE": ((b"", GIVE), BAD),
    "JOBRES": ((b"", fields(JOBRES, "result")), BAD),
    "PONG": ((b"", b"PONG"), BAD),
    "not text": ((b"", b"PING:::\xff"), BAD),
    "too long": ((b"", b"PING:::" + bytes(4090)), BAD),
    "too large": ((b"", bytes(MAX_PAYLOAD + 1)), BAD),
    "no delimiter": ((b"PING",), BAD),
    "three frames": ((b"", PING, b"x"), BAD),
}


def test_every_word_on_the_registration_socket_in_every_state() -> None:
    def check(state: str, word: str, reaction: str) -> None:
        world, bench, caller = arrange(state)
        answers = bench.registrant.say(*REGISTRATION[word][0])
        assert all(frame == b"" for answer in answers for frame in answer[:-1])
        said = " & ".join(answer[-1].decode() for answer in answers)
        bad = "bad" if world.bad else ""
        assert shown(said, bench.state, told(world, caller), bad) == reaction
        assert said != ERROR.decode() or world.state(FIRST) == NAMES.get(state, state)

    check_every_row(
        check,
        [
            (state, word, reaction)
            for word, (_, reactions) in REGISTRATION.items()
            for state, reaction in zip(STATES, reactions, strict=True)
        ],
    )


# -------------------------------------------------------------------- the work socket

GARBAGE = ("away; bad", "away; asked on; bad", "away; bad", "away; again; bad", "away; bad", "away; again; bad")
# For idle, waking, asked in vain, working, cancelled, leaving. To WAKE any word but GIVE is a lawful no.
RESULT = ("away; bad", "away; asked on", "away", "idle; done", "idle; late", "away; done")
OTHER = (*RESULT[:3], *GARBAGE[3:])

WORK: dict[str, tuple[str, ...]] = {
    "GIVE": ("away; bad", "working", "idle", *GARBAGE[3:]),
    "JOBRES": RESULT,
    "JOBRES without id": RESULT,
    "JOBRES, nothing": RESULT,
    "JOBRES, id and nothing": RESULT,
    "JOBRES, foreign": OTHER,
    "JOBRES alone": OTHER,
    "WAKE": OTHER,
    "garbage": OTHER,
    "empty": OTHER,
    "no delimiter": GARBAGE,
    "three frames": GARBAGE,
    "too large": (*GARBAGE[:3], "idle; again", "idle; late", "away; again"),
}


def frames_of(word: str, bench: Bench) -> tuple[bytes, ...]:
    id = bench.job_id
    return {
        "GIVE": (b"", GIVE),
        "JOBRES": (b"", fields(JOBRES, id, b"result")),
        "JOBRES without id": (b"", fields(JOBRES, b"result")),
        "JOBRES, nothing": (b"", b"JOBRES:::"),
        "JOBRES, id and nothing": (b"", fields(JOBRES, id, b"")),
        "JOBRES, foreign": (b"", fields(JOBRES, b"other", b"result")),
        "JOBRES alone": (b"", JOBRES),
        "WAKE": (b"", WAKE),
        "garbage": (b"", b"Traceback (most recent call last)"),
        "empty": (b"", b""),
        "no delimiter": (GIVE,),
        "three frames": (b"", GIVE, b"x"),
        "too large": (b"", bytes(MAX_PAYLOAD + 1)),
    }[word]


def test_every_word_on_the_work_socket_in_every_state() -> None:
    def check(state: str, word: str, reaction: str) -> None:
        world, bench, caller = arrange(state)
        bench.post.has_ids = word == "JOBRES, foreign"
        end = bench.end
        end.receive(*frames_of(word, bench))
        world.run_once()
        late = "late" if world.counters.late_results else ""
        bad = "bad" if world.bad else ""
        assert shown(bench.state, told(world, caller), late, bad) == reaction
        assert end.is_over == (bench.state == "away")

    check_every_row(
        check,
        [
            (state, word, reaction)
            for word, reactions in WORK.items()
            for state, reaction in zip(CONNECTED, reactions, strict=True)
        ],
    )


def test_whatever_was_said_the_connection_may_end_next() -> None:
    def check(state: str, word: str) -> None:
        world, bench, caller = arrange(state)
        bench.end.receive(*frames_of(word, bench))
        assert bench.end.peer is not None
        world.connections.ended(bench.end.peer, "reset")
        world.run_once()
        assert world.workers == 0
        world.wait(30)
        assert world.present == 0
        assert caller is None or len(caller.told()) <= 1

    check_every_row(check, [(state, word) for state in CONNECTED for word in WORK])


@pytest.mark.parametrize("state", CONNECTED)
def test_whatever_was_said_remove_and_ping_bring_the_worker_back(state: str) -> None:
    """All three in one turn of the loop; after a while the worker, which answers all it is asked, is idle."""

    def check(word: str) -> None:
        world, bench, _ = arrange(state)
        bench.end.receive(*frames_of(word, bench))
        bench.registrant.receive(b"", fields(REMOVE, FIRST))
        bench.registrant.receive(b"", fields(PING, FIRST))
        world.run_once()
        for _ in range(200):
            world.wait(0.5)
            bench.ping()
            for said in bench.told():
                bench.say(GIVE if said == WAKE else b"JOBRES:::done")
            if bench.state.startswith("working"):
                bench.say(b"JOBRES:::done")
        assert bench.state == "idle"
        assert world.present == 0

    check_every_row(check, [(word,) for word in WORK])
