"""A background job between two stores: its rows, with times of the wall clock, and its line in the file.

Columns are those of the store (`store/rows.py`) without the number. A running attempt stays in the status, as a killed
broker leaves it: the broker that restores the job treats it as after a restart.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final, final

from dragoman.core.restore import StoredJob
from dragoman.store.errors import InvalidRow
from dragoman.store.rows import JOB_COLUMNS, STATUS_COLUMNS, RowDecoder
from dragoman.transfer.errors import BadFile

HEAD: Final = JOB_COLUMNS[1:-1]
STATUS: Final = STATUS_COLUMNS[1:]
CREATED: Final = HEAD.index("created")
HISTORY: Final = STATUS.index("history")
RESULT: Final = STATUS.index("result")
TIMES: Final = tuple(STATUS.index(name) for name in ("start_at", "given", "keep_until"))

# Names in the file that differ from those of columns; and the forms of values that are not plain.
FILE_NAMES: Final = {"wishes": "options", "may_return": "can_resume"}
HEX: Final = ("id", "digest", "retry_of", "token")
JSON: Final = ("wishes", "extras", "history")
FLAGS: Final = ("quarantined", "may_return")
BASE64: Final = "_base64"


@final
class ExportedJob:
    """A job with everything that a store has of it."""

    __slots__ = ("head", "payload", "status")

    def __init__(self, head: list[Any], payload: bytes, status: list[Any] | None) -> None:
        self.head = head
        self.payload = payload
        self.status = status  # None: nothing has happened to it

    @property
    def id(self) -> bytes:
        id: bytes = self.head[0]
        return id

    @property
    def created(self) -> float:
        created: float = self.head[CREATED]
        return created

    def decoded(self, decoder: RowDecoder) -> StoredJob:
        """Read it as a broker does. Raises InvalidRow."""
        kept = decoder.job([1, *self.head], 0.0)
        if self.status is not None:
            decoder.add_status(kept, [*self.status[:RESULT], *self.status[RESULT + 1 :]], 0.0)
        return kept

    def shifted(self, seconds: float) -> ExportedJob:
        """Return the same job with all times later by so many seconds."""
        head = list(self.head)
        head[CREATED] += seconds
        if self.status is None:
            return ExportedJob(head, self.payload, None)
        status = list(self.status)
        for column in TIMES:
            if status[column] is not None:
                status[column] += seconds
        if status[HISTORY] is not None:
            status[HISTORY] = _shifted_history(status[HISTORY], round(seconds * 1_000.0))
        return ExportedJob(head, self.payload, status)


def _shifted_history(text: str, milliseconds: int) -> str:
    records = [[*each[:4], *[time + milliseconds for time in each[4:6]], *each[6:]] for each in json.loads(text)]
    return json.dumps(records, separators=(",", ":"))


# -------------------------------------------------------------------- lines


def line_of(job: ExportedJob) -> dict[str, Any]:
    """Return the job as a JSON object. Columns without a value are left out."""
    line = {"job": job.id.hex(), **_fields_of(HEAD[1:], job.head[1:])}
    _add_bytes(line, "payload", job.payload)
    if job.status is not None:
        line["status"] = status = _fields_of(STATUS, job.status)
        if job.status[RESULT] is not None:
            _add_bytes(status, "result", job.status[RESULT])
    return line


def _fields_of(names: tuple[str, ...], values: list[Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if value is None or name == "result":
            continue
        if name in HEX:
            value = value.hex()
        elif name in JSON:
            value = json.loads(value)
        elif name in FLAGS:
            value = bool(value)
        fields[FILE_NAMES.get(name, name)] = value
    return fields


def _add_bytes(line: dict[str, Any], name: str, value: bytes) -> None:
    """Add bytes as text, if they are text in UTF-8, or else in base64."""
    try:
        line[name] = bytes(value).decode()
    except UnicodeDecodeError:
        line[name + BASE64] = b64encode(value).decode()


def job_of(line: dict[str, Any], decoder: RowDecoder) -> ExportedJob:
    """Read a line. Raises BadFile if a broker could not read the job."""
    rest = dict(line)
    name = rest.pop("job", None)
    try:
        status = rest.pop("status", None)
        payload = _take_bytes(rest, "payload")
        head = [bytes.fromhex(name), *_take_columns(rest, HEAD[1:])]
        job = ExportedJob(head, payload or b"", None)
        if status is not None:
            more = dict(status)
            result = _take_bytes(more, "result")
            job.status = _take_columns(more, STATUS)
            job.status[RESULT] = result
            rest.update(more)
        if rest:
            raise ValueError(f"unknown fields: {', '.join(sorted(rest))}")
        job.decoded(decoder)
    except (InvalidRow, ValueError, TypeError, AttributeError) as error:
        raise BadFile(f"job {name} cannot be read: {error}") from None
    return job


def _take_columns(fields: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    values: list[Any] = []
    for name in names:
        value = fields.pop(FILE_NAMES.get(name, name), None)
        if value is not None:
            value = READ.get(name, _plain)(value)
        elif name in FLAGS:
            value = 0
        values.append(value)
    return values


def _plain(value: Any) -> Any:
    return value


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


READ: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(HEX, bytes.fromhex),
    **dict.fromkeys(JSON, _compact),
    **dict.fromkeys(FLAGS, int),
    **dict.fromkeys(("created", "start_at", "given", "keep_until"), float),
}


def _take_bytes(fields: dict[str, Any], name: str) -> bytes | None:
    text, encoded = fields.pop(name, None), fields.pop(name + BASE64, None)
    if encoded is not None:
        return b64decode(encoded, validate=True)
    return None if text is None else str(text).encode()
