"""Random but repeatable: hostile clients and workers that send anything at any time, valid, invalid and mutated.

The broker's records stay consistent (`World.check` after every step), no client receives an outcome of a job that it
did not submit, or more than one per submit, and an honest worker and an honest client beside them are served.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from .world import End, Frames, World, ask, failed, hello, names, new_id, read, report, result, submit

RUNS, STEPS = 60, 80
SECRETS = ["", *(f"{number:032x}" for number in range(3))]
IDS = [new_id(1000 + number) for number in range(8)]


class Hostile:
    """A hostile client or worker: few ids, few secrets, other workers' tokens, to provoke collisions."""

    def __init__(self, run: int) -> None:
        self.random = random = Random(run)
        self.world = World(
            window=random.choice((1, 3, 50)),
            client_resume_timeout=random.choice((0.0, 1.0, 30.0)),
            max_kept_bytes=random.choice((0, 100, 10_000)),
            max_sessions=random.choice((0, 1, 5)),
            attempts=random.choice((None, 2)),
            job_timeout=random.choice((0.0, 1.0, 60.0)),
            stuck_timeout=random.choice((1.0, 3600.0)),
        )
        self.ends: list[End] = []
        self.tokens: list[bytes] = [new_id(99)]
        self.asked: Counter[bytes] = Counter()
        self.told: Counter[bytes] = Counter()
        self.answers: Counter[str] = Counter()

    def step(self) -> None:
        random = self.random
        self.ends = [end for end in self.ends if not end.is_over]
        if not self.ends or random.random() < 0.15:
            self.ends.append(self.world.connect())
            if random.random() < 0.9:
                self.say(self.ends[-1], self.hello())
            return
        end = random.choice(self.ends)
        match random.randrange(20):
            case 0:
                end.cut()
            case 1:
                self.world.wait(random.choice((0.01, 0.3, 2.0, 12.0)))
            case 2:
                end.stop_reading()
            case 3:
                self.say(end, self.mutated(self.word()))
            case 4:
                self.say(end, [random.randbytes(random.randrange(40)) for _ in range(random.randrange(1, 5))])
            case 5:
                self.say(end, [*self.word(), bytes(170_000)])
            case _:
                self.say(end, self.word())
        if random.random() < 0.7:
            self.world.run_once()
        self.look()

    def say(self, end: End, frames: Frames) -> None:
        if end.is_over or end.peer.closing is not None:
            return
        if frames[0][:1] == b"\x10" and len(frames) > 1:
            ids = frames[1]
            self.asked.update(ids[at : at + 16] for at in range(0, len(ids) - len(ids) % 16, 16))
        if frames[0][:1] == b"\x14" and len(frames) > 1:  # whoever comes back may be told again, or that it is lost
            ids = frames[1]
            self.asked.update(ids[at : at + 16] for at in range(0, len(ids) - len(ids) % 16, 16))
        end.receive(frames)

    def look(self) -> None:
        for end in self.ends:
            messages, end.inbox = end.inbox, []
            for message in messages:
                for said in read(message):
                    if said[0] == "JOB":
                        self.tokens = [*self.tokens, said[1]][-12:]
                    elif said[0] == "RESULT":
                        self.told[said[1]] += 1
                    elif said[0] == "FAILED":
                        self.told[said[2]] += 1
                    elif said[0] in ("TELL", "OBJECT"):
                        self.answers[said[0]] += 1
        for id, times in self.told.items():
            assert times <= self.asked[id], f"{id.hex()} was asked for {self.asked[id]} times and told {times} times"

    # ---------------------------------------------------------------- what is said

    def hello(self) -> Frames:
        random = self.random
        if random.random() < 0.5:
            return hello(1, {"session": random.choice(SECRETS), "window": random.choice((0, 1, 2, 100))})
        services = random.choice((["echo"], ["echo", "mirror"], ["mirror"]))
        return hello(2, {"services": services, "capacity": random.choice((1, 2, 5))})

    def word(self) -> Frames:
        random = self.random
        ids = random.choices(IDS, k=random.choice((1, 1, 2, 5)))
        tokens = random.choices(self.tokens, k=random.choice((1, 1, 1, 3)))
        payload = random.randbytes(random.choice((0, 1, 50, 3000)))
        return random.choice(
            [
                self.hello(),
                [b"\x04"],
                submit([(id, payload) for id in ids], random.choice(("echo", "mirror")), flags=random.randrange(8)),
                submit([(id, payload) for id in ids], flags=1, deadline=random.choice((0, 1, 500)), attempts=2),
                submit([(id, payload) for id in ids], flags=1, job_timeout=random.choice((0, 1, 500))),
                names("CANCEL", *ids),
                names("ACK", *ids),
                names("RESUME", *ids),
                names("RETURN", *tokens),
                result(*((token, payload) for token in tokens)),
                result((self.tokens[-1], payload)),
                failed(tokens[0], "T", "m", "d" * len(payload)),
                failed(self.tokens[-1]),
                ask(
                    random.choice((b"question", b"another.")),
                    random.choice(("services", "jobs", "workers", "purge", "the time")),
                    random.choice(({}, {"limit": 2}, {"name": "echo"}, b"[", b"\xff")),
                    random.choice((None, payload)),
                ),
                ask(
                    random.choice((b"question", b"another.")),
                    random.choice(("result", "job", "why", "cancel")),
                    {"id": random.choice(IDS).hex()} | random.choice(({}, {"wait": 5})),
                ),
                report(random.choice(("PART", "PROGRESS")), tokens[0], payload),
                [b"\x05"],
                [b"\x06"],
                [bytes((random.randrange(256),)), *([payload] if random.random() < 0.5 else [])],
            ]
        )

    def mutated(self, frames: Frames) -> Frames:
        random = self.random
        changed = [bytearray(frame) for frame in frames]
        for _ in range(random.randrange(1, 4)):
            frame = random.choice(changed)
            at = random.randrange(len(frame) + 1)
            match random.randrange(5):
                case 0 if frame:
                    frame[at % len(frame)] ^= 1 << random.randrange(8)
                case 1:
                    frame[at:at] = random.randbytes(random.choice((1, 16)))
                case 2:
                    del frame[at : at + random.choice((1, 16))]
                case 3:
                    changed.append(bytearray(random.randbytes(16)))
                case 4 if len(changed) > 1:
                    changed.pop()
        return [bytes(frame) for frame in changed]


@pytest.mark.parametrize("run", range(RUNS))
def test_hostile_peers_harm_neither_the_books_nor_honest_peers(run: int) -> None:
    hostile = Hostile(run)
    world = hostile.world
    for _ in range(STEPS):
        hostile.step()
    world.run_once()
    hostile.look()
    client, worker = world.client(), world.worker("honest")
    token, id = world.running(worker, client, b"fine", service="honest", job_timeout=60_000)
    worker.say(*result((token, b"FINE")))
    assert ("RESULT", id, b"FINE") in client.told()
    for end in (*hostile.ends, client, worker):
        if not end.is_over:
            end.cut()
    world.wait(35)
    assert (world.workers, world.present) == (0, 0)
    assert world.session._clients.sessions._by_secret == {}
    assert sum(world.counters.ended.values()) == world.counters.accepted


def test_the_runs_go_everywhere() -> None:
    """The hostile messages do reach all the cases that they aim at."""
    total: Counter[str] = Counter()
    for run in range(25):
        hostile = Hostile(run)
        for _ in range(STEPS):
            hostile.step()
        hostile.world.run_once()
        total.update(hostile.world.ended)
        total.update(hostile.world.bad)
        total.update(hostile.answers)
        total["takeovers"] += hostile.world.counters.takeovers
        total["late"] += hostile.world.counters.late_results
    ways = {"done", "failed", "timed out", "lost", "cancelled", "takeovers", "late", "TELL", "OBJECT"}
    codes = {"malformed", "role", "twice", "hello first", "unknown word", "too large"}
    assert total.keys() >= ways | codes, (ways | codes) - total.keys()
