"""Groups: background jobs that were enqueued together, in their order, with an id of their own.

A group is *open* until all its members have ended, then *complete*. Its record is kept as long as an outcome is after
that, and the outcomes of its members as long as the record. They may be deleted earlier only by the limit of bytes
(L20), or by a purge: the record then has a letter for the outcome.

The store has one value for each group, with its owner, its size and these letters. Each member has the id of its group
and its place among its extras, so that a restart counts the members again (R194). If a member in quarantine is retried,
the new job takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dragoman.core.archive import Archive
from dragoman.core.commits import PendingCommits
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import Delivery, Effect
from dragoman.core.infinity import inf
from dragoman.core.job_links import JobLinks, problem_of
from dragoman.core.model import Caller, Job, JobId
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.shares import Shares
from dragoman.core.states import DONE, Outcome

PREFIX: Final = "group/"  # of the keys of stored values
NEEDED_DELAY: Final = 60.0  # seconds until it is looked again whether a group is still needed
PRESENT: Final = "."  # letter of a member whose outcome is not deleted
UNKNOWN: Final = "?"  # letter of a member that is not in the store, for an unknown reason
LETTERS: Final = {
    Outcome.DONE: "d",
    Outcome.FAILED: "f",
    Outcome.TIMED_OUT: "t",
    Outcome.LOST: "l",
    Outcome.CANCELLED: "c",
    Outcome.REFUSED: "r",
}
OUTCOMES: Final = {letter: outcome for outcome, letter in LETTERS.items()}


class Group:
    """The record of a group."""

    __slots__ = (
        "alarm",
        "alarm_number",
        "callers",
        "done",
        "ended",
        "gone",
        "id",
        "jobs",
        "keep_until",
        "open",
        "owner",
        "services",
        "undone",
    )

    def __init__(self, id: JobId, owner: str, size: int, services: tuple[str, ...]) -> None:
        self.id = id
        self.owner = owner  # name of the principal
        self.services = services  # of its members, each once
        self.jobs: list[Job | None] = [None] * size  # None: its outcome was deleted, or it is not loaded yet
        self.gone: list[str] = [PRESENT] * size  # letters of the outcomes that were deleted
        self.open = size  # members that have not ended
        self.done = 0
        self.undone = 0  # members that ended otherwise
        self.callers: list[Caller] = []  # they wait until it is complete
        self.ended: float | None = None  # time of the last end, once it is complete
        self.keep_until = inf
        self.alarm = inf
        self.alarm_number = 0

    @property
    def size(self) -> int:
        return len(self.jobs)

    @property
    def is_complete(self) -> bool:
        return not self.open

    def outcome_at(self, place: int) -> Outcome | None:
        """Return the outcome of a member. None: it has not ended, or the outcome is not known any more."""
        job = self.jobs[place]
        return job.outcome if job is not None else OUTCOMES.get(self.gone[place])

    def text(self) -> str:
        """Return the stored value."""
        facts: dict[str, Any] = {"owner": self.owner, "size": self.size, "services": list(self.services)}
        letters = "".join(self.gone)
        if letters.strip(PRESENT):
            facts["gone"] = letters
        return json.dumps(facts, separators=(",", ":"))


class GroupCompleted(Delivery):
    """Notify a caller that all jobs of a group have ended. The last outcome may not be committed yet."""

    __slots__ = ("caller", "group")

    def __init__(self, caller: Caller, group: Group) -> None:
        self.caller = caller
        self.group = group

    def recipient(self) -> Recipient:
        return self.caller.recipient


class Groups:
    """All groups, by id."""

    __slots__ = (
        "_archive",
        "_deadlines",
        "_effects",
        "_links",
        "_pending_commits",
        "_policy",
        "by_id",
        "problems",
        "shares",
    )

    def __init__(
        self,
        policy: Policy,
        deadlines: Deadlines[Any],
        archive: Archive,
        links: JobLinks,
        pending_commits: PendingCommits,
        effects: list[Effect],
    ) -> None:
        self.by_id: dict[JobId, Group] = {}
        self.shares = Shares(policy.max_groups)  # by principal (R254)
        self.problems: list[str] = []  # stored values that could not be read
        self._policy = policy
        self._deadlines = deadlines
        self._archive = archive
        self._effects = effects
        self._links = links
        self._pending_commits = pending_commits

    def of(self, job: Job) -> Group | None:
        """Return the group of a job, unless another job has taken its place."""
        extras = job.extras
        if extras is None or extras.group is None:
            return None
        group = self.by_id.get(extras.group)
        return group if group is not None and group.jobs[extras.place] is job else None

    # ---------------------------------------------------------------- members

    def create(self, id: JobId, owner: str, size: int, services: Iterable[str]) -> Group:
        """Make a group. Its members follow (`enter`), and are in the same commit."""
        group = self.by_id[id] = Group(id, owner, size, tuple(dict.fromkeys(services)))
        self.shares.enter(owner)
        self._store(group)
        return group

    def enter(self, job: Job) -> None:
        """Add a member that has not ended: a new one, one of an earlier run, or the retry of another."""
        extras = job.extras
        group = self.by_id.get(extras.group) if extras is not None and extras.group is not None else None
        if group is None or extras is None or extras.place >= group.size:
            return
        self._replace(group, extras.place, job)

    def returned(self, first: Job, again: Job) -> None:
        """The retry of a member could not be stored: the member has its place again."""
        group = self.of(again)
        if group is not None and first.outcome is not None:
            assert again.extras is not None
            self._replace(group, again.extras.place, first)
            self._count(group, first.outcome, 1)

    def _replace(self, group: Group, place: int, job: Job) -> None:
        """Put a job in a place. It has not ended, as far as it is counted here."""
        before, letter = group.jobs[place], group.gone[place]
        if before is not None and before.outcome is not None:
            self._count(group, before.outcome, -1)
        elif letter != PRESENT:
            self._count(group, OUTCOMES.get(letter, Outcome.LOST), -1)
        group.jobs[place] = job
        group.gone[place] = PRESENT

    def reopened(self, job: Job) -> None:
        """A member that had ended has not any more: it was released from quarantine."""
        group = self.of(job)
        if group is not None:
            self._count(group, Outcome.FAILED, -1)

    def job_ended(self, job: Job, now: float) -> None:
        """Update the jobs that wait for an ended job, those that it waited for, and its group."""
        self._links.unlink(job)
        self._links.ended(job.id, problem_of(job), now)
        self.ended(job, now)

    def ended(self, job: Job, now: float) -> None:
        """Count the end of a member."""
        group = self.of(job)
        if group is not None and job.outcome is not None:
            self._count(group, job.outcome, 1)
            if job.outcome is not DONE:
                self._links.failed(group.id, problem_of(job, group.id), now)
            if group.is_complete:
                self._complete(group, job.ended if job.ended is not None else now, now)

    def erased(self, job: Job) -> None:
        """Keep the outcome of a member that is deleted, as a letter."""
        group = self.of(job)
        if group is not None and job.outcome is not None:
            assert job.extras is not None
            group.jobs[job.extras.place] = None
            group.gone[job.extras.place] = LETTERS[job.outcome]
            self._store(group)

    def _count(self, group: Group, outcome: Outcome, change: int) -> None:
        """Count a member that has ended (1), or has not any more (-1)."""
        was_complete = group.is_complete
        group.open -= change
        if outcome is DONE:
            group.done += change
        else:
            group.undone += change
        if was_complete and not group.is_complete:
            group.ended = None
            group.keep_until = inf
            self._deadlines.disarm(group)
            self._links.reopened(group.id)

    def _complete(self, group: Group, ended: float, now: float) -> None:
        group.ended = ended
        group.keep_until = ended + self._policy.outcome_retention
        self._deadlines.arm(group, group.keep_until)
        self._links.ended(group.id, "", now)
        callers, group.callers = group.callers, []
        self._effects.extend([GroupCompleted(caller, group) for caller in callers])

    # ---------------------------------------------------------------- callers

    def attend(self, group: Group, caller: Caller) -> None:
        """Add a caller that waits until the group is complete."""
        group.callers.append(caller)

    def leave(self, group: Group, caller: Caller) -> None:
        group.callers = [each for each in group.callers if each is not caller]

    # ---------------------------------------------------------------- end of a group

    def needed_until(self, job: Job, now: float) -> float:
        """Return the time until which the group of an ended job needs its outcome."""
        group = self.of(job)
        if group is None:
            return now
        return group.keep_until if group.is_complete else now + NEEDED_DELAY

    def expire(self, group: Group, now: float) -> None:
        """Delete a group whose retention time has passed, unless a job waits for it."""
        if group.keep_until > now:
            self._deadlines.arm(group, group.keep_until)
        elif group.id in self._archive.pins:
            group.keep_until = now + NEEDED_DELAY
            self._deadlines.arm(group, group.keep_until)
        else:
            self.delete(group)

    def forget(self, group: Group) -> None:
        """Remove a group without a change of the store."""
        self._deadlines.disarm(group)
        del self.by_id[group.id]
        self.shares.leave(group.owner)

    def delete(self, group: Group) -> None:
        self.forget(group)
        self._pending_commits.note(_key(group), None)

    # ---------------------------------------------------------------- groups of an earlier run

    def restore(self, notes: Mapping[str, str]) -> None:
        """Restore the groups of an earlier run. Their members follow."""
        for key, value in notes.items():
            if key.startswith(PREFIX):
                try:
                    group = _group_of(key, value)
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    self.problems.append(f"{key}: {error}")
                else:
                    if group.id not in self.by_id:
                        self.shares.enter(group.owner)
                    self.by_id[group.id] = group
                    for letter in group.gone:
                        if letter != PRESENT:
                            self._count(group, OUTCOMES.get(letter, Outcome.LOST), 1)

    def loaded(self, now: float) -> None:
        """All jobs of the earlier run are there: members that are missing are gone for good."""
        for group in list(self.by_id.values()):
            missing = [place for place, job in enumerate(group.jobs) if job is None and group.gone[place] == PRESENT]
            for place in missing:
                group.gone[place] = UNKNOWN
                self._count(group, Outcome.LOST, 1)
            if missing:
                self._store(group)
                name = group.id.hex()
                problem = f"jobs of group {name}, which it comes after, are not in the store any more"
                self._links.failed(group.id, problem, now)
            if group.is_complete and group.ended is None:
                times = [job.ended for job in group.jobs if job is not None and job.ended is not None]
                self._complete(group, max(times) if times else now, now)

    def _store(self, group: Group) -> None:
        self._pending_commits.note(_key(group), group.text())


def _key(group: Group) -> str:
    return PREFIX + group.id.hex()


def _group_of(key: str, value: str) -> Group:
    id = bytes.fromhex(key.removeprefix(PREFIX))
    facts = json.loads(value)
    owner, size, services = facts["owner"], facts["size"], facts["services"]
    if len(id) != 16 or type(owner) is not str or type(size) is not int or not 0 < size < 1 << 24:
        raise ValueError("invalid id, owner or size")
    if type(services) is not list or not all(type(each) is str for each in services):
        raise ValueError("invalid services")
    group = Group(JobId(id), owner, size, tuple(services))
    letters = facts.get("gone")
    if letters is not None:
        if type(letters) is not str or len(letters) != size:
            raise ValueError("invalid letters")
        group.gone = list(letters)
    return group
