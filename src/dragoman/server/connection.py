"""One connection."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import Final, final

from dragoman.carriers.carrier import Carrier, Frame
from dragoman.core.infinity import inf
from dragoman.core.owners import Owner
from dragoman.dialects import interface
from dragoman.dialects.interface import BrokerSide
from dragoman.server.authentication import Admitted, ListenerAuth
from dragoman.server.connection_limits import DEFAULT_LIMITS, ConnectionLimits
from dragoman.server.handshakes import Handshake
from dragoman.streams.byte_stream import ByteStream

NO_TAGS: Final[deque[tuple[int, object]]] = deque()  # shared by connections that never had unsent tags: 760 bytes less


@final
class StreamConnection(interface.Connection):
    """A connection with its carrier, its unsent messages and their delivery tags."""

    # fmt: off
    __slots__ = (
        "admitted", "alarm", "alarm_number", "auth", "bad_count", "bad_since", "carrier", "dialled", "fresh_tags",
        "handshake", "holding", "is_held", "is_local", "is_lost", "is_open", "largest", "last_received", "latest",
        "latest_end", "limits", "out", "seen_sent", "stream", "tags", "unsendable",
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
        owner: Owner,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(session, owner)
        self.session = session
        self.socket_name = socket_name
        self.carrier = carrier
        self.label = label
        self.limits = limits
        self.address = address  # key of `max_connections_per_local_address`
        self.process = 0  # its process id, if the kernel reports it
        self.identity = b""
        self.remote = None
        self.auth: ListenerAuth | None = None  # None: who it is was known when it connected
        self.admitted: Admitted | None = None  # None: dialled, or the broker has no authentication
        self.handshake: Handshake | None = None  # in progress, if it is limited (R168)
        self.is_local = True  # it is on this machine
        self.stream: ByteStream | None = None  # None while it is being dialled
        self.dialled = False
        self.is_held = False  # its carrier sends nothing yet: the handshake of TLS is in progress
        self.is_open = False  # the broker side has been notified
        self.is_lost = False
        self.closed_in_order = False  # set when it is lost
        self.closing = None  # reason for closing, once decided
        self.since = now
        self.last_received = now
        self.holding = 0  # bytes of an incomplete message, when last checked
        self.largest = 0  # the largest buffer that the kernel has not taken completely: one message may always wait
        self.seen_sent = 0  # bytes that its stream had sent at the last heartbeat check
        self.out: list[Frame] = []  # messages of this iteration
        self.fresh_tags: list[tuple[int, object]] = []  # (number of buffers in `out` up to the end of the message, tag)
        self.tags = NO_TAGS  # (end of the message in the sent stream, tag): not sent yet
        self.latest: object = None  # tag of the last message, if it was sent completely and nothing was received since
        self.latest_end = 0  # end of that message in the sent stream
        self.unsendable: list[object] = []  # tags of messages that were refused because it is closing
        self.bad_count = 0
        self.bad_since = -inf
        self.alarm = inf
        self.alarm_number = 0
        owner.enter()

    def is_ready(self) -> bool:
        """True if the handshakes of its carrier and of its stream are done."""
        return self.carrier.ready and self.stream is not None and self.stream.is_ready

    def is_closing(self) -> bool:
        """True if it has ended or is being closed."""
        return self.closing is not None

    def write(self, stream: ByteStream) -> bool:
        """Write all messages of this iteration. Returns whether a part of them waits for the kernel."""
        buffers, self.out = self.out, []
        before = stream.sent + stream.backlog
        stream.write(buffers)
        if stream.backlog:
            self._record_tags(stream, buffers, before)
            return True
        if stream.sent > before:  # otherwise the write failed: the tags are returned in `lost`
            if self.fresh_tags:
                self._note_left(len(buffers), stream.sent)
            self.largest = 0
        return False

    def _record_tags(self, stream: ByteStream, buffers: list[Frame], before: int) -> None:
        """Record where in the stream each tagged message ends: the kernel has not taken all of them."""
        self.largest = max(self.largest, *map(len, buffers))
        ends = list(accumulate(map(len, buffers), initial=before))
        if self.tags is NO_TAGS:
            self.tags = deque()
        self.tags.extend((ends[index], tag) for index, tag in self.fresh_tags)
        self.fresh_tags.clear()
        while self.tags and self.tags[0][0] <= stream.sent:
            self.tags.popleft()

    def _note_left(self, buffers: int, sent: int) -> None:
        """Remember the last tagged message if it is the last one sent: the kernel has taken all of this iteration."""
        index, tag = self.fresh_tags[-1]
        self.latest = tag if index == buffers else None
        self.latest_end = sent
        self.fresh_tags.clear()

    def take_unsent(self) -> list[object]:
        """Return the tags of messages that were not sent completely, or that the other side cannot have read."""
        sent = self.stream.sent if self.stream is not None else 0
        if self.stream is not None and (self.latest is not None or self.tags):
            sent -= self.stream.unread()
        unsent = [tag for end, tag in self.tags if end > sent]
        if self.latest is not None and self.latest_end > sent:
            unsent.append(self.latest)
        self.latest = None
        unsent += [tag for _, tag in self.fresh_tags]
        unsent += self.unsendable
        self.tags.clear()
        self.fresh_tags.clear()
        self.unsendable.clear()
        self.out.clear()
        return unsent
