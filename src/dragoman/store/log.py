"""Reader of SQLite's write-ahead log: checks whether it ends where the last commit ended.

SQLite reads a log up to the first invalid frame and treats that as the end, because a power failure leaves just that:
an incomplete last transaction. But frames of a later transaction are written only after the previous one was synced. So
two commits behind an invalid frame mean damage: the first may belong to the transaction that was being written, the
second cannot.

A frame's checksum continues the previous one, which is stored in that frame. So each frame can be verified against its
neighbour, even behind damage. Frames with other salts are from before the log was restarted, and everything in them is
in the file. Zeros at the end are preallocated space (`log_room.py`).
"""

from __future__ import annotations

import mmap
from array import array
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from struct import Struct
from sys import byteorder

HEADER = 32
FRAME_HEADER = 24
MAGIC = 0x377F0682  # with the last bit set: checksums over big-endian words
MASK = 0xFFFF_FFFF
NO_SALTS = (0, 0)  # of preallocated space, which is not a frame
CHUNK = 1 << 16
SIZES = [1 << power for power in range(9, 17)]

_read_header = Struct(">8I").unpack_from
_read_frame = Struct(">6I").unpack_from


def size_of_log(frames: int, page_size: int) -> int:
    """Return the minimum size in bytes of a log with this many frames."""
    return HEADER + frames * (FRAME_HEADER + page_size) if frames else 0


def is_blank(path: Path) -> bool:
    """True if there is no log, or it has only preallocated space."""
    try:
        with open(path, "rb") as file:
            while some := file.read(CHUNK):
                if some.count(0) < len(some):
                    return False
    except FileNotFoundError:
        pass
    return True


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a log."""

    index: int
    page: int
    commit: int  # pages of the file after this commit; 0: not the last frame of its transaction
    is_ours: bool  # it has the salts of the log
    is_whole: bool  # its checksum matches


class Log:
    """The frames of a log file. Use as a context manager."""

    def __init__(self, path: Path, page_size: int = 0) -> None:
        """`page_size`: of the file, in case the log's header is damaged."""
        self._file = open(path, "rb")  # noqa: SIM115
        self._file.seek(0, 2)
        size = self._file.tell()
        self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self.is_empty = size < HEADER + FRAME_HEADER
        self.has_header = False
        self.page_size = page_size
        self.salts = NO_SALTS
        self._is_big = False
        self._start = (0, 0)  # the checksum that the first frame continues
        if size >= HEADER:
            self._take_header()
        step = FRAME_HEADER + self.page_size
        self.count = max(0, (size - HEADER) // step) if self.page_size in SIZES else 0
        self._weights = _weights(8 + self.page_size) if self.count else ([], [])

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._bytes, mmap.mmap):
            self._bytes.close()
        self._file.close()

    def _take_header(self) -> None:
        magic, _, page_size, _, salt, other_salt, sum, other_sum = _read_header(self._bytes)
        self._is_big = bool(magic & 1)
        if magic & ~1 == MAGIC and page_size in SIZES:
            found = _checksum(self._bytes[:FRAME_HEADER], _weights(FRAME_HEADER), self._is_big, (0, 0))
            self.has_header = found == (sum, other_sum)
        if self.has_header:
            self.page_size, self.salts, self._start = page_size, (salt, other_salt), (sum, other_sum)

    def adopt_salts(self) -> None:
        """Take the salts and checksums from the first frames, because the header is damaged."""
        first = next((index for index in range(self.count) if self._salts_of(index) != NO_SALTS), None)
        if first is None:
            return
        self.salts = self._salts_of(first)
        stored = _read_header(self._bytes)[6:8]
        for self._is_big in (False, True):
            computed = _checksum(self._bytes[:FRAME_HEADER], _weights(FRAME_HEADER), self._is_big, (0, 0))
            for self._start in (stored, computed):
                if self.frame(first).is_whole or (self.count > first + 1 and self.frame(first + 1).is_whole):
                    return

    def frame(self, index: int) -> Frame:
        at = self._at(index)
        page, commit, salt, other_salt, sum, other_sum = _read_frame(self._bytes, at)
        is_ours = (salt, other_salt) == self.salts != NO_SALTS
        is_whole = False
        if is_ours:
            before = self._start if index == 0 else _read_frame(self._bytes, self._at(index - 1))[4:6]
            content = self._bytes[at : at + 8] + self.page(index)
            is_whole = _checksum(content, self._weights, self._is_big, before) == (sum, other_sum)
        return Frame(index, page, commit, is_ours, is_whole)

    def page(self, index: int) -> bytes:
        at = self._at(index) + FRAME_HEADER
        return self._bytes[at : at + self.page_size]

    def has_later_commit(self, first: int) -> bool:
        """True if a frame from here on is marked as a commit of this log. A quick check, without checksums."""
        for index in range(first, self.count):
            _, commit, salt, other_salt, _, _ = _read_frame(self._bytes, self._at(index))
            if commit and (salt, other_salt) == self.salts:
                return True
        return False

    def behind(self, end: int) -> list[Frame]:
        """Return the valid frames behind the end that SQLite found, if a transaction there was certainly synced.

        The transaction that is cut off by the end may have been in progress: its own commit proves nothing.
        """
        if not self.has_later_commit(end):
            return []
        whole = [frame for index in range(end, self.count) if (frame := self.frame(index)).is_whole]
        commits = sum(frame.commit > 0 for frame in whole)
        return whole if commits >= 2 else []

    def committed_pages(self) -> dict[int, int]:
        """Return the last valid, committed frame of each page, also behind damage."""
        pages: dict[int, int] = {}
        pending: dict[int, int] = {}
        for index in range(self.count):
            frame = self.frame(index)
            if frame.is_whole:
                pending[frame.page] = index
                if frame.commit:
                    pages |= pending
                    pending = {}
        return pages

    def _salts_of(self, index: int) -> tuple[int, int]:
        _, _, salt, other_salt, _, _ = _read_frame(self._bytes, self._at(index))
        return salt, other_salt

    def _at(self, index: int) -> int:
        return HEADER + index * (FRAME_HEADER + self.page_size)


def last_size(log: Log) -> int:
    """Return the number of pages of the file after the last valid commit."""
    for index in range(log.count - 1, -1, -1):
        frame = log.frame(index)
        if frame.is_whole and frame.commit:
            return frame.commit
    return 0


def _weights(length: int) -> tuple[list[int], list[int]]:
    """Return the weight of each word in both halves of a checksum: SQLite's sums give Fibonacci numbers.

    For each pair of words it computes a += word + b; b += next + a. The last two weights are those of the previous sum.
    """
    pairs = length // 8
    fibonacci = [0, 1]
    while len(fibonacci) < 2 * pairs + 2:
        fibonacci.append((fibonacci[-1] + fibonacci[-2]) & MASK)
    first, second = [], []
    for left in range(2 * pairs, 0, -2):  # words from this pair to the end
        first += [fibonacci[left - 1], fibonacci[left - 2]]
        second += [fibonacci[left], fibonacci[left - 1]]
    first += [fibonacci[2 * pairs - 1], fibonacci[2 * pairs]]
    second += [fibonacci[2 * pairs], fibonacci[2 * pairs + 1]]
    return first, second


def _checksum(
    content: bytes, weights: tuple[list[int], list[int]], is_big: bool, before: tuple[int, ...]
) -> tuple[int, int]:
    words = array("I", content)
    if is_big == (byteorder == "little"):
        words.byteswap()
    profile = [*words, *before]
    return sum(map(mul, weights[0], profile)) & MASK, sum(map(mul, weights[1], profile)) & MASK
