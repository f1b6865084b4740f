"""Dependencies: jobs that start after other jobs have ended.

A background job may name predecessors, jobs or groups. It is *dependent* until all of them have ended. If all are done,
or if it runs after a failure, it is *ready*: it takes its input, and is delayed or queued like any other job. If one of
them ends otherwise, it is cancelled at once with that as its reason, and so are the jobs that come after it.

A predecessor in another shard of a cluster counts when its shard has committed its end (`core/other_shards.py`).

That a job is ready is stored with it, together with its payload if that has changed. Until then its predecessors stay
in the store, so that a restart decides as this run would have (R191).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from dragoman.core.accepted_jobs import replace_payload
from dragoman.core.attempts import Attempts
from dragoman.core.commits import AfterCommit
from dragoman.core.delays import Delays
from dragoman.core.groups import Group
from dragoman.core.infinity import inf
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.job_links import NO_FOREIGN, DependentJob, problem_of
from dragoman.core.lifecycle import move_job
from dragoman.core.model import Job, JobId, Payload
from dragoman.core.results_payload import Entry, Result, most_packed_bytes, pack_results
from dragoman.core.shared_state import SharedState
from dragoman.core.states import CANCELLED, DEPENDENT, DONE, ENDED, FAILED
from dragoman.core.store_entries import CollectInput

NO_ENTRIES: Final[Mapping[JobId, Entry]] = {}


class Dependencies:
    """Decides when dependent jobs start, or that they are cancelled."""

    __slots__ = ("_attempts", "_deadlines", "_delays", "_effects", "_job_registry", "_links", "_policy", "decisions")

    def __init__(self, state: SharedState, delays: Delays, attempts: Attempts) -> None:
        self._policy = state.policy
        self._job_registry = state.job_registry
        self._links = state.job_registry.links
        self._deadlines = state.deadlines
        self._effects = state.effects
        self._delays = delays
        self._attempts = attempts
        self.decisions = 0  # since the start: an iteration makes a limited number

    # ---------------------------------------------------------------- new and restored jobs

    def add(self, job: Job, now: float) -> None:
        """Accept a new job that names predecessors. It is acknowledged when the store has committed it."""
        self._job_registry.kept.note_new(job)
        self._job_registry.pending_commits.save(job, AfterCommit.ACKNOWLEDGE)
        if job.options.delay > 0.0:
            job.start_at = now + min(job.options.delay, self._policy.max_delay)
        self._delays.move(job, DEPENDENT)
        self._wait(job, now)

    def restore(self, job: Job, start_at: float, now: float) -> None:
        """Accept a job of an earlier run that was not ready. Its predecessors have been restored before."""
        job.start_at = start_at
        move_job(job, DEPENDENT)
        self._wait(job, now)

    def _wait(self, job: Job, now: float) -> None:
        entry = self._links.link(job)
        problem = ""
        for id in entry.predecessors:
            before = self._job_registry.jobs.get(id)
            group = self._job_registry.groups.by_id.get(id)
            if id in entry.foreign or (before is not None and before.state is not ENDED):
                entry.unended += 1
            elif before is not None:
                problem = problem or problem_of(before)
            elif group is not None:
                entry.unended += not group.is_complete
                problem = problem or problem_of_group(group)
            else:
                problem = problem or f"job {id.hex()}, which it comes after, is not in the store any more"
        if job.conversation is not None:
            job.conversation.note("waits for other jobs", now)
        self._links.judge(entry, problem, now)
        self._deadlines.arm(job, job.due())

    # ---------------------------------------------------------------- decisions

    def decide(self, job: Job, now: float) -> None:
        """Cancel a dependent job, or let it start. Called when its timer fires."""
        entry = self._links.dependent[job.id]
        self.decisions += 1
        job.queue_due = inf
        extras = _extras_of(job)
        if entry.cause:
            self._attempts.end_early(job, CANCELLED, entry.cause, now)
        elif entry.unended or entry.is_collecting:
            self._deadlines.arm(job, job.due())
        elif extras.input is JobInput.PAYLOAD:
            self._start(job, extras, now, has_new_payload=False)
        else:
            entry.is_collecting = True
            self._deadlines.arm(job, job.due())
            self._effects.append(CollectInput(job))

    def sources(self, job: Job) -> list[Job]:
        """Return the done jobs whose results are the input of a job, without those of other shards."""
        found: list[Job] = []
        foreign = self.foreign(job)
        for id in _extras_of(job).after:
            if id in foreign:
                continue
            before = self._job_registry.jobs.get(id)
            group = self._job_registry.groups.by_id.get(id)
            named = [before] if before is not None else group.jobs if group is not None else []
            found += [each for each in named if each is not None and each.outcome is DONE]
        return found

    def foreign(self, job: Job) -> Collection[JobId]:
        """Return the predecessors of a dependent job that are in other shards of the cluster."""
        entry = self._links.dependent.get(job.id)
        return NO_FOREIGN if entry is None else entry.foreign

    def take_input(
        self,
        job: Job,
        payload: Payload,
        results: dict[JobId, Payload],
        now: float,
        foreign: Mapping[JobId, Entry] = NO_ENTRIES,
    ) -> None:
        """Start a job whose input has been loaded. `payload`: the submitted one; `results`: of its sources; `foreign`:
        of each predecessor in another shard."""
        entry = self._links.dependent.get(job.id)
        if entry is None or not entry.is_collecting:
            return  # it was cancelled meanwhile
        entry.is_collecting = False
        if entry.unended:
            return  # one of its predecessors was released from quarantine meanwhile: it waits again
        extras = _extras_of(job)
        entries = [foreign[id] if id in entry.foreign else self._entry(id, results) for id in extras.after]
        if extras.input is JobInput.RESULT:
            first = entries[0]
            assert not isinstance(first, list)
            taken: Payload = b"" if first is None else first
            size = len(taken)
        else:
            size = most_packed_bytes(payload, entries)
            taken = b""
        most = self._policy.max_input
        if size > most:
            reason = f"its input, the results of the jobs before it, has {size} bytes; at most {most} are allowed"
            self._attempts.end_early(job, FAILED, f"{reason} (max_input)", now)
            return
        if extras.input is JobInput.RESULTS:
            taken = pack_results(payload, entries)
        replace_payload(self._job_registry, job, taken)
        self._start(job, extras, now, has_new_payload=True)

    def _entry(self, id: JobId, results: dict[JobId, Payload]) -> Entry:
        """Return the results of one predecessor."""
        group = self._job_registry.groups.by_id.get(id)
        if group is None:
            return results.get(id)
        found: list[Result] = [None if each is None else results.get(each.id) for each in group.jobs]
        return found

    def _start(self, job: Job, extras: JobExtras, now: float, has_new_payload: bool) -> None:
        """Delay or queue a job that is ready."""
        self._links.unlink(job)
        job.extras = replace(extras, is_ready=True)
        self._job_registry.pending_commits.save(job, rewrites=True, has_new_payload=has_new_payload)
        if job.start_at > now:
            self._delays.delay(job, job.start_at, now)
        else:
            self._delays.wake(job, now)

    # ---------------------------------------------------------------- views

    def find(self, job: Job) -> DependentJob | None:
        """Return the entry of a job that waits for others."""
        return self._links.dependent.get(job.id)

    def unended(self, entry: DependentJob) -> list[tuple[JobId, str]]:
        """Return the predecessors that have not ended, each with its name."""
        found: list[tuple[JobId, str]] = []
        for id in entry.predecessors:
            job = self._job_registry.jobs.get(id)
            group = self._job_registry.groups.by_id.get(id)
            if id in entry.foreign:
                if not entry.foreign[id] and self._links.other_shards is not None:
                    found.append((id, f"{id.hex()} ({self._links.other_shards.place_of(entry.job.id, id)})"))
            elif job is not None and job.state is not ENDED:
                found.append((id, id.hex()))
            elif group is not None and not group.is_complete:
                found.append((id, f"group {id.hex()} ({group.done + group.undone} of {group.size} have ended)"))
        return found


def problem_of_group(group: Group) -> str:
    """Return the reason to cancel the jobs that come after a group. Empty: there is none so far."""
    if not group.undone:
        return ""
    for job in group.jobs:
        if job is not None and job.outcome is not None and job.outcome is not DONE:
            return problem_of(job, group.id)
    return f"group {group.id.hex()}, which it comes after, has jobs that are not done"


def _extras_of(job: Job) -> JobExtras:
    assert job.extras is not None
    return job.extras
