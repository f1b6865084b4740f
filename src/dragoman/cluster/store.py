"""The store of a broker in a cluster: it writes to the logs of the shards that this broker owns.

The entries of one iteration are grouped by shard, and each group is a batch of its log: all or nothing. What waits for
a commit of a shard goes on when the log of that shard has it, so a shard whose log cannot be written delays no other.
The batches of one iteration are reported together if their logs take about as long: then what follows from them is in
few batches again. A log that takes longer is not waited for.
Entries of a shard that this broker does not own are dropped: another broker decides about its jobs.

State that belongs to no job is in shard 0, so that one broker decides about it: pauses, limits, schedules. Groups are
where their members are, in one shard with all of them, so that a group is accepted in one batch. Notes about jobs that
jobs of other shards wait for are with the former (`watched_jobs.py`); notes about keys are in the shard of the key
(`reservations.py`).

Payloads and results of jobs that an earlier owner wrote stay in the log until they are needed; the store keeps the
place of each (about 100 bytes a job). All others are in the memory of the core, within its limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Final, final

from dragoman.cluster.log import ShardLog
from dragoman.cluster.log_fetch import Fetch, payload_in, result_in
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.shard_bytes import shard_in
from dragoman.cluster.shard_image import Place
from dragoman.cluster.shard_rows import Batch, BatchWriter
from dragoman.core.failure import Failure
from dragoman.core.groups import PREFIX as GROUP
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.model import ABSENT, Attempt, Job, JobId, Payload
from dragoman.core.remembered import CLIENT, FORGOTTEN
from dragoman.core.store_entries import DeleteJob, Saved, StoreJob, StoreValue
from dragoman.store.rows import RowEncoder, read_result

TOGETHER: Final = 0.05  # seconds for which a batch waits for others of its iteration
OVERDUE: Final = 30.0  # seconds in which a commit succeeds, whatever happens to one server
NOTES: Final = 0  # the shard of everything that belongs to no job
WATCH: Final = "watch/"  # of the keys of notes about jobs that others wait for: their shard follows
KEY: Final = "key/"  # of the keys of notes about idempotency keys: their shard follows


@final
class Turn:
    """The batches of one iteration that are reported together."""

    __slots__ = ("made", "pending", "saved")

    def __init__(self, made: float) -> None:
        self.made = made
        self.pending = 0  # number of batches that are not saved
        self.saved: list[Ticket] = []  # not reported yet


@final
class Ticket:
    """A batch on its way to a log."""

    __slots__ = ("done", "made", "number", "shard", "turn")

    def __init__(self, shard: int, number: int, done: Saved | None, made: float, turn: Turn | None) -> None:
        self.shard = shard
        self.number = number  # of its newest save
        self.done = done  # None: nothing waits for it
        self.turn = turn  # None: it is reported alone
        self.made = made


@final
class Places:
    """Commits that have the payload and the result of a job that is not in memory."""

    __slots__ = ("payload", "payload_of", "result")

    def __init__(self, payload: Place | None, payload_of: bytes, result: Place | None) -> None:
        self.payload = payload
        self.payload_of = payload_of  # the job with which it was written
        self.result = result


class ShardStore:
    """Implements the store's protocol of the runner. `clock` returns the broker's time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.commits = Histogram()
        self.shards = 0  # number of shards of the cluster; 0: not known yet
        self.written = 0  # batches that are in a log
        self.places: dict[JobId, Places] = {}
        self.homes: dict[JobId, bytes] = {}  # of jobs and groups whose ids name another shard; see `shard_of`
        self.notes: dict[int, dict[str, str]] = {}  # of each shard
        self.jobs: dict[int, int] = {}  # number of jobs of each shard
        self.bytes: dict[int, int] = {}  # of each shard: written since it was attached, or set by who cleaned it
        self.holder_of: Callable[[Attempt], str] = lambda attempt: ""
        self.when_safe: Callable[[int, int], None] = lambda shard, number: None
        self.when_lost: Callable[[int, int], None] = lambda shard, number: None  # it is not known if this is stored
        self.when_unread: Callable[[JobId], None] = lambda id: None  # tells who waits for the payload of a job
        self.outage: Callable[[], str | None] = lambda: "NATS has not been reached yet"
        self.encoder = RowEncoder()
        self._clock = clock
        self._logs: dict[int, tuple[ShardLog, LogIO]] = {}
        self._left: set[int] = set()  # shards that were detached since entries were applied
        self._last_ticket = 0
        self._tickets: dict[int, Ticket] = {}
        self._turns: deque[Turn] = deque()
        self._fetches: list[tuple[int, Fetch, JobId]] = []

    # ---------------------------------------------------------------- shards

    @property
    def attached(self) -> Collection[int]:
        """The shards that are written."""
        return self._logs.keys()

    def attach(self, shard: int, log: ShardLog, io: LogIO) -> None:
        """Write the entries of this shard to its log from now on."""
        self._logs[shard] = (log, io)
        self.notes[shard] = {}
        self.jobs[shard] = self.bytes[shard] = 0

    def detach(self, shard: int) -> None:
        """Wait no more for the log of a shard, and write nothing more to it."""
        self._logs.pop(shard, None)
        self._left.add(shard)
        self.notes.pop(shard, None)
        self.jobs.pop(shard, None)
        self.bytes.pop(shard, None)
        for id in [id for id, home in self.homes.items() if home[0] == shard]:
            del self.homes[id]
        numbers = [number for number, ticket in self._tickets.items() if ticket.shard == shard]
        unsaved = [self._tickets.pop(number) for number in numbers]
        unread = [entry for entry in self._fetches if entry[0] == shard and not entry[1].is_over]
        self._fetches = [entry for entry in self._fetches if entry[0] != shard]
        for _, fetch, id in unread:
            fetch.abandon()
            self.when_unread(id)
        for ticket in unsaved:
            if ticket.turn is not None:
                ticket.turn.pending -= 1
            if ticket.done is not None:
                self._safe(shard, ticket.number, ticket.done, is_lost=True)
        self._report(self._clock())

    def shard_of(self, id: bytes) -> int:
        """Return the shard of a job, a group or an attempt; -1: it is in none. An imported job may be in another shard
        than its id says; that is known if the shard is here."""
        home = self.homes.get(JobId(id)) if self.homes else None
        return home[0] if home is not None else shard_in(id, self.shards)

    def note_home(self, id: bytes, shard: int) -> None:
        """A job or a group was found in a shard."""
        if shard_in(id, self.shards) != shard:
            self.homes[JobId(id)] = bytes((shard,))

    def is_writing(self, shard: int) -> bool:
        """True if a batch of this shard is on its way."""
        return any(ticket.shard == shard for ticket in self._tickets.values())

    def saved(self, number: int, now: float) -> None:
        """A batch is in its log."""
        ticket = self._tickets.pop(number, None)
        if ticket is None:
            return
        self.written += 1
        self.commits.observe(max(0.0, now - ticket.made))
        turn = ticket.turn
        if turn is not None:
            turn.pending -= 1
            turn.saved.append(ticket)
            self._report(now)
        elif ticket.done is not None:
            self._safe(ticket.shard, ticket.number, ticket.done)

    def _report(self, now: float) -> None:
        """Report the turns that are complete, in order, and what is saved of those that have waited for long enough."""
        turns = self._turns
        while turns and (not turns[0].pending or now >= turns[0].made + TOGETHER):
            turn = turns.popleft()
            if turn.pending:
                for ticket in self._tickets.values():
                    if ticket.turn is turn:
                        ticket.turn = None
            for ticket in turn.saved:
                if ticket.done is not None:
                    self._safe(ticket.shard, ticket.number, ticket.done)

    def _safe(self, shard: int, number: int, done: Saved, is_lost: bool = False) -> None:
        """All saves of a shard up to this one are in its log; or the shard has left, and nobody knows if they are."""
        if is_lost:
            self.when_lost(shard, number)
        done(number, None, shard)
        self.when_safe(shard, number)

    # ---------------------------------------------------------------- for the runner

    def apply(self, entries: list[StoreJob | StoreValue | DeleteJob], done: Saved) -> None:
        now = self._clock()
        writers: dict[int, BatchWriter] = {}
        numbers: dict[int, int] = {}  # of the newest save of each shard; 0: only deletes that nobody waits for
        lost: set[int] = set()
        for entry in entries:
            shard = entry.shard
            numbers[shard] = max(numbers.get(shard, 0), entry.number)
            if shard not in self._logs:  # it left in this iteration, or these are notes of shard 0 from its owner
                if isinstance(entry, StoreJob) or shard in self._left:
                    lost.add(shard)
                continue
            writer = writers.get(shard)
            if writer is None:
                writer = writers[shard] = BatchWriter(self.encoder, now)
            self._add(entry, writer, shard)
        self._left.clear()
        turn = Turn(now)
        for shard, number in numbers.items():
            if shard in writers:
                together = None if not number or self._is_slow(shard, now) else turn
                if together is not None:
                    together.pending += 1
                self.add(shard, writers[shard].encode(), now, number, done if number else None, together)
            elif number:
                self._safe(shard, number, done, is_lost=shard in lost)
        if turn.pending or turn.saved:
            self._turns.append(turn)
            self._report(now)

    def _is_slow(self, shard: int, now: float) -> bool:
        """True if other shards do not wait for this one."""
        log = self._logs[shard][0]
        return bool(log.loss) or (log.writer is not None and now - log.writer.waiting_since >= TOGETHER)

    def add(
        self,
        shard: int,
        batch: bytes,
        now: float,
        number: int = 0,
        done: Saved | None = None,
        turn: Turn | None = None,
    ) -> int:
        """Write a batch to the log of an owned shard. Returns its ticket."""
        self._last_ticket += 1
        self._tickets[self._last_ticket] = Ticket(shard, number, done, now, turn)
        ticket = self._last_ticket
        self.bytes[shard] += len(batch)
        self._logs[shard][0].add(ticket, batch, now)
        return ticket

    @property
    def next_ticket(self) -> int:
        """The ticket of the next batch."""
        return self._last_ticket + 1

    def now(self) -> float:
        return self._clock()

    def is_fetching(self, shard: int) -> bool:
        """True if something of this shard is being read."""
        return any(number == shard and not fetch.is_over for number, fetch, _ in self._fetches)

    def shard_of_note(self, key: str) -> int:
        """Return the shard of a value that belongs to no job."""
        if key.startswith(GROUP):
            return self.shard_of(bytes.fromhex(key.removeprefix(GROUP)))
        if key.startswith((WATCH, KEY, CLIENT, FORGOTTEN)):
            return int(key.split("/")[1])
        return NOTES

    def _add(self, entry: StoreJob | StoreValue | DeleteJob, writer: BatchWriter, shard: int) -> None:
        if isinstance(entry, StoreValue):
            notes = self.notes[shard]
            if entry.value is None:
                notes.pop(entry.key, None)
                if entry.key.startswith(GROUP):
                    self.homes.pop(JobId(bytes.fromhex(entry.key.removeprefix(GROUP))), None)
            else:
                notes[entry.key] = entry.value
            writer.add_note(entry.key, entry.value)
            return
        job = entry.job
        if isinstance(entry, DeleteJob):
            self.places.pop(job.id, None)
            self.homes.pop(job.id, None)
            self.jobs[shard] -= 1
            writer.add_erased(job.id)
        elif entry.number == job.number:
            if job.payload is ABSENT and job.retry_of is not None:
                first = self.places.get(job.retry_of, NOWHERE)
                self.places[job.id] = Places(first.payload, first.payload_of, None)
            self.jobs[shard] += 1
            writer.add_job(job)
        else:
            if entry.rewrites:
                writer.add_head(job)
            if entry.has_new_payload:
                writer.add_payload(job)
            writer.add_status(job, self.holder(job))

    def holder(self, job: Job) -> str:
        """Return the run of the broker that has the worker of a job; empty: it does not run."""
        return self.holder_of(job.attempt) if job.attempt is not None else ""

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """Read what is not in memory from the log. If the shard is lost meanwhile, `when_unread` is
        called instead."""
        now = self._clock()
        place = self.places.get(job.id, NOWHERE)
        found: dict[str, Payload] = {}
        wanted = {}
        if job.payload is ABSENT and place.payload is not None:
            wanted["payload"] = place.payload
        if job.result is ABSENT and place.result is not None:
            wanted["result"] = place.result
        left = len(wanted)

        def finish() -> None:
            payload = found.get("payload", b"" if job.payload is ABSENT else job.payload)
            if job.result is ABSENT:
                done(payload, *read_result(job, found.get("result", b"")))
            else:
                done(payload, job.result, job.failure)

        def collect(name: str) -> Callable[[list[Batch], float], None]:
            def read(batches: list[Batch], then: float) -> None:
                nonlocal left
                if name == "payload":
                    found[name] = payload_in(batches, place.payload_of)
                else:
                    found[name] = result_in(batches, job.id)
                left -= 1
                if not left:
                    finish()

            return read

        if not wanted:
            finish()
            return
        shard = self.shard_of(job.id)
        log = self._logs.get(shard)
        if log is None:
            self.when_unread(job.id)
            return
        for name, where in wanted.items():
            self._fetches.append((shard, Fetch(log[1], where, collect(name), now), job.id))

    def tick(self, now: float) -> float:
        """Repeat reads that are due, and report what has waited. Returns the time of the next call."""
        self._report(now)
        due = self._turns[0].made + TOGETHER if self._turns else inf
        if self._fetches:
            for _, fetch, _ in self._fetches:
                fetch.tick(now)
            self._fetches = [entry for entry in self._fetches if not entry[1].is_over]
            due = min(due, min([fetch.retry_at for _, fetch, _ in self._fetches], default=inf))
        return due

    def close(self) -> str | None:
        return None

    def delays(self) -> dict[int, str]:
        """Return a sentence for each shard that cannot be written, or has had no commit for a while, although one was
        due."""
        now = self._clock()
        found = {}
        for shard, (log, _) in self._logs.items():
            problem, writer = self.problem_of(shard), log.writer
            if problem is not None:
                found[shard] = problem
            elif writer is not None and now - writer.waiting_since >= OVERDUE:
                found[shard] = f"shard {shard} has waited for a commit for {now - writer.waiting_since:.0f} s"
        return found

    @property
    def problem(self) -> str | None:
        """The reason why no new jobs can be written now. One shard that can be written is enough."""
        problem = self.outage()
        if problem is not None or not self._logs:
            return problem
        problems = [self.problem_of(shard) for shard in self._logs]
        return None if None in problems else problems[0]

    def problem_of(self, shard: int) -> str | None:
        """Return the reason why new jobs of a shard cannot be written now."""
        problem = self.outage()
        if problem is not None or shard not in self._logs:
            return problem
        log = self._logs[shard][0]
        problem = log.loss or (log.writer.problem if log.writer is not None else "")
        return f"shard {shard}: {problem}" if problem else None


NOWHERE: Final = Places(None, b"", None)
