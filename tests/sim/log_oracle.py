"""The oracle of the log simulation: it knows every write, and judges the logs themselves by the epoch rule.

- C1: of one shard, what a broker counts as saved is in a commit that counts. So two brokers cannot both save.
- C2: whatever was acknowledged is in the table of every later owner.
- R114: what is in a table of an owner is in a commit that counts.
- R241: a broker that says that a write does not exist is right: nobody had acknowledged it when the question came.
- R116: no log raises an alarm: nothing is missing in the model, so a reader that says so is wrong.
"""

from __future__ import annotations

import json
from collections import Counter

from dragoman.cluster.epochs import EpochRule, Verdict
from dragoman.cluster.log_records import Commit, read_batches, read_record
from sim.nats_model import NatsModel
from sim.nats_model_log import Entry


class Broken(AssertionError):
    """A rule does not hold."""


class Truth:
    """The writes of one shard that count, from its log. Entries that were purged meanwhile have been judged before."""

    def __init__(self) -> None:
        self.rule = EpochRule()
        self.counted: dict[str, int] = {}  # sequence of the commit that has each write
        self._judged = 0
        self._fragments: list[bytes] = []

    def advance(self, entries: dict[int, Entry], last: int) -> None:
        for sequence in range(self._judged + 1, last + 1):
            record = read_record(entries[sequence].payload)
            verdict = self.rule.judge(sequence, record)
            if verdict is Verdict.COUNTS:
                assert isinstance(record, Commit)
                self._fragments.append(record.body)
                if record.is_last:
                    for batch in read_batches(b"".join(self._fragments)):
                        for text in json.loads(batch):
                            self.counted.setdefault(text, sequence)
                    self._fragments = []
            elif verdict is not Verdict.VOID:
                self._fragments = []
        self._judged = last


class LogOracle:
    def __init__(self, shards: int) -> None:
        self.hits: Counter[str] = Counter()
        self.truths = [Truth() for _ in range(shards)]
        self.acknowledged: list[dict[str, None]] = [{} for _ in range(shards)]
        self._submitted: list[set[str]] = [set() for _ in range(shards)]
        self._model: NatsModel | None = None
        self._streams: list[str] = []

    def watch(self, model: NatsModel, streams: list[str]) -> None:
        self._model = model
        self._streams = streams

    def look(self) -> None:
        """Judge what the logs have got since. Called after each event, so that no purge comes first."""
        assert self._model is not None
        for truth, name in zip(self.truths, self._streams, strict=True):
            stream = self._model.logs.streams[name]
            if stream.last > truth._judged:
                truth.advance(stream.entries, stream.last)

    def hit(self, way: str) -> None:
        self.hits[way] += 1

    def submitted(self, shard: int, text: str) -> None:
        self._submitted[shard].add(text)

    def saved(self, broker: str, shard: int, texts: list[str], last: int) -> None:
        """A broker counts these as saved."""
        self.look()
        for text in texts:
            if text not in self.truths[shard].counted:
                raise Broken(f"C1: {broker} counts {text} of shard {shard} as saved, and no commit that counts has it")
            self.acknowledged[shard][text] = None
        self.hits["saved"] += len(texts)

    def denied(self, broker: str, shard: int, text: str, was_acknowledged: bool) -> None:
        """A broker says that there is no such write. `was_acknowledged`: when it was asked."""
        if was_acknowledged:
            raise Broken(f"R241: {broker} denies {text} of shard {shard}, which was acknowledged before it was asked")
        self.hits["denied"] += 1

    def adopted(self, broker: str, shard: int, epoch: int, table: list[str]) -> None:
        """A broker has read a log."""
        self.look()
        self.hits["adopted"] += 1
        truth = self.truths[shard]
        rows = set(table)
        for text in self.acknowledged[shard]:
            if text not in rows and truth.rule.epoch == epoch:
                raise Broken(f"C2: {broker} read shard {shard} at {epoch}, and has not {text}, which was acknowledged")
        for text in table:
            if text not in self._submitted[shard]:
                raise Broken(f"R114: {broker} read {text} in shard {shard}, which belongs to another")
            if text not in truth.counted:
                raise Broken(f"R114: {broker} read {text} in shard {shard}, and no commit that counts has it")

    def alarmed(self, shard: int, reason: str) -> None:
        raise Broken(f"R116: an alarm about shard {shard} without a reason: {reason}")

    @property
    def voids(self) -> int:
        return sum(each.rule.voids for each in self.truths)
