"""Jobs as rows, and rows as jobs of an earlier run.

A job's row is written once. Whatever happens to it later is its *fate*, in a row of its own, so that a payload is never
written twice. The clock that the broker lives by begins anew with every start of the machine: times are kept as wall
clock time. What never comes is NULL.
"""

from __future__ import annotations

import json
from dataclasses import fields
from math import inf

from dragoman.core.model import ABSENT, Ending, Job, JobId, Outcome, Payload, Token, Wishes
from dragoman.core.revival import Kept

Row = tuple[object, ...]

JOB_COLUMNS = ("number", "id", "service", "wishes", "created", "key", "digest", "retry_of", "payload")
FATE_COLUMNS = (
    "number",
    "start_at",
    "spent",
    "deaths",
    "history",
    "token",
    "attempt",
    "given",
    "worker",
    "outcome",
    "reason",
    "quarantined",
    "keep_until",
    "result",
    "may_return",
)
OUTCOME = FATE_COLUMNS.index("outcome")
QUARANTINED = FATE_COLUMNS.index("quarantined")
PAYLOAD = JOB_COLUMNS.index("payload")

MOST_WISHES = 1_024  # that are remembered: nearly all jobs wish one of a few things
DEFAULTS = {each.name: each.default for each in fields(Wishes)}


class Scribe:
    """Makes rows of jobs as they are now: they go on changing while the rows wait to be written."""

    __slots__ = ("_texts", "quarantined")

    def __init__(self) -> None:
        self.quarantined: dict[JobId, int] = {}  # their numbers: a retry may need a payload that only the file has
        self._texts: dict[int, tuple[Wishes, str]] = {}

    def job_row(self, job: Job, offset: float) -> Row:
        """In the place of its payload, the number of a job that has the same."""
        payload: Payload | int = job.payload
        if payload is ABSENT:
            assert job.retry_of is not None
            payload = self.quarantined[job.retry_of]
        return (
            job.number,
            job.id,
            job.service.name,
            self._wishes(job.wishes),
            job.created + offset,
            job.key,
            job.digest or None,
            job.retry_of,
            payload,
        )

    def fate_row(self, job: Job, offset: float) -> Row:
        if job.quarantined:
            self.quarantined[job.id] = job.number
        return fate_row(job, offset)

    def erased(self, job: Job) -> int:
        self.quarantined.pop(job.id, None)
        return job.number

    def _wishes(self, wishes: Wishes) -> str:
        known = self._texts.get(id(wishes))
        if known is not None and known[0] is wishes:
            return known[1]
        if len(self._texts) >= MOST_WISHES:
            self._texts.clear()
        text = wishes_text(wishes)
        self._texts[id(wishes)] = (wishes, text)
        return text


def wishes_text(wishes: Wishes) -> str:
    """What differs from the defaults."""
    differing = {name: getattr(wishes, name) for name, usual in DEFAULTS.items() if getattr(wishes, name) != usual}
    return json.dumps(differing, separators=(",", ":"))


def fate_row(job: Job, offset: float) -> Row:
    attempt = job.attempt
    history = job.history
    start_at = job.start_at + offset if job.start_at else None
    if attempt is None:
        given: Row = (None, None, None, None)
        may_return = 0
    else:
        given = (attempt.token, attempt.number, attempt.given + offset, _text(attempt.worker.name))
        may_return = int(attempt.worker.terms.may_return)
    outcome = job.outcome
    return (
        job.number,
        start_at,
        job.spent,
        job.deaths,
        _history_text(history) if history else None,
        *given,
        outcome.value if outcome is not None else None,
        _text(job.reason) if job.reason else None,
        int(job.quarantined),
        job.keep_until + offset if 0.0 <= job.keep_until < inf else None,
        job.result or None,
        may_return,
    )


def _history_text(history: list[Ending]) -> str:
    endings = [(each.number, each.worker, each.outcome.value, each.reason) for each in history]
    return json.dumps(endings, separators=(",", ":"))


def _text(text: str) -> str:
    """What a peer said need not have a form in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Reader:
    """Makes jobs of an earlier run of rows. Equal wishes, and equal names, are one object."""

    __slots__ = ("_names", "_wishes")

    def __init__(self) -> None:
        self._wishes: dict[str, Wishes] = {}
        self._names: dict[str, str] = {}

    def kept(self, row: list[object] | Row, offset: float) -> Kept:
        """`row`: a job without its payload, then its fate without number and result, NULLs if there is none."""
        number, id, service, wishes, created, key, digest, retry_of, *fate = row
        assert isinstance(number, int)
        assert isinstance(id, bytes)
        assert isinstance(service, str)
        assert isinstance(wishes, str)
        assert isinstance(created, float)
        name = self._names.setdefault(service, service)
        kept = Kept(number, id, name, self._wishes_of(wishes), created - offset)  # type: ignore[arg-type]
        kept.key = key  # type: ignore[assignment]
        if digest is not None:
            kept.digest = digest  # type: ignore[assignment]
        kept.retry_of = retry_of  # type: ignore[assignment]
        if fate[1] is not None:
            _add_fate(kept, fate, offset)
        return kept

    def _wishes_of(self, text: str) -> Wishes:
        wishes = self._wishes.get(text)
        if wishes is None:
            wishes = self._wishes[text] = Wishes(**json.loads(text))
        return wishes


def _add_fate(kept: Kept, fate: list[object], offset: float) -> None:
    start_at, spent, deaths, history, token, attempt, given, worker = fate[:8]
    outcome, reason, quarantined, keep_until, may_return = fate[8:]
    kept.spent, kept.deaths = spent, deaths  # type: ignore[assignment]
    if isinstance(start_at, float):
        kept.start_at = start_at - offset
    if isinstance(history, str):
        kept.history = [Ending(number, who, Outcome(how), why) for number, who, how, why in json.loads(history)]
    if isinstance(token, bytes):
        assert isinstance(given, float)
        kept.token, kept.attempt, kept.given = Token(token), attempt, given - offset  # type: ignore[assignment]
        kept.worker, kept.may_return = worker, bool(may_return)  # type: ignore[assignment]
    if isinstance(outcome, str):
        kept.outcome = Outcome(outcome)
        kept.reason = reason or ""  # type: ignore[assignment]
        kept.quarantined = bool(quarantined)
        if isinstance(keep_until, float):
            kept.keep_until = keep_until - offset
