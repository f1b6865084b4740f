"""The record of a chaos campaign: each acknowledged job, each answer about it; and the verdict at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from chaos.handlers import result_of

Ending = tuple[str, bytes]  # outcome, and the result if it is done


@dataclass(slots=True)
class Kept:
    """A background job that was acknowledged."""

    name: str  # of the payload
    id: str
    attempts: int
    is_to_fail: bool = False
    ending: Ending | None = None  # the first that a client was told
    used: int = 0  # attempts that it had used up then


@dataclass(slots=True)
class Record:
    """The oracle. `violations`: what must never happen, by kind, with examples."""

    jobs: dict[str, Kept] = field(default_factory=dict)  # by id
    attempts: dict[str, int] = field(default_factory=dict)  # of every job that was submitted, by name
    keys: dict[str, str] = field(default_factory=dict)  # the id that was acknowledged for a key
    counts: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=dict)

    def violated(self, kind: str, text: str) -> None:
        self.violations.setdefault(kind, []).append(text)

    def submits(self, name: str, attempts: int) -> None:
        self.attempts[name] = attempts

    def acknowledged(self, name: str, id: str, attempts: int, key: str | None, is_to_fail: bool = False) -> None:
        if key is not None and self.keys.setdefault(key, id) != id:
            self.violated("two ids for a key", f"{key}: {self.keys[key]} and {id}")
        if id in self.jobs:
            if self.jobs[id].name != name:
                self.violated("one id for two jobs", f"{id}: {self.jobs[id].name} and {name}")
            return
        self.jobs[id] = Kept(name, id, attempts, is_to_fail)

    def told(self, id: str, outcome: str | None, result: bytes, used: int = 0) -> None:
        """Take an answer about a job; None: it has not ended."""
        job = self.jobs[id]
        ending = None if outcome is None else (outcome, result)
        if job.ending is not None and ending != job.ending:
            self.violated("changed", f"{job.name} {id}: {job.ending}, then {ending}")
        if ending is not None and job.ending is None:
            job.ending, job.used = ending, used
            if outcome == "done" and result != result_of(job.name):
                self.violated("wrong result", f"{job.name} {id}: {result!r}")

    def denied(self, id: str) -> None:
        """A client was told that an acknowledged job does not exist."""
        self.violated("lost", f"{self.jobs[id].name} {id}: no such job")

    def judge(self, runs: dict[str, int]) -> None:
        """Compare with the runs of each job, by name, once everything has come to rest."""
        for name, count in runs.items():
            most = self.attempts.get(name)
            if most is None:
                self.violated("a job from nowhere", name)
            elif count > most:
                self.violated("runs > attempts", f"{name}: {count} runs, {most} attempts")
        for job in self.jobs.values():
            count = runs.get(job.name, 0)
            self.counts["ran twice or more"] += count > 1
            if job.ending is None:
                self.violated("unfinished", f"{job.name} {job.id}")
                continue
            outcome = job.ending[0]
            self.counts[f"ended {outcome}"] += 1
            if outcome == "done" and not count:
                self.violated("done without a run", f"{job.name} {job.id}")
            if outcome != "done":
                self.counts["ended unrun"] += not count
                if outcome != "failed" and job.attempts > 1 and job.used < job.attempts:
                    self.violated("ended with attempts left", f"{job.name} {job.id}: {outcome}, {count} runs")
                if outcome == "failed" and not job.is_to_fail:
                    self.violated("failed by itself", f"{job.name} {job.id}")
