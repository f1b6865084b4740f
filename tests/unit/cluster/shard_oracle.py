"""The oracle of whole brokers: it reads the logs by the epoch rule, and judges all that leaves a broker by them.

C1   of one shard, one broker has the newest epoch
C2   a job that is acknowledged is in a commit that counts
C3   a background attempt that a worker gets is in a commit that counts, with its token
C4   an outcome that is told is in a commit that counts, and never changes
C5   a result that is acknowledged is not that of an attempt which still runs by the log
C6   a key has one job
C7   a job of another broker never travels on
C8   what a purge leaves has every job that the log had

C9 and C10 have tests of their own (test_shard_rules.py).
"""

from __future__ import annotations

from dragoman.cluster.epochs import EpochRule, Verdict
from dragoman.cluster.log_records import Commit, read_batches, read_record
from dragoman.cluster.shard_rows import RESULT, read_batch
from dragoman.core.model import Token
from dragoman.store.rows import OUTCOME, STATUS_COLUMNS
from log_model import ModelLog

TOKEN = STATUS_COLUMNS.index("token")
Ending = tuple[str, bytes]


class Broken(AssertionError):
    """A rule does not hold."""


class Truth:
    """One shard, by the messages of its log that count."""

    def __init__(self, first: int = 1) -> None:
        self.rule = EpochRule()
        self.jobs: dict[bytes, bytes] = {}  # the token of the attempt that runs, or nothing
        self.bodies: set[bytes] = set()  # jobs whose payload is there
        self.endings: dict[bytes, Ending] = {}  # of jobs that are kept
        self.ever: set[bytes] = set()  # ids
        self.tokens: set[bytes] = set()
        self.told: dict[bytes, Ending] = {}  # the first ending of each job
        self._next = first
        self._fragments: list[bytes] = []

    def advance(self, log: ModelLog) -> None:
        while self._next <= log.last:
            sequence, self._next = self._next, self._next + 1
            record = read_record(log.messages[sequence][0])
            verdict = self.rule.judge(sequence, record)
            if verdict is Verdict.COUNTS:
                assert isinstance(record, Commit)
                self._fragments.append(record.body)
                if record.is_last:
                    for batch in read_batches(b"".join(self._fragments)):
                        self._take(batch)
                    self._fragments = []
            elif verdict is not Verdict.VOID:
                self._fragments = []

    def _take(self, data: bytes) -> None:
        batch = read_batch(data)
        for head, body in batch.jobs:
            self.jobs.setdefault(head[0], b"")
            self.ever.add(head[0])
            if body is not None:
                self.bodies.add(head[0])
        for id, status, _ in batch.statuses:
            token, outcome, result = status[TOKEN - 1], status[OUTCOME - 1], status[RESULT - 1]
            self.jobs[id] = b"" if outcome else bytes(token or b"")
            self.tokens.add(self.jobs[id])
            if outcome:
                ending = (str(outcome), bytes(result or b""))
                self.endings[id] = ending
                if self.told.setdefault(id, ending) != ending:
                    raise Broken(f"C4: job {id.hex()} ended with {self.told[id]}, then with {ending}")
        for id in batch.erased:
            self.jobs.pop(id, None)
            self.endings.pop(id, None)


class ShardOracle:
    """The truths of all shards."""

    def __init__(self, logs: list[ModelLog]) -> None:
        self.logs = logs
        self.truths = [Truth() for _ in logs]
        self.keys: dict[str, bytes] = {}

    def look(self, log: ModelLog) -> None:
        """Read what a log has got."""
        self.truths[self._number(log)].advance(log)

    def _number(self, log: ModelLog) -> int:
        return next(number for number, each in enumerate(self.logs) if each is log)

    def purged(self, log: ModelLog) -> None:
        truth, left = self.truths[self._number(log)], Truth(log.first)
        left.advance(log)
        if left.jobs != truth.jobs or left.endings != truth.endings:
            lost = [id.hex() for id in truth.jobs if left.jobs.get(id) != truth.jobs[id]]
            raise Broken(f"C8: the purge changed {lost[:3]} of {len(truth.jobs)} jobs")
        bare = [id.hex() for id in left.jobs if id not in left.endings and id not in left.bodies]
        if bare:
            raise Broken(f"C8: the purge removed the payloads of {bare[:3]}")

    def owners(self, number: int, epochs: dict[str, int]) -> None:
        newest = [name for name, epoch in epochs.items() if epoch and epoch == self.truths[number].rule.epoch]
        if len(newest) > 1:
            raise Broken(f"C1: shard {number} is owned by {newest}")

    def acknowledged(self, number: int, id: bytes, key: str | None) -> None:
        if id not in self.truths[number].ever:
            raise Broken(f"C2: job {id.hex()} is acknowledged, and in no commit that counts")
        if key is not None and self.keys.setdefault(key, id) != id:
            raise Broken(f"C6: the key {key} has the jobs {self.keys[key].hex()} and {id.hex()}")

    def ran(self, number: int, token: Token) -> None:
        if number >= 0 and token not in self.truths[number].tokens:
            raise Broken(f"C3: attempt {token.hex()} was given to a worker, and is in no commit that counts")

    def told(self, number: int, id: bytes, outcome: str, result: bytes) -> None:
        found = self.truths[number].told.get(id)
        if found != (outcome, result):
            raise Broken(f"C4: job {id.hex()} was told to be {outcome}, and its log has {found}")

    def result_acknowledged(self, number: int, token: Token) -> None:
        if token in self.truths[number].jobs.values():
            raise Broken(f"C5: the result of {token.hex()} is acknowledged, and by the log it still runs")
