"""Converts jobs to rows, and rows to jobs of an earlier run.

A job's row is written once, unless its options or its key change. Its *status* has a row of its own (table `fate`), so
that a payload is never written twice. Times are stored as wall clock time, because the broker's clock restarts with the
machine. Infinite times are NULL. `given` is the start time of the current attempt; for an ended job, the time at which
it ended; for a job that is delayed after an attempt, the time at which that delay began, so that a restart knows how
long it was at first, however the wall clock was set since (R25). Rows of earlier builds lack these times, and those in
the history.
`worker` is the name of the worker that has the current attempt, with its dialect and its id. `owner` is the name of the
job's principal; NULL is `local`, as for all rows of earlier builds (R141). `extras` has the job's extras as JSON
(`core/extras_text.py`), and as `caller` the dialect and the address of the client that submitted the job; NULL: none.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Final

from dragoman.core.archive import FOREVER
from dragoman.core.extras_text import extras_from, extras_text
from dragoman.core.failure import Failure, pack_failure, unpack_failure
from dragoman.core.model import ABSENT, Job, JobId, Payload, Token, Worker
from dragoman.core.options import JobOptions, options_from
from dragoman.core.recipients import dialect_of
from dragoman.core.restore import StoredJob
from dragoman.core.rights import LOCAL
from dragoman.core.states import DELAYED, DEPENDENT, DONE, ENDED, AttemptRecord, Outcome
from dragoman.store.errors import InvalidRow

Row = tuple[object, ...]

JOB_COLUMNS: Final = (
    "number",
    "id",
    "service",
    "wishes",
    "created",
    "key",
    "digest",
    "retry_of",
    "owner",
    "extras",
    "payload",
)
STATUS_COLUMNS: Final = (
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
OUTCOME: Final = STATUS_COLUMNS.index("outcome")
QUARANTINED: Final = STATUS_COLUMNS.index("quarantined")
PAYLOAD: Final = JOB_COLUMNS.index("payload")

MAX_CACHED_OPTIONS: Final = 1_024  # options texts that are cached: nearly all jobs have one of a few
MOST_NUMBER: Final = 1 << 62
MOST_TIME: Final = 1e11  # seconds since 1970
ID_BYTES: Final = 16
UNKNOWN_CALLERS: Final = ("", "?")  # dialects of callers: of none, and of those within the broker
COUNTS: Final = ("attempts", "default_attempts", "priority")
_quoted: Final = json.encoder.encode_basestring_ascii
PARSE_ERRORS: Final = (ValueError, TypeError, OverflowError, RecursionError)  # errors of parsing an invalid value
DEFAULTS: Final = {each.name: each.default for each in fields(JobOptions)}


class RowEncoder:
    """Converts jobs to rows as they are now: jobs may change before the rows are written."""

    __slots__ = ("_callers", "_texts", "quarantined")

    def __init__(self) -> None:
        self._callers: dict[tuple[str, str], str] = {}
        self.quarantined: dict[JobId, int] = {}  # their numbers: a retry may need a payload that is only in the file
        self._texts: dict[int, tuple[JobOptions, str]] = {}

    def job_row(self, job: Job, offset: float) -> Row:
        """Return the row of a job. A payload that is only in the store is replaced by the number of the job that has
        it."""
        payload: Payload | int = job.payload
        if payload is ABSENT:
            assert job.retry_of is not None
            payload = self.quarantined[job.retry_of]
        return (*self.head(job, offset), payload)

    def head(self, job: Job, offset: float) -> Row:
        """Return the columns of a job that are known when it is submitted, without its payload."""
        owner = job.owner.principal.name
        return (
            job.number,
            job.id,
            job.service.name,
            self._job_options(job.options),
            job.created + offset,
            job.key,
            job.digest or None,
            job.retry_of,
            None if owner == LOCAL else owner,
            self._extras(job),
        )

    def status_row(self, job: Job, offset: float) -> Row:
        row = status_row(job, offset)
        if row[QUARANTINED]:
            self.quarantined[job.id] = job.number
        return row

    def erased(self, job: Job) -> int:
        self.quarantined.pop(job.id, None)
        return job.number

    def _extras(self, job: Job) -> str | None:
        key, extras = (job.caller_dialect, job.owner.address), job.extras
        if key[0] in UNKNOWN_CALLERS:
            return None if extras is None else extras_text(extras)
        caller = self._callers.get(key)
        if caller is None:
            if len(self._callers) >= MAX_CACHED_OPTIONS:
                self._callers.clear()
            caller = self._callers[key] = json.dumps({"caller": key}, separators=(",", ":"))
        text = "{}" if extras is None else extras_text(extras)
        return caller if text == "{}" else f"{caller[:-1]},{text[1:]}"

    def _job_options(self, job_options: JobOptions) -> str:
        known = self._texts.get(id(job_options))
        if known is not None and known[0] is job_options:
            return known[1]
        if len(self._texts) >= MAX_CACHED_OPTIONS:
            self._texts.clear()
        text = options_text(job_options)
        self._texts[id(job_options)] = (job_options, text)
        return text


def options_text(job_options: JobOptions) -> str:
    """Return the options that differ from the defaults, as JSON."""
    differing = {
        name: getattr(job_options, name) for name, usual in DEFAULTS.items() if getattr(job_options, name) != usual
    }
    return json.dumps(differing, separators=(",", ":"))


def status_row(job: Job, offset: float) -> Row:
    attempt = job.attempt
    history = job.history
    start_at = job.start_at + offset if job.state is DELAYED or job.state is DEPENDENT else None
    token: Token | None = None
    number: int | None = None
    given: float | None = None
    worker: str | None = None
    can_resume = 0
    if attempt is not None:
        token, number, given = attempt.token, attempt.number, attempt.given + offset
        worker = _worker_text(attempt.worker)
        can_resume = int(attempt.worker.profile.can_resume)
    elif job.ended is not None:
        given = job.ended + offset
    elif start_at is not None and job.delayed_since is not None:
        given = job.delayed_since + offset
    outcome = job.outcome
    return (
        job.number,
        start_at,
        job.spent,
        job.deaths,
        _history_text(history, offset) if history else None,
        token,
        number,
        given,
        worker,
        outcome._value_ if outcome is not None else None,  # in Python 3.11 `value` costs ten times as much
        _text(job.reason) if job.reason else None,
        # A retry takes a job out of quarantine in memory only; after a restart, `retry_of` of the new job does it. A
        # retry that comes before this row is made does the same, and may still be refused.
        int(job.quarantined or job.retried_as is not None),
        job.keep_until + offset if 0.0 <= job.keep_until < FOREVER else None,
        _result(job),
        can_resume,
    )


def _worker_text(worker: Worker) -> str:
    dialect, id = worker.formerly or (dialect_of(worker.recipient), worker.id)
    return f"{_text(worker.name)} {dialect} {id}"


def _result(job: Job) -> Payload | None:
    """The `result` column: the result of a job that is done, else its worker's failure."""
    if job.failure is not None:
        return pack_failure(job.failure)
    return job.result or None


def read_result(job: Job, stored: Payload) -> tuple[Payload, Failure | None]:
    """Return the result, or the failure, in the `result` column of a job."""
    if job.state is not ENDED or job.outcome is DONE:
        return stored, None
    return b"", unpack_failure(stored)


def _history_text(history: list[AttemptRecord], offset: float) -> str:
    """Return JSON: number, worker, outcome, reason and, if they are known, start and end in milliseconds, and dialect
    and id of the worker. `json.dumps` creates an encoder per call, which costs more than all other work at a job's end.
    """
    return f"[{','.join([_record_text(each, offset) for each in history])}]"


def _record_text(record: AttemptRecord, offset: float) -> str:
    text = f"[{record.number},{_quoted(record.worker)},{_quoted(record.outcome._value_)},{_quoted(record.reason)}"
    started, ended = record.started, record.ended
    if started is None or ended is None:
        return text + "]"
    text = f"{text},{int((started + offset) * 1_000.0 + 0.5)},{int((ended + offset) * 1_000.0 + 0.5)}"
    return f"{text}]" if record.worker_id is None else f'{text},"{record.dialect}",{record.worker_id}]'


def _text(text: str) -> str:
    """Replace characters that cannot be encoded in UTF-8: the text comes from outside."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class RowDecoder:
    """Converts rows to jobs of an earlier run, or raises InvalidRow. Equal options and names share one object."""

    __slots__ = ("_callers", "_job_options", "_names")

    def __init__(self) -> None:
        self._callers: dict[str, tuple[str, str]] = {}  # by texts of extras that have nothing else
        self._job_options: dict[str, JobOptions] = {}
        self._names: dict[str, str] = {}

    def kept(self, row: list[object] | Row, offset: float) -> StoredJob:
        """Decode a job. `row`: a job without its payload, then its status without number and result (NULLs if none)."""
        kept = self.job(row[:PAYLOAD], offset)
        self.add_status(kept, row[PAYLOAD:], offset)
        return kept

    def job(self, row: list[object] | Row, offset: float) -> StoredJob:
        """Decode a job. `row`: its columns without the payload."""
        number, id, service, job_options, created, key, digest, retry_of, owner, extras = row
        if type(number) is not int or not 0 < number <= MOST_NUMBER:
            raise InvalidRow(f"row of job {number!r}: invalid number")
        if type(id) is not bytes or len(id) != ID_BYTES:
            raise InvalidRow(f"row of job {number}: invalid id")
        if type(service) is not str or type(job_options) is not str:
            raise InvalidRow(f"row of job {number}: service or options are not text")
        if type(created) is not float or not -MOST_TIME < created < MOST_TIME:
            raise InvalidRow(f"row of job {number}: invalid time of creation")
        name = self._names.setdefault(service, service)
        try:
            kept = StoredJob(number, JobId(id), name, self._options_of(job_options), created - offset)
        except PARSE_ERRORS as error:
            raise InvalidRow(f"row of job {number}: invalid options: {error}") from error
        if key is not None:
            if type(key) is not str:
                raise InvalidRow(f"row of job {number}: its key is not text")
            kept.key = key
        if digest is not None:
            if type(digest) is not bytes:
                raise InvalidRow(f"row of job {number}: invalid digest")
            kept.digest = digest
        if retry_of is not None:
            if type(retry_of) is not bytes or len(retry_of) != ID_BYTES:
                raise InvalidRow(f"row of job {number}: invalid id of the retried job")
            kept.retry_of = JobId(retry_of)
        if owner is not None:
            if type(owner) is not str or not owner:
                raise InvalidRow(f"row of job {number}: its owner is not the name of a principal")
            kept.owner = self._names.setdefault(owner, owner)
        if extras is not None:
            try:
                self._add_extras(kept, _as_text(extras))
            except PARSE_ERRORS as error:
                raise InvalidRow(f"row of job {number}: invalid extras: {error}") from error
        return kept

    def add_status(self, kept: StoredJob, row: list[object] | Row, offset: float) -> None:
        """Decode a status. `row`: its columns without number and result; NULLs if there is none."""
        if row[1] is None and row.count(None) == len(row):
            return
        try:
            _add_status(kept, row, offset)
        except PARSE_ERRORS as error:
            raise InvalidRow(f"status of job {kept.number}: {error}") from error

    def _add_extras(self, kept: StoredJob, text: str) -> None:
        known = self._callers.get(text)
        if known is not None:
            kept.caller = known
            return
        facts = json.loads(text)
        _require(type(facts) is dict, "not an object")
        if "caller" in facts:
            dialect, address = facts.pop("caller")
            kept.caller = self._names.setdefault(_as_text(dialect), dialect), _as_text(address)
        if facts or text == "{}":
            kept.extras = extras_from(facts)
        elif len(self._callers) < MAX_CACHED_OPTIONS:
            self._callers[text] = kept.caller

    def _options_of(self, text: str) -> JobOptions:
        job_options = self._job_options.get(text)
        if job_options is None:
            job_options = self._job_options[text] = _options_of(text)
        return job_options


def _options_of(text: str) -> JobOptions:
    values = json.loads(text)
    job_options = options_from(values)
    for name, value in values.items():
        usual = DEFAULTS[name]
        if name == "unique":
            continue  # it is one of the words, or there was an error
        if name == "parameters":
            _require(type(value) is list and all(type(each) is str for each in value), name)
            continue
        if isinstance(usual, bool):
            _require(type(value) is bool, name)
        elif name in COUNTS:
            _require(type(value) is int, name)
        else:
            _require(type(value) in (int, float) and float(value) >= 0.0, name)
    return job_options


def _add_status(kept: StoredJob, status: list[object] | Row, offset: float) -> None:
    start_at, spent, deaths, history, token, attempt, given, worker = status[:8]
    outcome, reason, quarantined, keep_until, can_resume = status[8:]
    if type(spent) is not int or type(deaths) is not int or spent < 0 or deaths < 0:
        raise ValueError("invalid number of attempts")
    kept.spent, kept.deaths = spent, deaths
    if start_at is not None:
        kept.start_at = _time(start_at) - offset
    if history is not None:
        kept.history = _history_of(history, offset)
    if token is not None:
        if type(token) is not bytes or type(attempt) is not int or type(worker) is not str:
            raise ValueError("invalid token, attempt or worker")
        kept.token, kept.attempt, kept.given = Token(token), attempt, _time(given) - offset
        kept.can_resume = bool(can_resume)
        kept.worker, *known = worker.rsplit(" ", 2)
        if len(known) == 2:
            kept.worker_dialect, kept.worker_id = known[0], int(known[1])
        else:  # lost by a recovery
            kept.worker = worker
    elif outcome is None and given is not None:
        kept.delayed_since = _time(given) - offset
    if outcome is not None:
        kept.outcome = Outcome(_as_text(outcome))
        if given is not None:
            kept.ended = _time(given) - offset
        if reason is not None:
            kept.reason = _as_text(reason)
        kept.quarantined = bool(quarantined)
        if keep_until is not None:
            kept.keep_until = _time(keep_until) - offset


def _history_of(text: object, offset: float) -> list[AttemptRecord]:
    records = json.loads(_as_text(text))
    _require(type(records) is list, "history")
    history = []
    for number, worker, outcome, reason, *times in records:
        _require(type(number) is int and len(times) in (0, 2, 4), "history")
        record = AttemptRecord(number, _as_text(worker), Outcome(outcome), _as_text(reason))
        if len(times) == 4:
            record.dialect, record.worker_id = _as_text(times[2]), times.pop()
            _require(type(record.worker_id) is int and times.pop() is not None, "history")
        if times:
            _require(all(type(each) is int for each in times), "history")
            record.started, record.ended = (each / 1_000.0 - offset for each in times)
        history.append(record)
    return history


def _time(value: object) -> float:
    if type(value) is not float:
        raise ValueError(f"{value!r} is not a time")
    return value


def _as_text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not text")
    return value


def _require(fact: bool, name: str) -> None:
    if not fact:
        raise ValueError(name)
