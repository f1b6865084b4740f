"""One connection and its other end."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import final

from dragoman.carriers.carrier import Carrier, Frame
from dragoman.core.infinity import inf
from dragoman.core.owners import Owner
from dragoman.dialects import interface
from dragoman.dialects.interface import BrokerSide
from dragoman.server.connection_limits import DEFAULT_LIMITS, ConnectionLimits
from dragoman.streams.byte_stream import ByteStream


@final
class StreamConnection(interface.Connection):
    # fmt: off
    __slots__ = (
        "alarm",
        "alarm_number",
        "bad_count",
        "bad_since",
        "carrier",
        "closing",
        "dialled",
        "fresh_tags",
        "heard",
        "holding",
        "is_lost",
        "is_open",
        "largest",
        "latest",
        "latest_end",
        "limits",
        "out",
        "seen_sent",
        "stream",
        "tags",
        "withheld",
    )
    # fmt: on

    def __init__(
        self,
        session: BrokerSide,
        socket_name: str,
        carrier: Carrier,
        label: str,
        address: str,
        now: float,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        owner: Owner | None = None,
    ) -> None:
        super().__init__(session)
        self.session = session
        self.socket_name = socket_name
        self.carrier = carrier
        self.label = label
        self.limits = limits
        self.address = address  # what `max_connections_per_local_address` counts by
        self.owner = owner if owner is not None else Owner()  # whose limits its jobs count for
        self.owner.connections += 1
        self.process = 0  # its process id, if the kernel tells
        self.identity = b""
        self.remote = None
        self.stream: ByteStream | None = None  # none while it is being dialled
        self.dialled = False
        self.is_open = False  # the session knows of it
        self.is_lost = False
        self.closed_in_order = False  # once it is lost
        self.closing: str | None = None  # why, once it has been decided
        self.since = now
        self.heard = now
        self.holding = 0  # bytes of a message that has not come to its end, when last looked
        self.largest = 0  # the largest buffer that the kernel has not wholly taken: one message may always wait
        self.seen_sent = 0  # what its stream had sent when the line last looked
        self.out: list[Frame] = []  # what this turn has for it
        self.fresh_tags: list[tuple[int, object]] = []  # (how many buffers of `out` its message ends at, mark)
        self.tags: deque[tuple[int, object]] = deque()  # (where its message ends in all we sent, mark): not left yet
        self.latest: object = None  # the mark of the last message, if it has left whole and nothing came since
        self.latest_end = 0  # where that message ends in all we sent
        self.withheld: list[object] = []  # marks of messages that came after its end was decided
        self.bad_count = 0
        self.bad_since = -inf
        self.alarm = inf
        self.alarm_number = 0

    def is_doomed(self) -> bool:
        """Whether it has ended, or its end is decided."""
        return self.closing is not None

    def write(self, stream: ByteStream) -> bool:
        """Write all that this iteration has for it. Tells whether a part of it waits for the kernel."""
        buffers, self.out = self.out, []
        before = stream.sent + stream.backlog
        stream.write(buffers)
        if stream.backlog:
            self._record_tags(stream, buffers, before)
            return True
        if stream.sent > before:  # else the write failed: they come back in `lost`
            if self.fresh_tags:
                self._note_left(len(buffers), stream.sent)
            self.largest = 0
        return False

    def _record_tags(self, stream: ByteStream, buffers: list[Frame], before: int) -> None:
        """The kernel has not taken all of these: note where in the stream each marked message ends."""
        self.largest = max(self.largest, *map(len, buffers))
        ends = list(accumulate(map(len, buffers), initial=before))
        self.tags.extend((ends[index], tag) for index, tag in self.fresh_tags)
        self.fresh_tags.clear()
        while self.tags and self.tags[0][0] <= stream.sent:
            self.tags.popleft()

    def _note_left(self, buffers: int, sent: int) -> None:
        """The kernel has taken all of this turn: remember the last marked message, if it stands at the end of it."""
        index, tag = self.fresh_tags[-1]
        self.latest = tag if index == buffers else None
        self.latest_end = sent
        self.fresh_tags.clear()

    def take_unsent(self) -> list[object]:
        """The marks of messages that have not left us whole, and never will, or that the peer cannot have read."""
        sent = self.stream.sent if self.stream is not None else 0
        if self.stream is not None and (self.latest is not None or self.tags):
            sent -= self.stream.unread()
        unsent = [tag for end, tag in self.tags if end > sent]
        if self.latest is not None and self.latest_end > sent:
            unsent.append(self.latest)
        self.latest = None
        unsent += [tag for _, tag in self.fresh_tags]
        unsent += self.withheld
        self.tags.clear()
        self.fresh_tags.clear()
        self.withheld.clear()
        self.out.clear()
        return unsent
