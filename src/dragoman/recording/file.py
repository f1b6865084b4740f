"""The file of a recording: a line with its version, then chunks of items.

    dragoman recording 1\\n
    chunk    length and checksum (4 bytes each, big-endian), then that many bytes of MessagePack: an array of items

The checksum is CRC-32 of the bytes, continued from the chunk before, so a missing chunk is noticed, too. An item is an
array whose first element names its kind (`items.py`). The last item of a complete file is `end`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final
from zlib import crc32

import msgspec

from dragoman.recording.items import END, Item

VERSION: Final = 1
TITLE: Final = b"dragoman recording "
HEAD: Final = Struct(">II")
MAX_CHUNK: Final = 1 << 30
DEFAULT_SIZE: Final = 256 << 20
FEW: Final = 512  # items that wait at most for the end of an iteration

FULL: Final = "it has reached its maximum size (--record-size)"
STOPPED: Final = "the broker stopped"


class RecordingError(Exception):
    """A file that is not a recording, or is damaged. The message names the place."""


class RecordingWriter:
    """Writes a recording up to a maximum size. Items are kept until `flush`."""

    def __init__(self, path: Path, max_size: int = DEFAULT_SIZE) -> None:
        """Create the file, readable by this user only. Raises FileExistsError, or another OSError."""
        self.problem: str | None = None  # the reason for which nothing is written any more
        self._items: list[Item] = []
        self._size = 0
        self._max_size = max_size
        self._checksum = 0
        self._encoder = msgspec.msgpack.Encoder()
        is_device = path.exists() and stat.S_ISCHR(path.stat().st_mode)
        how = os.O_WRONLY | os.O_CLOEXEC | (0 if is_device else os.O_CREAT | os.O_EXCL)
        self._file = os.open(path, how, 0o600)
        try:
            self._write(TITLE + b"%d\n" % VERSION)
        except OSError as error:
            os.close(self._file)
            if not is_device:
                path.unlink()
            raise OSError(error.errno, error.strerror, str(path)) from None

    def add(self, item: Item) -> None:
        if self.problem is None:
            self._items.append(item)
            if len(self._items) >= FEW:
                self.flush()

    def flush(self) -> None:
        """Write the items that are kept. After an error, or if the file is full, nothing more is written."""
        if not self._items or self.problem is not None:
            return
        items, self._items = self._items, []
        try:
            chunk = self._encoder.encode(items)
        except (TypeError, ValueError, OverflowError) as error:  # text that is no Unicode, or a fault of a tap
            self._end(f"an item cannot be written: {error}")
            return
        if self._size + len(chunk) > self._max_size:
            self._end(FULL)
            return
        self._write_chunk(chunk)

    def close(self) -> None:
        """Write the end of the recording."""
        self.flush()
        self._end(STOPPED)

    def _end(self, reason: str) -> None:
        if self.problem is None:
            self._write_chunk(self._encoder.encode([(END, reason)]))
            self._stop(reason)

    def _write_chunk(self, chunk: bytes) -> None:
        checksum = crc32(chunk, self._checksum)
        try:
            self._write(HEAD.pack(len(chunk), checksum) + chunk)
        except OSError as error:
            self._stop(error.strerror or str(error))
        self._checksum = checksum

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._size += len(data)

    def _stop(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem
            self._items.clear()
            os.close(self._file)


class Recording:
    """A recording that is read. `end` is known when all items have been read."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, or RecordingError if it is not a recording of this version."""
        self.end = ""  # the last item's text; empty: the file is cut off
        self._path = path
        with path.open("rb") as file:
            title = file.readline(64)
        if not title.startswith(TITLE):
            raise RecordingError(f"{path} is not a recording; `dragoman serve --record FILE` writes one")
        if title != TITLE + b"%d\n" % VERSION:
            version = title.removeprefix(TITLE).strip().decode("ascii", "replace")
            raise RecordingError(f"{path} has version {version}; this program reads version {VERSION}")

    def __iter__(self) -> Iterator[Item]:
        """Yield all items. Raises RecordingError at a damaged place. A chunk that is cut off ends the iteration."""
        with self._path.open("rb") as file:
            file.readline()
            place, checksum = file.tell(), 0
            while len(head := file.read(HEAD.size)) == HEAD.size:
                size, expected = HEAD.unpack(head)
                if size > MAX_CHUNK:
                    raise RecordingError(f"the recording is damaged at byte {place}: a chunk of {size} bytes")
                chunk = file.read(size)
                if len(chunk) < size:
                    if _is_whole(chunk):
                        raise RecordingError(f"the recording is damaged at byte {place}: the length is wrong")
                    return
                checksum = crc32(chunk, checksum)
                if checksum != expected:
                    raise RecordingError(f"the recording is damaged at byte {place}: the checksum is wrong")
                yield from self._items(chunk, place)
                place = file.tell()

    def _items(self, chunk: bytes, place: int) -> Iterator[Item]:
        try:
            items: list[list[Any]] = msgspec.msgpack.decode(chunk, type=list[list[Any]])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RecordingError(f"the recording is damaged at byte {place}: {error}") from None
        for item in items:
            if not item or not isinstance(item[0], str):
                raise RecordingError(f"the recording is damaged at byte {place}: an item has no kind")
            if item[0] == END:
                self.end = str(item[-1])
            else:
                yield tuple(item)


def _is_whole(chunk: bytes) -> bool:
    """True if bytes that should be the beginning of a chunk are a whole one, and perhaps more: its length is damaged.
    In a file that is cut off, only the end of the last chunk is missing."""
    try:
        msgspec.msgpack.decode(chunk)
    except msgspec.DecodeError as error:
        return bool(chunk) and "truncated" not in str(error)
    except (UnicodeDecodeError, RecursionError):
        return True
    return True
