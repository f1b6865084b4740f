"""Any bytes on any socket of a Powerhose listener: messages or malformed, never an exception, and the broker side's
records are consistent after each. Random inputs come from fixed seeds: a failure can be repeated."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from dragoman.carriers.malformed import Malformed
from dragoman.dialects.powerhose import codec
from dragoman.dialects.powerhose.messages import Job, Ping, Remove, Wake
from dragoman.server.dial_policy import DialPolicy
from unit.dialects.powerhose.world import ERROR, FORBIDDEN, PONG, REMOVED, WAKE, Bench, World, fields

INPUTS = 20_000
ENDPOINTS = [f"tcp://192.0.2.1:{9000 + number}" for number in range(6)]
WORDS = [b"PING", b"REMOVE", b"PONG", b"WAKE", b"GIVE", b"JOB", b"JOBRES", b"ERROR", b":::", b"::", b":", b"", b"id"]


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 3, 8, 40, 300]))


def near_miss(rng: random.Random) -> bytes:
    """Pieces of messages, joined at random, sometimes with a byte changed."""
    pieces = [rng.choice([*WORDS, rng.choice(ENDPOINTS).encode(), noise(rng)]) for _ in range(rng.randrange(1, 7))]
    body = bytearray(b"".join(pieces))
    for _ in range(rng.choice([0, 0, 1, 3])):
        if body:
            body[rng.randrange(len(body))] = rng.randrange(256)
    return bytes(body)


def message(rng: random.Random) -> list[bytes]:
    body = rng.choice([noise, near_miss, near_miss])(rng)
    if rng.random() < 0.9:
        return [b"", body]
    return [rng.choice([b"", b"", noise(rng), body]) for _ in range(rng.randrange(1, 5))]


# -------------------------------------------------------------------- the codec


def test_any_message_is_a_word_or_malformed_and_means_what_it_says() -> None:
    rng = random.Random("codec")
    counts: Counter[str] = Counter()
    for _ in range(INPUTS):
        frames = message(rng)
        id = rng.choice([b"id", b"", noise(rng)])
        has_ids = rng.random() < 0.5
        for frame in (frames, [bytearray(each) for each in frames]):
            counts[registration(frame)] += 1
            counts[order(frame)] += 1
            counts[result(frame[-1], id, has_ids)] += 1
    assert counts.keys() >= {"Ping", "Remove", "Wake", "Job", "with id", "without id"}
    assert counts.keys() >= {"unknown word", "bad endpoint", "foreign job id", "garbage for JOBRES", "no delimiter"}


def registration(frames: list[bytes]) -> str:
    try:
        word = codec.read_registration(frames)
    except Malformed as problem:
        return problem.reason
    assert isinstance(word, Ping | Remove)
    name = b"PING" if isinstance(word, Ping) else b"REMOVE"
    assert frames[1] == (name if word.endpoint is None else fields(name, word.endpoint))
    return type(word).__name__


def order(frames: list[bytes]) -> str:
    try:
        word = codec.read_order(frames)
    except Malformed as problem:
        return problem.reason
    assert isinstance(word, Wake | Job)
    assert frames[1] == (b"WAKE" if isinstance(word, Wake) else fields(b"JOB", word.id, word.data))
    return type(word).__name__


def result(body: bytes, id: bytes, has_ids: bool) -> str:
    try:
        found, named = codec.read_result(body, id, has_ids)
    except Malformed as problem:
        return problem.reason
    assert named or not has_ids
    assert body in ((fields(b"JOBRES", id, found), fields(b"JOBRES", id)) if named else (fields(b"JOBRES", found),))
    return "with id" if named else "without id"


def test_any_endpoint_has_a_place_or_a_reason() -> None:
    rng = random.Random("reach")
    reach = DialPolicy(["/no/such/folder"], ["10.0.0.0/8"])
    pieces = ["tcp", "ipc", "://", ":", "/", "..", "@", "[", "]", "::", "127.0.0.1", "10.1.1.1", "9001", "0", "%", "*"]
    counts: Counter[str] = Counter()
    for _ in range(INPUTS // 4):
        start = rng.choice(["tcp://", "ipc://", "tcp://127.0.0.1:", "tcp://[", ""])
        endpoint = start + "".join(rng.choice([*pieces, chr(rng.randrange(0x500))]) for _ in range(rng.randrange(6)))
        place, problem = reach(endpoint, rng.choice(["127.0.0.1", "uid 0", "::1"]))
        assert (place is None) == bool(problem), endpoint
        counts[type(place).__name__] += 1
    assert counts.keys() == {"NoneType", "TcpAddress", "UnixAddress"}


# -------------------------------------------------------------------- the session


class Fuzz:
    """One world in which honest workers, liars, callers and accidents meet at random."""

    def __init__(self, start: str) -> None:
        self.rng = random.Random(start)
        job_timeout = self.rng.choice([0.5, 4])  # less than a worker may take for GIVE, or more
        self.world = World(queue_timeout=3, job_timeout=job_timeout, worker_expire=6, stuck_timeout=20)
        self.given: Counter[bytes] = Counter()  # by job: so often it was sent to a worker
        send = self.world.connections.send

        def count_and_send(peer: Any, frames: Any, mark: Any = None) -> None:
            if mark is not None:
                self.given[mark.job.id] += 1
            send(peer, frames, mark)

        self.world.connections.send = count_and_send  # type: ignore[method-assign]
        self.benches = [self.world.bench(each) for each in ENDPOINTS]
        self.callers = [self.world.caller() for _ in range(3)]
        self.fed = 0
        self.sent: Counter[int] = Counter()
        self.told: Counter[int] = Counter()

    def step(self) -> None:
        rng, world = self.rng, self.world
        bench = rng.choice(self.benches)
        match rng.randrange(12):
            case 0 | 1 | 2:
                self._register(bench, message(rng))
            case 3 | 4:
                self._register(bench, [b"", fields(rng.choice([b"PING", b"PING", b"REMOVE"]), bench.endpoint)])
            case 5 | 6 | 7:
                self._work(bench)
            case 8:
                number = rng.randrange(len(self.callers))
                self.callers[number].end.receive(b"", noise(rng))
                self.sent[number] += 1
            case 9:
                world.wait(rng.choice([0.0, 0.06, 0.5, 1.1]))
            case 10:
                self._accident(bench)
            case 11:
                world.run_once()
        self._listen()
        for job in world.broker.jobs.values():
            assert job.spent <= self.given[job.id], "an attempt was spent that nobody can have seen (R8)"

    def _register(self, bench: Bench, frames: list[bytes]) -> None:
        if bench.registrant.is_over:
            bench.registrant = self.world.connect("backend", kind="DEALER")
        if len(frames) == 2 and frames[1].startswith(b"PING:::") and self.rng.random() < 0.1:
            frames = [b"", fields(b"PING", FORBIDDEN)]
        if b"".join(frames):
            bench.registrant.receive(*frames)
            self.fed += 1

    def _work(self, bench: Bench) -> None:
        """Something at the worker's end of the connection: an honest answer, or anything."""
        if not bench.lives or bench.end.is_over:
            return
        self.fed += 1
        heard = bench.end.messages()
        word = heard[-1][-1] if heard else b""
        if self.rng.random() < 0.3 or not word:
            if self.rng.random() < 0.3:
                bench.end.receive(*message(self.rng))
        elif word == WAKE:
            bench.end.receive(b"", b"GIVE")
        else:
            _, id, data = word.split(b":::", 2)
            bench.end.receive(b"", self.rng.choice([fields(b"JOBRES", id, data), fields(b"JOBRES", data)]))

    def _accident(self, bench: Bench) -> None:
        rng, world = self.rng, self.world
        world.places[bench.endpoint] = rng.choice(["open", "open", "open", "refused", "hangs", "mute"])
        match rng.randrange(6):
            case 4 | 5 if bench.lives and bench.end.is_frozen and not bench.end.is_over:
                if rng.random() < 0.5 and not bench.registrant.is_over:
                    bench.registrant.receive(b"", fields(b"REMOVE", bench.endpoint))
                bench.end.is_frozen = False
                bench.end.pump()  # it greets after all
            case 0 if bench.lives and not bench.end.is_over and bench.end.peer is not None:
                world.connections.ended(bench.end.peer, "reset")
            case 1 if bench.lives and not bench.end.is_over:
                bench.end.stream.room = rng.choice([0, 20])
            case 2 if world.present:
                world.broker.withdraw(rng.choice(list(world.broker.jobs.values())), world.now)
            case 3 if not bench.registrant.is_over and bench.registrant.peer is not None:
                world.connections.ended(bench.registrant.peer, "reset")

    def _listen(self) -> None:
        for bench in self.benches:
            for answer in bench.registrant.messages():
                assert answer in ([b"", PONG], [b"", REMOVED], [b"", ERROR])
        for number, caller in enumerate(self.callers):
            self.told[number] += len(caller.told())

    def end(self) -> None:
        """Check that every caller has its outcome, and that correct workers are idle again."""
        world = self.world
        for bench in self.benches:
            world.places[bench.endpoint] = "open"
            if bench.lives and not bench.end.is_over:
                bench.end.stream.room = float("inf")
        world.wait(60)
        self._listen()
        assert world.present == 0
        assert self.told == self.sent
        for bench in self.benches:
            bench.registrant = world.connect("backend")
            assert bench.ping() == [PONG]
            assert bench.state == "idle"


@pytest.mark.parametrize("start", range(20))
def test_whatever_comes_over_either_socket_the_books_are_right_and_every_caller_is_told(start: int) -> None:
    fuzz = Fuzz(f"session {start}")
    while fuzz.fed < INPUTS // 20:
        fuzz.step()
    fuzz.end()
    assert fuzz.world.counters.internal_errors == 0
    assert fuzz.world.ended.keys() >= {"done", "cancelled", "timed out"}
