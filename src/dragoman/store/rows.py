"""Jobs as rows, and rows as jobs of an earlier run.

A job's row is written once, unless what it asks for changes. Whatever happens to it later is its *fate*, in a row of
its own, so that a payload is never written twice. The clock that the broker lives by begins anew with every start of
the machine: times are kept as wall clock time. What never comes is NULL.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Final

from dragoman.core.failure import Failure, pack_failure, unpack_failure
from dragoman.core.infinity import inf
from dragoman.core.model import ABSENT, Job, JobId, Payload, Token
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob
from dragoman.core.states import DONE, ENDED, AttemptRecord, Outcome
from dragoman.store.errors import InvalidRow

Row = tuple[object, ...]

JOB_COLUMNS: Final = ("number", "id", "service", "wishes", "created", "key", "digest", "retry_of", "payload")
FATE_COLUMNS: Final = (
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
OUTCOME: Final = FATE_COLUMNS.index("outcome")
QUARANTINED: Final = FATE_COLUMNS.index("quarantined")
PAYLOAD: Final = JOB_COLUMNS.index("payload")

MOST_WISHES: Final = 1_024  # that are remembered: nearly all jobs wish one of a few things
MOST_NUMBER: Final = 1 << 62
MOST_TIME: Final = 1e11  # seconds since 1970
ID_BYTES: Final = 16
COUNTS: Final = ("attempts", "default_attempts", "priority")
_quoted: Final = json.encoder.encode_basestring_ascii
NONSENSE: Final = (ValueError, TypeError, OverflowError, RecursionError)  # what reading something else raises
DEFAULTS: Final = {each.name: each.default for each in fields(JobOptions)}


class RowEncoder:
    """Makes rows of jobs as they are now: they go on changing while the rows wait to be written."""

    __slots__ = ("_texts", "quarantined")

    def __init__(self) -> None:
        self.quarantined: dict[JobId, int] = {}  # their numbers: a retry may need a payload that only the file has
        self._texts: dict[int, tuple[JobOptions, str]] = {}

    def job_row(self, job: Job, offset: float) -> Row:
        """In the place of its payload, the number of a job that has the same."""
        payload: Payload | int = job.payload
        if payload is ABSENT:
            assert job.retry_of is not None
            payload = self.quarantined[job.retry_of]
        return (*self.head(job, offset), payload)

    def head(self, job: Job, offset: float) -> Row:
        """All that is known of a job when it comes, but its payload."""
        return (
            job.number,
            job.id,
            job.service.name,
            self._job_options(job.options),
            job.created + offset,
            job.key,
            job.digest or None,
            job.retry_of,
        )

    def fate_row(self, job: Job, offset: float) -> Row:
        row = fate_row(job, offset)
        if row[QUARANTINED]:
            self.quarantined[job.id] = job.number
        return row

    def erased(self, job: Job) -> int:
        self.quarantined.pop(job.id, None)
        return job.number

    def _job_options(self, job_options: JobOptions) -> str:
        known = self._texts.get(id(job_options))
        if known is not None and known[0] is job_options:
            return known[1]
        if len(self._texts) >= MOST_WISHES:
            self._texts.clear()
        text = options_text(job_options)
        self._texts[id(job_options)] = (job_options, text)
        return text


def options_text(job_options: JobOptions) -> str:
    """What differs from the defaults."""
    differing = {
        name: getattr(job_options, name) for name, usual in DEFAULTS.items() if getattr(job_options, name) != usual
    }
    return json.dumps(differing, separators=(",", ":"))


def fate_row(job: Job, offset: float) -> Row:
    attempt = job.attempt
    history = job.history
    start_at = job.start_at + offset if job.start_at else None
    token: Token | None = None
    number: int | None = None
    given: float | None = None
    worker: str | None = None
    can_resume = 0
    if attempt is not None:
        token, number, given = attempt.token, attempt.number, attempt.given + offset
        worker = _text(attempt.worker.name)
        can_resume = int(attempt.worker.profile.can_resume)
    outcome = job.outcome
    return (
        job.number,
        start_at,
        job.spent,
        job.deaths,
        _history_text(history) if history else None,
        token,
        number,
        given,
        worker,
        outcome._value_ if outcome is not None else None,  # in Python 3.11 `value` costs ten times as much
        _text(job.reason) if job.reason else None,
        # A retry takes a job out of the quarantine in memory only; after a restart, `retry_of` of the new job does it.
        # A retry that comes before this row is made does the same, and may still be refused.
        int(job.quarantined or job.retried_as is not None),
        job.keep_until + offset if 0.0 <= job.keep_until < inf else None,
        _result(job),
        can_resume,
    )


def _result(job: Job) -> Payload | None:
    """The `result` column: the result of a job that is done, else its worker's failure."""
    if job.failure is not None:
        return pack_failure(job.failure)
    return job.result or None


def read_result(job: Job, stored: Payload) -> tuple[Payload, Failure | None]:
    """The result, or the failure, in the `result` column of a job."""
    if job.state is not ENDED or job.outcome is DONE:
        return stored, None
    return b"", unpack_failure(stored)


def _history_text(history: list[AttemptRecord]) -> str:
    """JSON. `json.dumps` makes an encoder for each call, which costs more than all else that a job's end does here."""
    endings = [
        f"[{each.number},{_quoted(each.worker)},{_quoted(each.outcome._value_)},{_quoted(each.reason)}]"
        for each in history
    ]
    return f"[{','.join(endings)}]"


def _text(text: str) -> str:
    """What a peer said need not have a form in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class RowDecoder:
    """Makes jobs of an earlier run of rows, or raises Unreadable. Equal wishes, and equal names, are one object."""

    __slots__ = ("_job_options", "_names")

    def __init__(self) -> None:
        self._job_options: dict[str, JobOptions] = {}
        self._names: dict[str, str] = {}

    def kept(self, row: list[object] | Row, offset: float) -> StoredJob:
        """`row`: a job without its payload, then its fate without number and result, NULLs if there is none."""
        kept = self.job(row[:PAYLOAD], offset)
        self.add_fate(kept, row[PAYLOAD:], offset)
        return kept

    def job(self, row: list[object] | Row, offset: float) -> StoredJob:
        """`row`: a job without its payload."""
        number, id, service, job_options, created, key, digest, retry_of = row
        if type(number) is not int or not 0 < number <= MOST_NUMBER:
            raise InvalidRow(f"job {number!r} has no number of ours")
        if type(id) is not bytes or len(id) != ID_BYTES:
            raise InvalidRow(f"the id of job {number} is none")
        if type(service) is not str or type(job_options) is not str:
            raise InvalidRow(f"the service of job {number}, or what it wishes, is no text")
        if type(created) is not float or not -MOST_TIME < created < MOST_TIME:
            raise InvalidRow(f"when job {number} was made is no time")
        name = self._names.setdefault(service, service)
        try:
            kept = StoredJob(number, JobId(id), name, self._options_of(job_options), created - offset)
        except NONSENSE as error:
            raise InvalidRow(f"what job {number} wishes makes no sense: {error}") from error
        if key is not None:
            if type(key) is not str:
                raise InvalidRow(f"the key of job {number} is no text")
            kept.key = key
        if digest is not None:
            if type(digest) is not bytes:
                raise InvalidRow(f"the digest of job {number} is none")
            kept.digest = digest
        if retry_of is not None:
            if type(retry_of) is not bytes or len(retry_of) != ID_BYTES:
                raise InvalidRow(f"the id of the job that job {number} repeats is none")
            kept.retry_of = JobId(retry_of)
        return kept

    def add_fate(self, kept: StoredJob, row: list[object] | Row, offset: float) -> None:
        """`row`: a fate without number and result, NULLs if there is none."""
        if row[1] is None and row.count(None) == len(row):
            return
        try:
            _add_fate(kept, row, offset)
        except NONSENSE as error:
            raise InvalidRow(f"what happened to job {kept.number} makes no sense: {error}") from error

    def _options_of(self, text: str) -> JobOptions:
        job_options = self._job_options.get(text)
        if job_options is None:
            job_options = self._job_options[text] = _options_of(text)
        return job_options


def _options_of(text: str) -> JobOptions:
    wished = json.loads(text)
    job_options = JobOptions(**wished)
    for name, value in wished.items():
        usual = DEFAULTS[name]
        if isinstance(usual, bool):
            _require(type(value) is bool, name)
        elif name in COUNTS:
            _require(type(value) is int, name)
        else:
            _require(type(value) in (int, float) and float(value) >= 0.0, name)
    return job_options


def _add_fate(kept: StoredJob, fate: list[object] | Row, offset: float) -> None:
    start_at, spent, deaths, history, token, attempt, given, worker = fate[:8]
    outcome, reason, quarantined, keep_until, can_resume = fate[8:]
    if type(spent) is not int or type(deaths) is not int or spent < 0 or deaths < 0:
        raise ValueError("its attempts were not counted")
    kept.spent, kept.deaths = spent, deaths
    if start_at is not None:
        kept.start_at = _time(start_at) - offset
    if history is not None:
        kept.history = _history_of(history)
    if token is not None:
        if type(token) is not bytes or type(attempt) is not int or type(worker) is not str:
            raise ValueError("to whom it was given is not known")
        kept.token, kept.attempt, kept.given = Token(token), attempt, _time(given) - offset
        kept.worker, kept.can_resume = worker, bool(can_resume)
    if outcome is not None:
        kept.outcome = Outcome(_said(outcome))
        if reason is not None:
            kept.reason = _said(reason)
        kept.quarantined = bool(quarantined)
        if keep_until is not None:
            kept.keep_until = _time(keep_until) - offset


def _history_of(text: object) -> list[AttemptRecord]:
    endings = json.loads(_said(text))
    _require(type(endings) is list, "history")
    history = []
    for number, who, how, why in endings:
        _require(type(number) is int, "history")
        history.append(AttemptRecord(number, _said(who), Outcome(how), _said(why)))
    return history


def _time(value: object) -> float:
    if type(value) is not float:
        raise ValueError(f"{value!r} is no time")
    return value


def _said(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def _require(fact: bool, name: str) -> None:
    if not fact:
        raise ValueError(name)
