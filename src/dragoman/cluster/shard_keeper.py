"""Keeps the shards that this broker owns: claims their logs, restores their jobs, and lets them go again.

`shards.py` decides when, the log decides who (R114). Between the two, this is the life of a shard here:

    claim      the log is claimed and read (`log.py`); what is read collects in an image (`shard_image.py`)
    restore    the jobs of the image enter the core, one shard at a time and some jobs in each iteration
    owned      the store writes to the log, and new jobs of the shard are accepted
    release    jobs leave the core as soon as nothing of them waits for its commit; then the release is written
    evict      jobs leave the core at once: another broker has the shard

A running attempt of a restored job is waited for if the broker that has its worker lives, or if its worker can go to
another broker (R119), and lost otherwise. When a shard leaves, attempts that run here go on, and their outcome goes to
the next owner (`held_outcomes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.committed_acks import CommittedAcks
from dragoman.cluster.gossip import Gossip
from dragoman.cluster.held_outcomes import HeldOutcomes
from dragoman.cluster.hub import Hub
from dragoman.cluster.imports import PREFIX as IMPORT
from dragoman.cluster.imports import interrupted
from dragoman.cluster.log import Expected, ShardEvents, ShardLog
from dragoman.cluster.log_beginnings import missing_beginning
from dragoman.cluster.log_cleaner import LogCleaner
from dragoman.cluster.log_io import LogIO, ObservedLog
from dragoman.cluster.log_reader import ReadBatch
from dragoman.cluster.log_records import VERSION, Claim
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Failed, Held, Outcome, Result
from dragoman.cluster.reservations import Reservations
from dragoman.cluster.restore_order import RestoreOrder
from dragoman.cluster.scout import scout
from dragoman.cluster.shard_image import JobImage, ShardImage
from dragoman.cluster.shard_owners import ShardOwners
from dragoman.cluster.shard_signs import REPAIR, ShardSigns
from dragoman.cluster.shards import ShardActions, ShardPhase, Shards, ShardSettings
from dragoman.cluster.shards_in_use import shards_in_use
from dragoman.cluster.store import NOTES, Places, ShardStore
from dragoman.cluster.watches import Watches
from dragoman.cluster.writer_watch import watch_writer
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.groups import PREFIX as GROUP
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Job, Token
from dragoman.core.restore import StoredJob, restore

MANY: Final = 1 << 60  # jobs: more than any shard has
RESTORED_AT_ONCE: Final = 500  # jobs in one iteration
CLEAN_ABOVE: Final = 64 << 20  # bytes of a log besides twice its live rows
CONFIRM_WITHIN: Final = 2.0  # seconds in which a shard must prove that it is here, before something is denied
RELEASE_WITHIN: Final = 5.0  # seconds in which what waits for commits of a shard may end; then it is left behind


@final
class KeptShard(ShardEvents):
    """One shard at this broker."""

    def __init__(self, number: int, keeper: ShardKeeper, io: LogIO, new_claim: Callable[[], Claim], layout: Expected):
        self.number = number
        self.io = ObservedLog(io)
        self.log = ShardLog(self.io, self, new_claim, layout)
        self.image = ShardImage()
        self.claimed_at = 0.0
        self.claimed_time = 0  # the same moment by the server's clock
        self.restoring: Iterator[tuple[StoredJob, JobImage]] | None = None
        self.early: list[tuple[Peer | None, Outcome | Held]] = []  # they came before the jobs were restored
        self.due = -inf  # time of its next tick, unless something about its log changes before
        self.last_commit = -inf
        self.cleaner: LogCleaner | None = None
        self.live = 0  # bytes of the rows that the last cleaning has written
        self._keeper = keeper

    def claimed(self, epoch: int, now: float) -> None:
        self.claimed_at = now
        self._keeper.claimed(self, epoch, now)
        if self.cleaner is not None:
            self.cleaner.marked(now)

    def read(self, batches: list[ReadBatch], now: float) -> None:
        try:
            for batch in batches:
                self.image.take(batch)
        except Malformed as problem:
            self._keeper.distrust(self, f"{problem.detail}; {REPAIR}", now)

    def read_again(self, now: float) -> None:
        self.image = ShardImage()

    def owned(self, time: int, now: float) -> None:
        self.claimed_time = time
        self._keeper.all_read(self, now)

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        self.last_commit = now
        if self.cleaner is not None:
            self.cleaner.saved(ticket, first, last)
        self._keeper.saved(self, ticket, now)

    def measured(self, size: int) -> None:
        if self.cleaner is None:
            self.log.size = size
            self._keeper.measured(self.number)

    def released(self, now: float) -> None:
        self._keeper.released(self, now)

    def lost(self, reason: str, now: float) -> None:
        self._keeper.lost(self, reason, now)

    def alarm(self, reason: str, now: float) -> None:
        self._keeper.distrust(self, f"{reason}; {REPAIR}", now)


@final
class Confirmation:
    """Shards of which it is being proved that they are ours, since one moment."""

    __slots__ = ("alarm", "alarm_number", "confirmed", "done", "left", "problems")

    def __init__(self, shards: Iterable[int], done: Callable[[Confirmation], None]) -> None:
        self.left = dict.fromkeys(shards)
        self.confirmed: list[int] = []
        self.problems: dict[int, str] = {}  # the reason, for each that is not ours, or of which it is not known
        self.done = done
        self.alarm = inf
        self.alarm_number = 0


class ShardKeeper(ShardActions):
    """All shards of the cluster, at this broker."""

    def __init__(
        self,
        broker: Broker,
        hub: Hub,
        store: ShardStore,
        cluster: str,
        release: str,
        expected: Expected,
        logs: list[LogIO],
        settings: ShardSettings,
        now: float,
    ) -> None:
        """`logs`: of all shards, in their order."""
        known = (cluster, hub.name, hub.incarnation, len(logs))
        in_use = partial(shards_in_use, broker, hub, store.shard_of)
        self.shards = Shards(*known, self, now, settings, self._load, lambda: in_use(self.outcomes), hub.hearing)
        self.broker_name = hub.name
        self.identity = expected.identity  # of the layout
        self.outcomes = HeldOutcomes(ShardOwners(self.shards, hub, store.shard_of))
        self.keys = Reservations(broker.job_registry.pending_commits)
        self.watches = Watches(broker, hub, store, self.shards, self.owns, self._prove)
        self.claims: dict[str, int] = {}  # by their result
        self.cleanings = 0
        self.clean_above = CLEAN_ABOVE
        self._broker = broker
        self._hub = hub
        self._store = store
        self.acks = CommittedAcks(broker.job_registry.pending_commits, hub, self.outcomes, store.shard_of)
        self._restoring = RestoreOrder(hub)
        self._releasing: dict[int, float] = {}  # shards, with the time until which their jobs may be busy
        self._last_number = 0  # of restored jobs; they are below those of new ones
        self.has_imports = False  # jobs were imported, which may be in other shards than their ids say
        self._confirmations: Deadlines[Confirmation] = Deadlines()
        self._confirming: dict[Confirmation, None] = {}

        def new_claim() -> Claim:
            nonce = broker.entropy.token()
            return Claim(VERSION, hub.name, hub.incarnation, bytes(nonce), release, expected.identity)

        self.kept = [KeptShard(number, self, io, new_claim, expected) for number, io in enumerate(logs)]
        self.signs = ShardSigns(self.shards, [shard.log for shard in self.kept], hub)
        store.shards = len(logs)
        store.when_safe = self.acks.safe
        broker.job_registry.pending_commits.divide(store.shard_of, store.shard_of_note)

    # ---------------------------------------------------------------- for the cluster's side

    def tick(self, now: float) -> float:
        due = self.shards.tick(now)
        number = self._restoring.next(now)
        if number is not None:
            self._restore_some(self.kept[number], now)
        for releasing in list(self._releasing):
            self._step_release(self.kept[releasing], now)
        for shard in self.kept:
            if shard.io.has_changed or now >= shard.due:  # most iterations concern no log
                shard.io.has_changed = False
                shard.due = self._tick_shard(shard, now)
            due = min(due, shard.due)
        self.outcomes.tick(now)
        for late in self._confirmations.due(now):
            for number in list(late.left):
                self._unconfirmed(late, number, f"its log has not confirmed that it is at broker {self.broker_name}")
        due = min(due, self._store.tick(now), self.watches.tick(now), self._confirmations.next())
        is_stepping = self._broker.store_reports.step(now)
        is_busy = number is not None or is_stepping or self._releasing
        return now if is_busy else min(due, now + 0.05) if self._restoring else due

    def _tick_shard(self, shard: KeptShard, now: float) -> float:
        due = min(shard.log.tick(now), self.signs.tick(shard.number, now))
        if self.owns(shard.number):
            due = min(due, self._clean(shard, now), watch_writer(shard.log, shard.number, self._broker, now))
        return due

    def begin(self, now: float) -> None:
        """Look for shards that nobody owns. Call it when the other brokers have been heard."""
        for shard in self.kept:
            scout(shard.io, self.broker_name, partial(self.shards.unowned, shard.number), shard.log.heard, now)

    def verify(self, now: float) -> None:
        """Look if the shards are still ours: the connection to NATS is new."""
        for shard in self.kept:
            shard.log.verify(now)

    def owns(self, number: int) -> bool:
        """True if new jobs of this shard may be accepted here."""
        return 0 <= number < len(self.kept) and self.shards[number].phase is ShardPhase.OWNED

    def owned(self) -> list[int]:
        return [shard.number for shard in self.kept if self.owns(shard.number)]

    def confirm(
        self, shards: Iterable[int], within: float, done: Callable[[Confirmation], None], now: float
    ) -> Confirmation:
        """Prove by their logs that shards are ours now, before this broker says that something is not in them: another
        broker may have claimed them without its knowledge. `done` is called once, now or later."""
        asked = Confirmation(shards, done)
        for number in list(asked.left):
            self._confirm(asked, number, now)
        if asked.left:
            self._confirming[asked] = None
            self._confirmations.arm(asked, now + within)
        else:
            done(asked)
        return asked

    def _prove(self, shards: Sequence[int], done: Callable[[Sequence[int]], None]) -> None:
        self.confirm(shards, CONFIRM_WITHIN, lambda asked: done(asked.confirmed), self._store.now())

    def _confirm(self, asked: Confirmation, number: int, now: float) -> None:
        def confirmed(then: float) -> None:
            if number in asked.left:
                asked.confirmed.append(number)
                self._took(asked, number)

        shard = self.kept[number]
        problem = shard.log.confirm(confirmed, now) if self.owns(number) else "it is not at this broker"
        shard.io.has_changed = True  # its log may have something to do later
        if problem:
            asked.problems[number] = problem
            asked.left.pop(number, None)

    def _unconfirmed(self, asked: Confirmation, number: int, reason: str) -> None:
        asked.problems[number] = reason
        self._took(asked, number)

    def _took(self, asked: Confirmation, number: int) -> None:
        del asked.left[number]
        if not asked.left and asked in self._confirming:
            del self._confirming[asked]
            self._confirmations.disarm(asked)
            asked.done(asked)

    def _load(self, number: int) -> int:
        """Return the number of jobs in a shard. One whose log is lost is given up last: its jobs are only here."""
        return MANY if self.kept[number].log.loss else self._store.jobs.get(number, 0)

    def ends(self) -> dict[int, int]:
        """Return the last sequence of the log of each shard that is owned here."""
        logs = {shard.number: shard.log for shard in self.kept if self.owns(shard.number)}
        return {number: log.writer.last for number, log in logs.items() if log.writer is not None}

    def heard(self, gossip: Gossip, now: float) -> None:
        """Note the shards of another broker, and sequences that logs have had, as it tells (C9)."""
        for each in (gossip.shards, gossip.ends):
            for number, sequence in each.items():
                if 0 <= number < len(self.kept):
                    self.kept[number].log.heard(sequence)
        owned, is_resting = gossip.shards, gossip.resting
        self.shards.heard(gossip.broker, gossip.incarnation, owned, gossip.draining, now, is_resting=is_resting)

    def log_bytes(self, number: int) -> int:
        """Return the size of the log of a shard that is owned here: at the last look, and what was written since."""
        return self.kept[number].log.size + self._store.bytes.get(number, 0)

    def measured(self, number: int) -> None:
        if number in self._store.attached:
            self._store.bytes[number] = 0

    def shard_of(self, id: bytes) -> int:
        """Return the shard of a job, a group or an attempt; -1: it is in none."""
        return self._store.shard_of(id)

    def outcome(self, peer: Peer | None, record: Result | Failed, attempt: Attempt | None, now: float) -> bool:
        """Take the outcome of an attempt of a background job. False: it is not for us, or not yet. `attempt`: if it is
        known. `peer`: the broker that had the worker; None: this one."""
        token = Token(record.token)
        number = self.shard_of(token)
        if number < 0 or self.acks.is_ending(token):
            return False  # the same outcome came before
        if not self.owns(number) and not self._is_releasing(number):
            if self.shards[number].epoch:
                self.kept[number].early.append((peer, record))
            return False  # else it is sent to the owner, when the gossip shows one
        if attempt is None and self._is_releasing(number):
            return False  # its job may have left already: the next owner wants it
        is_current = attempt is not None and attempt.job.attempt is attempt
        if attempt is not None:
            self._hub.finish(attempt, record, now)  # if it is late, it frees a slot
        if is_current:
            self.acks.ended(token, peer)
        else:
            self.acks.told(token, peer)  # that it has ended may not be in the log yet
        return True

    def is_here(self, peer: Peer | None, record: Outcome | Held) -> bool:
        """True if the shard of an attempt is here. If it is being restored, the record is kept until it is."""
        number = self.shard_of(record.token)
        if number >= 0 and not self.owns(number) and not self._is_releasing(number) and self.shards[number].epoch:
            self.kept[number].early.append((peer, record))
        return self.owns(number)

    def _is_releasing(self, number: int) -> bool:
        return self.shards[number].phase is ShardPhase.RELEASING

    # ---------------------------------------------------------------- decisions of `Shards`

    def claim(self, shard: int, now: float) -> None:
        kept = self.kept[shard]
        kept.image = ShardImage()
        kept.log.claim(now)

    def withdraw(self, shard: int) -> bool:
        return self.kept[shard].log.withdraw()

    def release(self, shard: int, now: float) -> None:
        self._releasing[shard] = now + RELEASE_WITHIN

    def evict(self, shard: int, reason: str, now: float) -> None:
        kept = self.kept[shard]
        kept.log.abandon()
        self._count("lost")
        self._let_go(kept, reason, now)

    # ---------------------------------------------------------------- events of the logs

    def claimed(self, shard: KeptShard, epoch: int, now: float) -> None:
        self.shards.claimed(shard.number, epoch, now)

    def all_read(self, shard: KeptShard, now: float) -> None:
        unfinished = interrupted(shard.image.notes)
        begun = f"the import of file {unfinished} was interrupted; run `dragoman import` again"
        reason = begun if unfinished else missing_beginning(shard.image.notes, shard.log.first)
        if reason:
            self.distrust(shard, reason, now)
            return
        shard.restoring = shard.image.stored(shard.claimed_time, shard.claimed_at)
        self._store.attach(shard.number, shard.log, shard.io)
        self._store.notes[shard.number].update(shard.image.notes)
        self._store.jobs[shard.number] = len(shard.image.jobs)
        self._restoring.add(shard.number, now)

    def saved(self, shard: KeptShard, ticket: int, now: float) -> None:
        self._store.saved(ticket, now)

    def released(self, shard: KeptShard, now: float) -> None:
        self._hub.remark("shard released", "info", shard=shard.number)
        self.shards.released(shard.number, now)

    def lost(self, shard: KeptShard, reason: str, now: float) -> None:
        self._count("refused" if self.shards[shard.number].phase is ShardPhase.CLAIMING else "lost")
        self._let_go(shard, reason, now)
        self.shards.refused(shard.number, now)

    def distrust(self, shard: KeptShard, reason: str, now: float) -> None:
        """The log cannot be used: it is not claimed until a person has looked (R116)."""
        self._count("alarm")
        shard.log.abandon()
        self._let_go(shard, reason, now)
        self.shards.alarmed(shard.number, reason, now)
        self._hub.remark("shard log unusable", "error", shard=shard.number, reason=reason)

    def _count(self, result: str) -> None:
        self.claims[result] = self.claims.get(result, 0) + 1

    # ---------------------------------------------------------------- restoring

    def _restore_some(self, shard: KeptShard, now: float) -> None:
        """Restore some jobs of a shard. One shard at a time: jobs may need each other's outcomes, which stay (R192)."""
        assert shard.restoring is not None
        try:
            if not self._broker.job_registry.kept.archive.is_frozen:
                self._restore_notes(shard.number, shard.image.notes, now)
            for _ in range(RESTORED_AT_ONCE):
                found = next(shard.restoring, None)
                if found is None:
                    self._restored(shard, now)
                    return
                self._restore(shard, *found, now)
        except Malformed as problem:
            self.distrust(shard, f"{problem.detail}; {REPAIR}", now)

    def _restore_notes(self, number: int, notes: dict[str, str], now: float) -> None:
        """Restore groups, pins, keys and settings of a shard, before its jobs. Raises Malformed."""
        registry = self._broker.job_registry
        registry.kept.archive.is_frozen = True
        for key in notes:
            if key.startswith(GROUP):
                self._store.note_home(bytes.fromhex(key.removeprefix(GROUP)), number)
        registry.groups.restore(notes)
        self.watches.jobs.restore(number, notes)
        self.keys.restore(number, notes)
        try:
            registry.remembered.restore(notes, now, number)
        except ValueError as error:
            raise Malformed("bad note", str(error)) from None
        if number == NOTES:
            self._hub.settings_read(notes, now)

    def _restore(self, shard: KeptShard, kept: StoredJob, image: JobImage, now: float) -> None:
        broker = self._broker
        namesake = broker.jobs.get(kept.id)
        if namesake is not None:  # it runs here, for the earlier owner
            broker.eviction.rename(namesake, broker.entropy.job_id())
        self._store.note_home(kept.id, shard.number)
        self._last_number -= 1
        kept.number = self._last_number
        if kept.token is not None:
            kept.is_elsewhere = self._hub.is_held(kept.token, image.holder)
            if any(type(record) is Held and record.token == kept.token for _, record in shard.early):
                kept.can_resume = True  # its worker has appeared at another broker
        self._store.places[kept.id] = Places(image.payload, image.payload_of, image.result)
        job = restore(broker, kept, now, self._hub)
        if kept.is_elsewhere and job.attempt is not None:
            self._hub.adopt(job.attempt, image.holder, now)

    def _restored(self, shard: KeptShard, now: float) -> None:
        registry = self._broker.job_registry
        registry.kept.archive.is_frozen = False
        registry.groups.loaded(now)
        self._restoring.remove(shard.number)
        shard.restoring = None
        jobs, notes, shard.image = len(shard.image.jobs), shard.image.notes, ShardImage()
        self.has_imports = self.has_imports or any(key.startswith(IMPORT) for key in notes)
        self._count("won")
        self.shards.owned(shard.number, now)
        self._hub.remark("shard owned", "info", shard=shard.number, epoch=shard.log.epoch, jobs=jobs)
        self.watches.jobs.restored(shard.number)
        if shard.number == NOTES:
            self._hub.notes_restored(notes, now)
        early, shard.early = shard.early, []
        for peer, record in early:
            self._hub.take(peer, record, now)

    # ---------------------------------------------------------------- cleaning

    def _clean(self, shard: KeptShard, now: float) -> float:
        """Clean the log of a shard when most of it is not true any more."""
        cleaner = shard.cleaner
        if cleaner is None:
            size = self.log_bytes(shard.number)
            if size <= 2 * shard.live + self.clean_above:
                return inf
            cleaner = shard.cleaner = LogCleaner(shard.number, shard.log, self._broker, self._store, now)
        due = cleaner.tick(now)
        if cleaner.is_over:
            shard.cleaner = None
            shard.live = shard.log.size = cleaner.written
            self._store.bytes[shard.number] = 0
            self.cleanings += 1
            self._hub.remark("shard log cleaned", "info", shard=shard.number, bytes=cleaner.written)
        return due

    # ---------------------------------------------------------------- letting go

    def jobs_of(self, number: int) -> list[Job]:
        shard_of = self._store.shard_of
        return [job for job in self._broker.jobs.values() if job.options.durable and shard_of(job.id) == number]

    def _let_go(self, shard: KeptShard, reason: str, now: float) -> None:
        """Drop everything of a shard, at once."""
        is_known = shard.number in self._store.attached
        if self._restoring.current == shard.number:
            self._broker.job_registry.kept.archive.is_frozen = False
        self._restoring.remove(shard.number)
        shard.restoring = None
        shard.image = ShardImage()
        shard.early = []
        shard.cleaner = None
        self._releasing.pop(shard.number, None)
        if is_known:
            self._drop(shard, now)
            self._hub.remark("shard lost", "warning", shard=shard.number, reason=reason)
        for asked in [each for each in self._confirming if shard.number in each.left]:
            self._unconfirmed(asked, shard.number, reason)

    def _drop(self, shard: KeptShard, now: float) -> None:
        number = shard.number
        self.acks.leave(number)
        groups = [each for each in self._broker.job_registry.groups.by_id.values() if self.shard_of(each.id) == number]
        jobs = self.jobs_of(number)
        self.watches.drop(number)
        self.keys.leave(number)
        self._broker.job_registry.remembered.leave(number)
        self._broker.eviction.evict(jobs, groups, self._hub.heir, now)
        for job in jobs:
            self._store.places.pop(job.id, None)
        self._store.detach(number)
        self._broker.store_reports.shard_left(number)
        if number == NOTES:
            self._hub.notes_lost(now)

    def _step_release(self, shard: KeptShard, now: float) -> None:
        """Let jobs go that wait for no commit; when all have gone, write the release."""
        number = shard.number
        held = self._broker.job_registry.pending_commits.held_jobs(number)
        jobs = self.jobs_of(number)
        held |= {job.id for job in jobs if job.attempt is not None and not job.attempt.is_sent}  # by the log, it runs
        is_busy = self._store.is_writing(number) or any(job.id in held for job in jobs)
        if is_busy and now < self._releasing[number] and not shard.log.loss:
            groups = self._broker.job_registry.groups
            quiet = [job for job in jobs if job.id not in held and groups.of(job) is None]
            self._broker.eviction.evict(quiet, (), self._hub.heir, now)
            return
        self._releasing.pop(shard.number, None)
        shard.cleaner = None
        self._drop(shard, now)
        if shard.log.loss:  # no release can be written
            self.distrust(shard, f"{shard.log.loss}; {REPAIR}", now)
        else:
            shard.log.release(now)
