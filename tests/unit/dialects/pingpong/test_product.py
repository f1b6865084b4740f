"""Every state of a worker's connection × every message × both editions: one table of reactions.

A reaction is written `reply; state; outcome`: the reply to the worker (`-` nothing, `closed` the connection), its state
afterwards, and the response to its caller, if any. `late` means that a late result was counted, `bad` a bad message.
"""

from __future__ import annotations

from case_tables import check_every_row
from dragoman.carriers.carrier import TooLarge
from dragoman.dialects.pingpong.editions import Edition

from .world import DISCONNECT, EXIT, JOB_COMPLETE, PACKAGE, PING, PLAIN, PONG, READY, Side, World, both

JOB_TIMEOUT = 10
STATES = ("unknown", "idle", "fresh", "long", "silent", "pinging", "exiting")
# The states above, as the broker and the session call them.
NAMES = {"fresh": "busy", "long": "busy", "silent": "stuck", "pinging": "stuck"}


def arrange(state: str, edition: Edition) -> tuple[World, Side, Side | None]:
    """Return a world, a worker's connection in this state, and the caller of its job, if any."""
    world = World(edition=edition, job_timeout=JOB_TIMEOUT)
    if state == "unknown":
        return world, world.worker(), None
    if state in ("idle", "exiting"):
        worker = world.ready_worker()
        if state == "exiting":
            found = world.worker_of(worker)
            assert found is not None
            world.broker.availability.drain(found, world.now)
            world.settle()
            world.wait(1)
            assert worker.told() == [[EXIT]]
        return world, worker, None
    worker, caller = world.busy_worker()
    if state == "long":
        world.wait(1.5)
    elif state == "silent":
        world.wait(JOB_TIMEOUT + 1)
    elif state == "pinging":
        world.wait_pinging(worker, JOB_TIMEOUT)
        world.wait(1)
    caller.told()
    worker.told()
    assert world.state(worker) == NAMES.get(state, state)
    return world, worker, caller


def message_of(word: str, worker: Side) -> list[bytes] | TooLarge:
    """Return the message for a name in the table."""
    attempt = worker.remote.attempt
    token = bytes(attempt.token) if attempt is not None else b"an earlier token"
    return {
        "READY": [b"", READY],
        "PING": [b"", PING],
        "PING 7": [b"", PING, b"7"],
        "PONG": [b"", PONG],
        "EXIT": [b"", EXIT],
        "DISCONNECT": [b"", DISCONNECT],
        "JOB COMPLETE": [b"", JOB_COMPLETE, token, b"", b"result"],
        "JOB COMPLETE, wrong token": [b"", JOB_COMPLETE, b"of somebody else", b"", b"result"],
        "payload": [b"", b"result"],
        "empty payload": [b"", b""],
        "too large": TooLarge([b"", JOB_COMPLETE, token, b""], 5_000),
        "no frames": [],
        "one frame": [PING],
        "no delimiter": [b"x", PING],
        "READY and more": [b"", READY, b"x"],
        "two payloads": [b"", b"a", b"b"],
        "envelope without delimiter": [b"", JOB_COMPLETE, token, b"x", b"result"],
        "nine frames": [b""] * 9,
    }[word]


# Rows that are the same in both editions, for unknown, idle, fresh, long, silent, pinging, exiting.
SAME = {
    "PING": (
        "PONG; idle",  # R30
        "PONG; idle",  # R31
        "PONG; busy",  # R32
        "PONG; busy",
        "-; stuck",  # R36, back in its loop
        "PONG; stuck",  # R36, threaded
        "EXIT; exiting",
    ),
    "PING 7": (  # R47
        "PONG 7; idle",
        "PONG 7; idle",
        "PONG 7; busy",
        "PONG 7; busy",
        "-; stuck",
        "PONG 7; stuck",
        "EXIT; exiting",
    ),
    # Never a result, and a life sign of whoever is known.
    "PONG": ("-; unknown", "-; idle", "-; busy", "-; busy", "-; stuck", "-; stuck", "-; exiting"),
    "EXIT": ("-; unknown", "-; idle", "-; busy", "-; busy", "-; stuck", "-; stuck", "-; exiting"),
    "too large": (
        "PONG; unknown; bad",
        "PONG; idle; bad",
        "PONG; idle; failed bad",
        "PONG; idle; failed bad",
        "PONG; idle; late bad",
        "PONG; idle; late bad",
        "PONG; exiting; bad",
    ),
}

RESULT = (
    "PONG; unknown; late",  # R37
    "PONG; idle; late",  # R37
    "PONG; idle; done",
    "PONG; idle; done",
    "PONG; idle; late",  # R36
    "PONG; idle; late",  # R36
    "PONG; exiting; late",
)
WRONG_TOKEN = (
    "PONG; unknown; late",
    "PONG; idle; late",
    "PONG; busy; late",
    "PONG; busy; late",
    "PONG; stuck; late",
    "PONG; stuck; late",
    "PONG; exiting; late",
)
BAD = tuple(f"-; {NAMES.get(state, state)}; bad" for state in STATES)  # R48, D6
SHAPES = (
    "no frames",
    "one frame",
    "no delimiter",
    "READY and more",
    "two payloads",
    "envelope without delimiter",
    "nine frames",
)
MALFORMED = dict.fromkeys(SHAPES, BAD)

TABLE = {
    PLAIN: {
        **SAME,
        **MALFORMED,
        "READY": (
            "PONG; idle",
            "PONG; idle",  # R33
            "PONG; busy",  # R34, it may have crossed the job
            "PONG; idle; failed",  # R34
            "PONG; idle",  # R36
            "PONG; idle",  # R36
            "EXIT; exiting",  # R46
        ),
        "DISCONNECT": (
            "-; unknown",
            "-; unknown",
            "PONG; idle; done",  # of a busy worker it is the result
            "PONG; idle; done",
            "PONG; idle; late",
            "PONG; idle; late",
            "-; exiting",
        ),
        "payload": RESULT,
        "empty payload": RESULT,
        "JOB COMPLETE": BAD,
        "JOB COMPLETE, wrong token": BAD,
    },
    PACKAGE: {
        **SAME,
        **MALFORMED,
        "READY": (
            "PONG; idle",
            "PONG; idle",  # R33
            "PONG; busy",  # R34, like PING
            "PONG; busy",
            "-; stuck",  # R36, like PING
            "PONG; stuck",
            "EXIT; exiting",  # R46
        ),
        "DISCONNECT": (
            "-; unknown",
            "-; unknown",
            "-; unknown; lost",
            "-; unknown; lost",
            "-; unknown",
            "-; unknown",
            "-; exiting",
        ),
        "payload": BAD,
        "empty payload": BAD,
        "JOB COMPLETE": RESULT,
        "JOB COMPLETE, wrong token": WRONG_TOKEN,
    },
}

ROWS = [(state, word) for word in TABLE[PLAIN] for state in STATES]


@both
def test_every_word_in_every_state_has_its_reaction(edition: Edition) -> None:
    def check(state: str, word: str, reaction: str) -> None:
        world, worker, caller = arrange(state, edition)
        late = world.counters.late_results
        said = world.raw(worker, message_of(word, worker))
        notes = [outcome_of(caller)] if caller is not None else []
        notes += ["late"] * (world.counters.late_results - late)
        notes += ["bad"] * sum(world.bad.values())
        shown = b" & ".join(b" ".join(frames) for frames in said).decode() or "-"
        assert "; ".join(filter(None, (shown, world.state(worker), " ".join(filter(None, notes))))) == reaction

    check_every_row(
        check,
        [
            (state, word, reaction)
            for word, reactions in TABLE[edition].items()
            for state, reaction in zip(STATES, reactions, strict=True)
        ],
    )


@both
def test_whatever_was_said_the_connection_may_end_next(edition: Edition) -> None:
    def check(state: str, word: str) -> None:
        world, worker, _ = arrange(state, edition)
        world.receive(worker, message_of(word, worker))
        world.lose(worker)
        assert not world.broker.worker_registry.workers

    check_every_row(check, ROWS)


@both
def test_whatever_was_said_while_a_job_waits_nobody_gets_two_and_nothing_is_stuck(edition: Edition) -> None:
    """The waiting job is dispatched at most once, whichever worker the message made idle."""

    def check(state: str, word: str) -> None:
        world, worker, _ = arrange(state, edition)
        waiting = world.caller()
        world.receive(waiting, [b"", b"waiting"])
        world.settle()
        worker.told()
        dispatched = world.counters.dispatched
        world.raw(worker, message_of(word, worker))
        assert world.counters.dispatched - dispatched <= 1
        if worker.closed is None:
            world.lose(worker)
        world.wait(world.options.queue_timeout + 1)
        assert len(waiting.told()) == 1
        assert world.present == 0

    check_every_row(check, ROWS)


def outcome_of(caller: Side) -> str:
    told = caller.told()
    assert len(told) <= 1
    if not told:
        return ""
    frames = told[0]
    return "done" if len(frames) == 1 else frames[2].decode().partition(":")[0]
