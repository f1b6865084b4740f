"""The file of an export: JSON lines.

    header   {"dragoman": "export", "format": 1, "release": …, "identity": …, "source": …, "made": …}
    job      {"job": id, "service": …, …}, see `exported_job.py`
    value    {"value": key, "text": …}: schedules, pauses, limits and groups, as the store has them
    damage   {"damage": {"shard": …, "reason": …, "first": …, "last": …, "messages": …, "jobs": […]}}, see `damage.py`:
             what the export of a damaged cluster has left out. An earlier release refuses a file with such a line
    end      {"end": {"jobs": …, "groups": …, …}, "lines": …, "sha256": …}: counts, and a digest of all lines before it

A file without its end, or with another digest, was cut off, damaged or edited: nothing of it is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, BinaryIO, Final

from dragoman.core.groups import PREFIX as GROUP
from dragoman.operations.limits import LIMITS
from dragoman.operations.pauses import PAUSED_AT, PAUSED_BY
from dragoman.operations.schedule_state import PREFIX as SCHEDULE
from dragoman.store.rows import RowDecoder
from dragoman.transfer.damage import Damage, damage_of
from dragoman.transfer.errors import BadFile, TransferError
from dragoman.transfer.exported_job import ExportedJob, job_of, line_of

FORMAT: Final = 1
KINDS: Final = {
    GROUP: "groups",
    SCHEDULE: "schedules",
    PAUSED_BY: "pauses",
    PAUSED_AT: "times of pauses",
    LIMITS: "limits",
}
CUT_OFF: Final = "the file is cut off: its last line is missing; export again"
CHANGED: Final = "the file was damaged or edited: its digest does not match; export again"

Value = tuple[str, str]  # key and text
Progress = Callable[[int, int], None]  # done, and all; 0 if that is not known


def no_progress(done: int, total: int) -> None:
    pass


def kind_of(key: str) -> str:
    """Return the kind of a stored value. Raises TransferError for one that this release does not know."""
    for prefix, kind in KINDS.items():
        if key.startswith(prefix):
            return kind
    raise TransferError(
        f"the store has a value {key!r}, which this release cannot carry over; use the one that made it"
    )


class FileWriter:
    """Writes an export. `write` takes bytes."""

    def __init__(self, write: Callable[[bytes], object], release: str, identity: str, source: str, made: float) -> None:
        self.counts: dict[str, int] = {"jobs": 0} | dict.fromkeys(KINDS.values(), 0)
        self.damages: list[Damage] = []
        self._write = write
        self._digest = sha256()
        self._lines = 0
        self._add(
            {
                "dragoman": "export",
                "format": FORMAT,
                "release": release,
                "identity": identity,
                "source": source,
                "made": made,
            }
        )

    def add_job(self, job: ExportedJob) -> None:
        self.counts["jobs"] += 1
        self._add(line_of(job))

    def add_value(self, key: str, text: str) -> None:
        """Raises TransferError if its kind is not known."""
        self.counts[kind_of(key)] += 1
        self._add({"value": key, "text": text})

    def add_damage(self, damage: Damage) -> None:
        self.damages.append(damage)
        self._add(damage.line())

    def end(self) -> None:
        self._add({"end": self.counts, "lines": self._lines, "sha256": self._digest.hexdigest()})

    def _add(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self._digest.update(data)
        self._lines += 1
        self._write(data)


class FileReader:
    """Reads an export. The whole file is checked whenever it is read."""

    def __init__(self, file: BinaryIO) -> None:
        """`file`: can be read several times. Raises BadFile."""
        self._file = file
        self.counts: dict[str, int] = {}  # after it was read
        self.damages: list[Damage] = []  # likewise
        header = _object(file.readline())
        if header.get("dragoman") != "export":
            raise BadFile("this is not a file of `dragoman export`")
        if header.get("format") != FORMAT:
            raise BadFile(f"the file has format {header.get('format')}; this release reads {FORMAT}: use a newer one")
        self.identity = str(header.get("identity", ""))
        self.source = str(header.get("source", ""))
        if len(self.identity) != 32 or not self.identity.isalnum():
            raise BadFile(CHANGED)

    def read(self) -> Iterator[ExportedJob | Value]:
        """Yield everything in order. Raises BadFile, at the latest at the end: until then nothing may be final."""
        self._file.seek(0)
        digest = sha256()
        counts = {"jobs": 0} | dict.fromkeys(KINDS.values(), 0)
        damages: list[Damage] = []
        decoder = RowDecoder()
        for lines, data in enumerate(self._file):
            line = _object(data)
            if "end" in line:
                self._check_end(line, lines, digest.hexdigest(), counts)
                self.damages = damages
                return
            digest.update(data)
            if "job" in line:
                counts["jobs"] += 1
                yield job_of(line, decoder)
            elif "value" in line:
                key = str(line["value"])
                counts[kind_of(key)] += 1
                yield key, str(line.get("text", ""))
            elif "damage" in line:
                damages.append(damage_of(line))
            elif lines:
                raise BadFile(f"line {lines + 1} is neither a job nor a value")
        raise BadFile(CUT_OFF)

    def _check_end(self, line: dict[str, Any], lines: int, digest: str, counts: dict[str, int]) -> None:
        if line.get("sha256") != digest or line.get("lines") != lines:
            raise BadFile(CHANGED)
        if line["end"] != counts:
            raise BadFile(f"the file says that it has {line['end']}, and has {counts}; export again")
        if self._file.readline():
            raise BadFile("the file goes on after its last line; export again")
        self.counts = counts


def _object(data: bytes) -> dict[str, Any]:
    if not data.endswith(b"\n"):
        raise BadFile(CUT_OFF)
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise BadFile("the file has a line that is not a JSON object: it is damaged, or no file of `dragoman export`")
    return line
