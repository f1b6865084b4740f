"""Any frames on any connection of a Majordomo listener: messages or malformed, never an exception, and the broker
side's records are consistent after each. Random inputs come from fixed seeds: a failure can be repeated."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from dragoman.carriers.malformed import Malformed
from dragoman.core.states import Outcome
from dragoman.dialects.majordomo import codec
from dragoman.dialects.majordomo.editions import WIRES, EditionFrames
from dragoman.dialects.majordomo.messages import ClientRequest, Disconnect, Heartbeat, Ready, WorkerReply
from dragoman.dialects.majordomo.multiframe import MultiframeBody
from dragoman.server.admission import AdmissionLimits
from unit.dialects.majordomo.world import MAX_PAYLOAD, SPEECHES, Side, World

INPUTS = 20_000
PIECES = [b"", b"MDPC01", b"MDPC02", b"MDPW01", b"MDPW02", b"echo", b"mmi.service", b"mmi.x", b"t" * 16]
PIECES += [bytes((number,)) for number in range(8)]


def frame(rng: random.Random) -> bytes:
    if rng.random() < 0.85:
        return rng.choice(PIECES)
    return rng.randbytes(rng.choice([0, 1, 6, 16, 40, 130]))


def near_miss(rng: random.Random) -> list[bytes]:
    """A plausible message, unchanged or with a frame changed, added or left out."""
    speech = rng.choice(SPEECHES)
    body = [rng.randbytes(rng.randrange(4)) for _ in range(rng.choice([0, 1, 1, 1, 2, 5, 58, 59, 60]))]
    token = rng.choice([b"t" * 16, b"", rng.randbytes(16)])
    frames: list[bytes] = [
        *rng.choice(
            [
                [*speech.worker, b"\x01", b"echo"],
                [*speech.worker, speech.reply, token, b"", *body],
                [*speech.worker, speech.part, token, b"", *body],
                [*speech.worker, speech.heartbeat],
                [*speech.worker, speech.disconnect],
                [*speech.worker, b"\x02", token, b"", *body],
                [*speech.client, b"echo", *body],
                [*speech.client, b"mmi.service", *body],
                speech.answer(b"echo", *body),
            ]
        )
    ]
    for _ in range(rng.choice([0, 0, 1, 1, 3])):
        at = rng.randrange(min(len(frames), 8) + 1)
        match rng.randrange(3):
            case 0:
                frames.insert(at, frame(rng))
            case 1:
                del frames[at : at + 1]
            case 2:
                frames[at : at + 1] = [frame(rng)]
    return frames


def message(rng: random.Random) -> list[bytes]:
    if rng.random() < 0.8:
        return near_miss(rng)
    return [frame(rng) for _ in range(rng.randrange(7))]


# -------------------------------------------------------------------- the codec


def test_any_message_is_a_word_or_malformed_and_means_what_it_says() -> None:
    rng = random.Random("majordomo codec")
    counts: Counter[str] = Counter()
    for _ in range(INPUTS):
        frames = message(rng)
        for wire in WIRES.values():
            counts[worker(frames, wire)] += 1
            counts[client(frames, wire)] += 1
            for read in (codec.read_broker, codec.read_reply):
                try:
                    read([bytearray(each) for each in frames], wire)
                except Malformed as problem:
                    counts[problem.reason] += 1
        try:
            wire, is_worker = codec.recognise(frames)
        except Malformed as problem:
            counts[problem.reason] += 1
        else:
            head = wire.worker_head if is_worker else wire.client_head
            assert tuple(frames[: len(head)]) == head
    assert counts.keys() >= {"Ready", "WorkerReply", "Heartbeat", "Disconnect", "ClientRequest"}
    assert counts.keys() >= {"unknown header", "wrong header", "unknown command", "too few frames", "unexpected frames"}
    assert counts.keys() >= {"no envelope", "bad service name", "too many frames", "reserved service"}


def worker(frames: list[bytes], wire: EditionFrames) -> str:
    try:
        word = codec.read_worker(frames, wire)
    except Malformed as problem:
        return problem.reason
    match word:
        case Ready():
            assert frames == codec.write_ready(wire, word.service)
        case Heartbeat():
            assert frames == codec.write_heartbeat(wire)
        case Disconnect():
            assert frames == codec.write_disconnect(wire)
        case WorkerReply():
            envelope = [*wire.worker_head, wire.final if word.is_final else wire.partial, word.client]
            body = word.body.frames if isinstance(word.body, MultiframeBody) else [word.body]
            # No body is an empty one, and the empty frame before it may be missing.
            assert frames in ([*envelope, b"", *body], [*envelope, b""], [*envelope, *body], envelope)
            assert frames != envelope or word.body == b""
    return type(word).__name__


def client(frames: list[bytes], wire: EditionFrames) -> str:
    try:
        word = codec.read_client(frames, wire)
    except Malformed as problem:
        return problem.reason
    assert isinstance(word, ClientRequest)
    written = codec.write_client_request(wire, word.service, word.body)
    assert frames in (written, written[:-1])  # no body is an empty one
    return type(word).__name__


# -------------------------------------------------------------------- a whole listener


class Crowd:
    """Connections that send anything, beside one correct worker and one correct client of a service of their own."""

    def __init__(self, start: str) -> None:
        self.rng = random.Random(start)
        self.world = World(job_timeout=8, queue_timeout=4, attempts=2, limits=AdmissionLimits(bad_messages=10**9))
        self.honest = self.world.worker(service=b"honest")
        self.caller = self.world.connect()
        self.sides: list[Side] = []

    def step(self) -> None:
        rng, world = self.rng, self.world
        self.sides = [side for side in self.sides if not side.is_over]
        if len(self.sides) < 8 or rng.random() < 0.02:
            identity = rng.choice([b"", b"", b"", b"A", b"B"])
            self.sides.append(world.connect(rng.choice(SPEECHES), identity))
            return
        side = rng.choice(self.sides)
        roll = rng.random()
        if roll < 0.02:
            side.cut()
        elif roll < 0.05:
            world.wait_beating(rng.choice([0.1, 1.0, 2.5, 9.0]), self.honest)
        elif roll < 0.06:
            side.receive(*message(rng), bytes(MAX_PAYLOAD))
        else:
            side.receive(*(self._sensible(side) if roll < 0.85 else message(rng) or [b""]))
        if rng.random() < 0.6:
            world.run_once()

    def _sensible(self, side: Side) -> list[bytes]:
        """A plausible message for this connection."""
        speech, rng = side.speech, self.rng
        side.told()
        remote = side.peer.remote
        attempt = getattr(remote, "attempt", None)
        token = bytes(attempt.token) if attempt is not None else b"t" * 16
        if rng.random() < 0.4 and not hasattr(remote, "worker"):
            return [*speech.client, b"echo", rng.randbytes(3)]
        if attempt is not None and rng.random() < 0.5:
            return [*speech.worker, speech.reply, token, b"", b"result"]
        return rng.choice(
            [
                [*speech.worker, b"\x01", b"echo"],
                [*speech.worker, speech.heartbeat],
                [*speech.worker, speech.reply, token, b"", b"result"],
                [*speech.worker, speech.reply, token, b"", b"a", b"b"],
                [*speech.worker, speech.part or speech.heartbeat, *([token, b"", b"p"] if speech.part else [])],
            ]
        )

    def serve_the_honest(self, number: int) -> None:
        """Check that the correct worker and client still serve each other."""
        self.world.run_once()
        self.honest.told()
        self.caller.call(b"%d" % number, service=b"honest")
        assert self.honest.words()[-1:] == [str(number)]
        self.honest.reply(b"did %d" % number)
        assert self.caller.done(b"did %d" % number, service=b"honest")


@pytest.mark.parametrize("start", range(4))
def test_peers_that_say_anything_harm_nobody_else_and_the_books_are_right(start: int) -> None:
    crowd = Crowd(f"majordomo {start}")
    for number in range(3000):
        crowd.step()
        if number % 50 == 0:
            crowd.serve_the_honest(number)
    world = crowd.world
    for side in list(world.ends):
        if not side.is_over:
            side.cut()
    world.wait(30)
    counters = world.counters
    assert not world.broker.jobs
    assert not world.broker.worker_registry.workers
    assert not world.session._beats
    assert sum(counters.ended.values()) == counters.accepted
    assert counters.ended[Outcome.DONE] > 100
    assert counters.late_results
    assert counters.takeovers
    assert world.bad["unexpected command"]
