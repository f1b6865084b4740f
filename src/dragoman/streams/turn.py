"""A turn: the part of an iteration of the loop in which streams are read and their messages are handled.

Bytes alone do not bound it: 64 KiB are three thousand short messages, and a hundred connections may have as many. So a
turn has two limits, and what exceeds them waits for a later turn.

*Messages.* A carrier decodes `MOST` messages of a read. The stream then waits in `behind` with its undecoded bytes, is
not read, and continues in the order of the queue, `ROUNDS` times in a turn at most. A batch of a hundred calls is
still handled in one turn and answered with one write.

*Time.* Reading ends after `SECONDS`, and continuing after as much again. A stream that is readable later waits in
`unread`, and is first in the next turn. Streams without undecoded bytes are read before those that are behind
continue, so a connection that sends a message now and then waits for no queue of connections that send thousands.
At least one stream of each queue is served in each turn.

The order of an iteration (`server/asyncio_host.py`): streams that are behind continue; the runner executes effects and
writes; the next turn begins with streams in `unread`; the loop calls those that became readable.

There is no clock here: `server/connections.py` has the time of each arrival, and compares it with `ends`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from dragoman.streams.byte_stream import ByteStream

MOST: Final = 16  # messages of a stream at once
ROUNDS: Final = 16  # times that a stream continues in a turn
SECONDS: Final = 0.01
NOT_BEGUN: Final = -1.0  # no message has arrived in this turn


class Turn:
    """The queues of the streams that wait for a later turn. `most`: messages of a stream at once."""

    __slots__ = ("behind", "ends", "is_over", "most", "unread")

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.is_over = False  # no other stream is read in this turn
        self.ends = NOT_BEGUN  # time after which it is over
        self.unread: deque[ByteStream] = deque()  # readable
        self.behind: deque[ByteStream] = deque()  # with undecoded bytes

    @property
    def has_waiting(self) -> bool:
        return bool(self.behind or self.unread)

    def begin(self) -> None:
        """Begin the next turn: read the streams that had to wait."""
        self.restart()
        self._serve(self.unread)

    def end(self) -> None:
        """End the turn: streams with undecoded bytes continue."""
        self.restart()
        for _ in range(ROUNDS):
            if self.is_over or not self.behind:
                break
            self._serve(self.behind)

    def read_on(self, until: float) -> None:
        """Serve all streams that wait until this time, or until none waits."""
        self.restart()
        self.ends = until
        while self.has_waiting and not self.is_over:
            self._serve(self.unread)
            self._serve(self.behind)

    def restart(self) -> None:
        self.is_over = False
        self.ends = NOT_BEGUN

    def _serve(self, waiting: deque[ByteStream]) -> None:
        for _ in range(len(waiting)):
            if self.is_over:
                break
            waiting.popleft().take_turn()
