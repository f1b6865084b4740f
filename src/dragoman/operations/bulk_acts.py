"""Acts on many jobs: retry, cancel, delete, purge, and the retry of a group of the quarantine.

An act first looks at all jobs, then handles those that match, oldest first. Both are done in small steps, one in each
iteration of the loop, so that other messages do not wait. The jobs of a step are stored in one commit, and the next
step follows it: what was committed is done, the rest is untouched. Acts are in memory, so a restart ends them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.events import ADMINISTERED
from dragoman.core.infinity import inf
from dragoman.core.model import Job
from dragoman.core.owners import Owner
from dragoman.core.shares import Shares, holder_of
from dragoman.operations.schemas import OperationError
from dragoman.operations.visibility import owns_job

BUSY_DELAY: Final = 1.0  # seconds until the next try if a limit is reached
UNSETTLED_DELAY: Final = 0.02  # seconds until the next look if another broker has to answer first
BATCH: Final = 50  # jobs that are handled in one iteration
LOOK: Final = 500  # jobs that are looked at in one iteration
SAVE_CHECK: Final = 0.01  # seconds until the next step if the store wrote in the same iteration, where nothing wakes
MOST_ACTIVE: Final = 100  # acts at the same time
MOST_ENDED: Final = 1_000  # ended acts that are remembered
REMEMBERED: Final = 600.0  # seconds for which an ended act is remembered
SHUTTING_DOWN: Final = "the broker is shutting down; repeat the request later"

Matches = Callable[[Job], bool]
Handle = Callable[[Job, float], object]  # raises OperationError: `busy` if the job can be handled later; or Unsettled
WhenSaved = Callable[[Callable[[str | None], None], Collection[int]], None]


class Unsettled(Exception):
    """Another broker has to answer before it is known whether a job can be handled."""


class BulkAct:
    """One act, from its request to its end."""

    __slots__ = (
        "_handle",
        "_looked_at",
        "_matches",
        "_rate",
        "_todo",
        "_unsaved",
        "act",
        "done",
        "due",
        "ended_at",
        "first",
        "group",
        "holder",
        "id",
        "is_counted_only",
        "is_foreign",
        "is_saving",
        "is_stopped",
        "kept_first",
        "lease",
        "left_out",
        "left_out_reason",
        "of",
        "operation",
        "origin",
        "owner",
        "problem",
        "quarantined",
        "seen",
        "service",
        "waiting",
    )

    def __init__(
        self,
        id: str,
        act: str,
        operation: str,
        owner: Owner,
        handle: Handle,
        now: float,
        *,
        service: str = "",
        rate: float | None = None,
        lease: float | None = None,
        kept_first: int = 0,
        origin: str = "",
    ) -> None:
        """`service`: the one that all its jobs have; empty: several. `kept_first`: number of jobs for its view.
        `origin`: that of the request, for the log line of an administrator's act (R151)."""
        self.id = id
        self.act = act
        self.operation = operation
        self.owner = owner
        self.holder = holder_of(owner.principal, owner.address)  # of its place
        self.origin = origin
        self.service = service
        self.group = ""  # of the quarantine, if it retries one
        self.lease = lease
        self.seen = now  # time of the last request for its progress
        self.due = now
        self.of = 0
        self.quarantined = 0
        self.done = 0
        self.left_out = 0
        self.left_out_reason = ""
        self.problem = ""
        self.kept_first = kept_first
        self.first: list[Job] = []
        self.is_foreign = False  # it has handled a job of another principal
        self.is_counted_only = False
        self.is_stopped = False
        self.is_saving = False
        self.ended_at = inf
        self.waiting: list[Callable[[], None]] = []  # called when the first jobs are done
        self._handle = handle
        self._rate = rate
        self._matches: Matches | None = None
        self._looked_at: Iterator[Job] | None = None
        self._todo: deque[Job] = deque()
        self._unsaved = 0

    def look_at(self, jobs: Iterable[Job], matches: Matches) -> None:
        """Let it handle those of these jobs that match."""
        self._looked_at = iter(jobs)
        self._matches = matches

    def add(self, jobs: Iterable[Job]) -> None:
        """Let it handle these jobs."""
        for job in jobs:
            self._todo.append(job)
            self.of += 1
            self.quarantined += job.quarantined
            if len(self.first) < self.kept_first:
                self.first.append(job)

    @property
    def is_looking(self) -> bool:
        return self._looked_at is not None and not self.is_stopped

    @property
    def is_over(self) -> bool:
        return self.is_stopped or (self._looked_at is None and (self.is_counted_only or not self._todo))

    def stop(self, problem: str = "") -> None:
        self.is_stopped = True
        self.problem = problem
        self._todo.clear()
        self._looked_at = None

    def look(self) -> None:
        """Look at the next jobs."""
        assert self._looked_at is not None
        assert self._matches is not None
        matches = self._matches
        chunk = list(islice(self._looked_at, LOOK))
        self.add(job for job in chunk if matches(job))
        if len(chunk) < LOOK:
            self._looked_at = None

    def step(self, now: float) -> dict[str, int]:
        """Handle the jobs that are due. Returns the numbers of those that were handled, by service."""
        handled: dict[str, int] = {}
        for _ in range(BATCH):
            if not self._todo or self.due > now:
                break
            job = self._todo[0]
            try:
                self._handle(job, now)
            except Unsettled:
                self.due = now + UNSETTLED_DELAY
                break
            except OperationError as error:
                if error.problem.kind == "busy":
                    self.problem = error.problem.detail
                    self.due = now + BUSY_DELAY
                    break
                self.left_out += 1
                self.left_out_reason = self.left_out_reason or error.problem.detail
            else:
                self.problem = ""
                self._unsaved += 1
                name = job.service.name
                handled[name] = handled.get(name, 0) + 1
                self.is_foreign = self.is_foreign or not owns_job(self.owner.principal, job)
                if self._rate is not None:
                    self.due += 1.0 / self._rate
            self._todo.popleft()
        return handled

    def saved(self, problem: str | None) -> None:
        """The jobs of the last step are on disk, or cannot be stored."""
        self.is_saving = False
        unsaved, self._unsaved = self._unsaved, 0
        if problem is None:
            self.done += unsaved
        else:
            self.stop(f"store unavailable: {problem}")


class BulkActs:
    """All acts that have not ended, and those that have ended lately."""

    __slots__ = ("_broker", "_shares", "_when_saved", "active", "ended", "wake", "when_over", "when_retried")

    def __init__(self, broker: Broker, when_saved: WhenSaved) -> None:
        """`when_saved` calls back when everything decided so far in some shards is committed."""
        self.active: dict[str, BulkAct] = {}
        self._shares = Shares(MOST_ACTIVE)  # by principal (R254)
        self.ended: dict[str, BulkAct] = {}
        self.wake: Callable[[], None] = lambda: None  # makes the next iteration call `step`
        self.when_retried: Callable[[str, int, float], None] = lambda service, jobs, now: None  # called for each step
        self.when_over: Callable[[BulkAct], None] = lambda act: None
        self._broker = broker
        self._when_saved = when_saved

    def find(self, id: str) -> BulkAct | None:
        return self.active.get(id) or self.ended.get(id)

    def find_group(self, group: str, principal: str) -> BulkAct | None:
        """Return the retry of this group that the principal has requested and that has not ended."""
        for each in self.active.values():
            if each.group == group and each.owner.principal.name == principal:
                return each
        return None

    def require_place(self, owner: Owner) -> None:
        """Raise OperationError if this owner may not begin one more."""
        if not self._shares.allows(owner):
            text = self._shares.problem(owner, "acts on many jobs in progress", "")
            raise OperationError("busy", f"{text}; wait for one to end")

    def _oldest_of_most(self) -> str:
        """Return the oldest ended act of the holder that has most of them."""
        count = Counter(each.holder for each in self.ended.values())
        most = max(count.values())
        return next(id for id, each in self.ended.items() if count[each.holder] == most)

    def start(self, act: BulkAct, answer: Callable[[], None], now: float) -> None:
        """Begin. `answer` is called when its first jobs are done."""
        act.waiting.append(answer)
        self.active[act.id] = act
        self._shares.enter(act.holder)
        self._step(act, now)
        self.wake()

    def stop(self, act: BulkAct, answer: Callable[[], None], now: float) -> None:
        """Stop an act. `answer` is called when what it has done is on disk."""
        if act.id in self.active:
            act.waiting.append(answer)
            act.stop("stopped on request")
            self._step(act, now)
        else:
            answer()

    def step(self, now: float) -> float:
        """Continue all acts. Returns the time of the next step."""
        due = inf
        for act in list(self.active.values()):
            self._step(act, now)
            if act.is_saving:
                due = min(due, now + SAVE_CHECK)
            elif act.id in self.active:
                due = min(due, act.due if not act.is_looking else now)
                if act.lease is not None:
                    due = min(due, act.seen + act.lease)
        return due

    def _step(self, act: BulkAct, now: float) -> None:
        if act.is_saving:
            return  # `_saved` continues
        if self._broker.dispatch.is_draining and not act.is_over:
            act.stop(SHUTTING_DOWN)
        elif act.lease is not None and now >= act.seen + act.lease and not act.is_over:
            act.stop(f"nobody has asked for its progress for {act.lease:g} s")
        if act.is_looking:
            act.look()
            if act.is_looking:
                return
        commits = self._broker.job_registry.pending_commits
        before = commits.newest
        handled = act.step(now) if not act.is_over else {}
        if handled:
            act.is_saving = True
            self._when_saved(partial(self._saved, act), commits.saved_since(before))
            if act.act == "retry":
                for service, count in handled.items():
                    self.when_retried(service, count, now)
            return
        if act.is_over:
            self._end(act, now)
        _answer(act)

    def _saved(self, act: BulkAct, problem: str | None) -> None:
        act.saved(problem)
        if not act.is_over:
            _answer(act)
        self.wake()

    def _end(self, act: BulkAct, now: float) -> None:
        del self.active[act.id]
        self._shares.leave(act.holder)
        for each in [each for each in self.ended.values() if each.ended_at + REMEMBERED <= now]:
            del self.ended[each.id]
        if len(self.ended) >= MOST_ENDED:
            del self.ended[self._oldest_of_most()]
        act.ended_at = now
        self.ended[act.id] = act
        if act.is_counted_only:
            return
        events = self._broker.events
        if act.is_foreign and not act.group and events.wanted & ADMINISTERED:
            target = f"{act.done} jobs" + (f" of {act.service}" if act.service else "")
            events.administered(act.owner.principal, act.operation, target, act.origin)
        self.when_over(act)


def _answer(act: BulkAct) -> None:
    waiting, act.waiting = act.waiting, []
    for answer in waiting:
        answer()
