"""A link: records between one run of a broker and one run of another, in order, none lost and none twice.

Core NATS drops messages for a receiver that is not connected, and orders those of one connection. So packets have
numbers, and the receiver acknowledges the last one that it has without a gap. A packet after a gap is dropped, and the
sender sends everything after the last acknowledged one again: after `REPEAT_AFTER` without an acknowledgement, and at
once after a reconnect. A body over the limit of a NATS message is cut into several packets.

A link never ends by itself. It is dropped with the run of the other broker, or when that was not heard for long. One
side may drop it alone, and begin another one: each end has a number, which its packets carry. A packet for another end
is dropped, and one from another end means that the other side has dropped everything (`is_from_another`).
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.records import VERSION, AnyRecord, Packet, encode_packet, encode_records, read_records
from dragoman.core.infinity import inf

REPEAT_AFTER: Final = 0.5  # seconds without an acknowledgement; doubles up to the next
REPEAT_LONGEST: Final = 4.0
ACKNOWLEDGE_AFTER: Final = 0.02  # seconds; packets in the other direction carry it sooner
MAX_UNACKNOWLEDGED: Final = 64 << 20  # bytes; beyond them the link is full
MAX_BODY: Final = 1 << 30  # bytes that the receiver joins from fragments
HEADER: Final = 256  # bytes of a packet besides its body, at most


@final
class Link:
    """One end of a link. `name` and `incarnation`: of this broker's run."""

    def __init__(self, name: str, incarnation: str, max_message: int, id: int = 0) -> None:
        """`id`: differs from that of every other link of this run to the same broker."""
        self._name = name
        self._incarnation = incarnation
        self.max_message = max_message  # bytes of a NATS message
        self.identity = ""  # of the layout of this broker's logs; empty: not known yet
        self._id = id
        self._other = 0  # number of the other end; 0: not known yet
        self._last_sent = 0
        self._received = 0  # number of the last packet received without a gap
        self._unacknowledged: deque[tuple[int, bool, bytes]] = deque()  # number, is_last, body
        self._bytes = 0
        self._records: list[AnyRecord] = []  # for the next packet
        self._fragments: list[bytes] = []
        self._fragment_bytes = 0
        self._acknowledge_at = inf
        self._repeat_at = inf
        self._repeat_delay = REPEAT_AFTER

    # ---------------------------------------------------------------- sending

    def add(self, record: AnyRecord) -> None:
        """Add a record to the next packet."""
        self._records.append(record)

    @property
    def last_sent(self) -> int:
        """Number of the last packet with records that was made."""
        return self._last_sent

    @property
    def next_number(self) -> int:
        """Number of the packet that ends the records added so far, unless they are cut into several."""
        return self._last_sent + 1

    @property
    def is_acknowledged(self) -> bool:
        """True if the other side has received every record that was added."""
        return not self._unacknowledged and not self._records

    @property
    def unacknowledged(self) -> int:
        """Bytes that the other side has not acknowledged."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """True if the other side has not acknowledged too much: no more jobs should be added."""
        return self._bytes > MAX_UNACKNOWLEDGED

    def flush(self, now: float) -> list[bytes]:
        """Return the packets of the records that were added, and of an acknowledgement that is due."""
        packets: list[bytes] = []
        if self._records:
            body = encode_records(self._records)
            self._records = []
            most = max(1, self.max_message - HEADER)
            for start in range(0, len(body), most):
                packets.append(self._number(body[start : start + most], start + most >= len(body)))
            if self._repeat_at == inf:
                self._repeat_at = now + self._repeat_delay
            self._acknowledge_at = inf
        elif self._acknowledge_at <= now:
            packets.append(self._packet(0, True, b""))
            self._acknowledge_at = inf
        return packets

    def tick(self, now: float) -> list[bytes]:
        """Return the packets that are due now: repeated ones, and an acknowledgement."""
        packets = []
        if self._repeat_at <= now:
            packets = [self._packet(*each) for each in self._unacknowledged]
            self._repeat_delay = min(2.0 * self._repeat_delay, REPEAT_LONGEST)
            self._repeat_at = now + self._repeat_delay if packets else inf
        return packets + self.flush(now)

    def reconnected(self, now: float) -> None:
        """Let everything that is not acknowledged be sent again at the next tick."""
        self._repeat_delay = REPEAT_AFTER
        if self._unacknowledged:
            self._repeat_at = now
        self._acknowledge_at = now

    def next_tick(self) -> float:
        return min(self._repeat_at, self._acknowledge_at)

    def _number(self, body: bytes, is_last: bool) -> bytes:
        self._last_sent += 1
        self._unacknowledged.append((self._last_sent, is_last, body))
        self._bytes += len(body)
        return self._packet(self._last_sent, is_last, body)

    def _packet(self, number: int, is_last: bool, body: bytes) -> bytes:
        ends = (self._id, self._other, self.identity)
        received = self._received
        return encode_packet(Packet(VERSION, self._name, self._incarnation, number, received, is_last, body, *ends))

    # ---------------------------------------------------------------- receiving

    def receive(self, packet: Packet, now: float) -> list[AnyRecord]:
        """Return the records that are complete with this packet, in order. Raises Malformed."""
        if packet.other and packet.other != self._id:
            self._acknowledge_at = now  # for an end that this side has dropped: tell the other side about this one
            return []
        self._other = packet.link
        self._acknowledged(packet.acknowledged, now)
        if packet.number == 0:
            return []
        if packet.number != self._received + 1:  # a repetition, or a gap before it
            self._acknowledge_at = now
            return []
        self._received = packet.number
        self._acknowledge_at = min(self._acknowledge_at, now + ACKNOWLEDGE_AFTER)
        self._fragment_bytes += len(packet.body)
        if self._fragment_bytes > MAX_BODY:
            raise Malformed("records too large", f"over {MAX_BODY} bytes")
        if not packet.is_last:
            self._fragments.append(packet.body)
            return []
        body = packet.body
        if self._fragments:
            body = b"".join([*self._fragments, body])
            self._fragments = []
        self._fragment_bytes = 0
        return read_records(body)

    def is_from_another(self, packet: Packet) -> bool:
        """True if the other side has begun another link: this one must be dropped."""
        return bool(self._other) and packet.link != self._other and packet.other in (0, self._id)

    @property
    def received(self) -> int:
        """Number of the last packet received without a gap."""
        return self._received

    def _acknowledged(self, number: int, now: float) -> None:
        unacknowledged = self._unacknowledged
        if number > self._last_sent:
            raise Malformed("unknown packet", f"packet {number} is acknowledged; the last one is {self._last_sent}")
        if not unacknowledged or number < unacknowledged[0][0]:
            return
        while unacknowledged and unacknowledged[0][0] <= number:
            self._bytes -= len(unacknowledged.popleft()[2])
        self._repeat_delay = REPEAT_AFTER
        self._repeat_at = now + REPEAT_AFTER if unacknowledged else inf
