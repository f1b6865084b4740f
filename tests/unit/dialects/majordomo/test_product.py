"""Every state of a worker's connection × every message × every edition: one table of reactions.

A reaction is written `reply; state; notes`: the reply to the worker (`-` nothing), its state afterwards, and other
effects: the outcome of its job, `late` for a late result, `part` for a dropped part, `bad` for a bad message.
"""

from __future__ import annotations

import pytest

from case_tables import check_every_row

from .world import MAX_PAYLOAD, SPEECHES, Side, Speech, World

JOB_TIMEOUT = 20.0
STATES = ("new", "idle", "answered", "busy", "stuck", "parted")


def arrange(state: str, speech: Speech) -> tuple[World, Side]:
    """Return a world, and a worker's connection in this state."""
    world = World(job_timeout=JOB_TIMEOUT, queue_timeout=10)
    if state == "new":
        return world, world.connect(speech)
    if state in ("idle", "answered"):
        worker = world.worker(speech)
        if state == "answered":
            world.client()
            worker.words()
            worker.reply()
        return world, worker
    worker, _ = world.busy(speech)
    if state == "stuck":
        world.wait(JOB_TIMEOUT)
    elif state == "parted":
        world.broker.availability.drain(world.worker_of(worker), world.now, at_once=True)
        world.run_once()
        assert worker.words() == ["DISCONNECT"]
    worker.told()
    assert world.state(worker) == state
    return world, worker


def message_of(word: str, worker: Side) -> list[bytes]:
    speech = worker.speech
    token = worker.client or b"never given out."
    rest = {
        "READY": [b"\x01", b"echo"],
        "HEARTBEAT": [speech.heartbeat],
        "DISCONNECT": [speech.disconnect],
        "REPLY": [speech.reply, token, b"", b"result"],
        "REPLY of two frames": [speech.reply, token, b"", b"a", b"b"],
        "REPLY to nothing": [speech.reply, b"of somebody else", b"", b"result"],
        "REPLY too large": [speech.reply, token, b"", bytes(MAX_PAYLOAD)],
        "PARTIAL": [speech.part, token, b"", b"part"],
        "no command": [],
        "REQUEST": [b"\x02", token, b"", b"x"],
        "unknown command": [b"\x2a"],
        "READY without service": [b"\x01"],
        "HEARTBEAT and more": [speech.heartbeat, b""],
        "REPLY without envelope": [speech.reply],
        "REPLY without empty frame": [speech.reply, token, b"result"],
    }
    if word == "a client's request":
        return [*speech.client, b"echo", b"x"]
    if word == "PING":
        return [b"", b"PING"]
    return [*speech.worker, *rest[word]]


# For new, idle, answered, busy, stuck, parted.
RUBBISH = (
    "DISCONNECT; parted; bad",
    "DISCONNECT; parted; bad",
    "DISCONNECT; parted; bad",
    "DISCONNECT; parted; lost bad",
    "DISCONNECT; parted; bad",
    "-; parted; bad",
)
TABLE = {
    "READY": (
        "-; idle",
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; lost bad",
        "DISCONNECT; parted; bad",
        "-; idle",
    ),
    "HEARTBEAT": ("DISCONNECT; parted; bad", "-; idle", "-; idle", "-; busy", "-; stuck", "-; parted"),
    "DISCONNECT": ("-; parted", "-; parted", "-; parted", "-; parted; lost", "-; parted", "-; parted"),
    "REPLY": (
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "-; idle; late",
        "-; idle; done",
        "-; idle; late",
        "-; parted; late",
    ),
    "REPLY without empty frame": (  # the Guide's worker in PHP
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "-; idle; late",
        "-; idle; done",
        "-; idle; late",
        "-; parted; late",
    ),
    "REPLY of two frames": (
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "-; idle; late",
        "-; idle; done",
        "-; idle; late",
        "-; parted; late",
    ),
    "REPLY to nothing": (
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; lost bad",
        "DISCONNECT; parted; bad",
        "-; parted",
    ),
    "REPLY too large": (
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "-; idle; failed bad",
        "-; idle; late bad",
        "-; parted; bad",
    ),
    "PARTIAL": (
        "DISCONNECT; parted; bad",
        "DISCONNECT; parted; bad",
        "-; idle; part",
        "-; busy",  # its client speaks 0.1: it is kept for the result
        "-; stuck; part",
        "-; parted; part",
    ),
    **dict.fromkeys(
        (
            "no command",
            "REQUEST",
            "unknown command",
            "READY without service",
            "HEARTBEAT and more",
            "REPLY without envelope",
        ),
        RUBBISH,
    ),
    "a client's request": ("-; new", *RUBBISH[1:]),
    "PING": ("-; new; bad", *RUBBISH[1:]),
}

every_speech = pytest.mark.parametrize("speech", SPEECHES, ids=str)


def rows_of(speech: Speech) -> list[tuple[str, str, str]]:
    """Parse a state, a message and its reaction."""
    return [
        (state, word, reaction)
        for word, reactions in TABLE.items()
        for state, reaction in zip(STATES, reactions, strict=True)
        if speech.part or word != "PARTIAL"  # 0.1 has no such word
    ]


@every_speech
def test_every_word_in_every_state_has_its_reaction(speech: Speech) -> None:
    def check(state: str, word: str, reaction: str) -> None:
        world, worker = arrange(state, speech)
        before = dict(world.ended)
        worker.receive(*message_of(word, worker))
        world.run_once()
        notes = [name for name, count in world.ended.items() if count > before.get(name, 0)]
        notes += ["late"] * world.counters.late_results
        notes += ["part"] * world.counters.dropped_parts
        notes += ["bad"] * sum(world.bad.values())
        told = " ".join(worker.words()) or "-"
        assert "; ".join(filter(None, (told, world.state(worker), " ".join(notes)))) == reaction

    check_every_row(check, rows_of(speech))


@every_speech
def test_whatever_was_said_the_connection_may_end_next(speech: Speech) -> None:
    def check(state: str, word: str, reaction: str) -> None:
        world, worker = arrange(state, speech)
        worker.receive(*message_of(word, worker))
        worker.cut()
        assert not world.broker.worker_registry.workers

    check_every_row(check, rows_of(speech))


@every_speech
def test_whatever_was_said_while_a_job_waits_nobody_gets_two_and_nothing_is_stuck(speech: Speech) -> None:
    """The waiting job is dispatched at most once, whichever worker the message made idle."""

    def check(state: str, word: str, reaction: str) -> None:
        world, worker = arrange(state, speech)
        world.client(b"waiting")
        dispatched = world.counters.dispatched
        worker.receive(*message_of(word, worker))
        world.run_once()
        assert world.counters.dispatched - dispatched <= 1
        worker.cut()
        world.wait(world.options.queue_timeout + 1)
        assert not world.broker.jobs

    check_every_row(check, rows_of(speech))
