"""Conversation: the recorded messages of one job, or of one worker, in the order in which the broker saw them.

Payloads are never recorded: an entry has the name of a message in its own dialect, and its size. The functions that
broker sides call are in `recording.py`, the conversations of all jobs in `conversations.py`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MOST_ENTRIES: Final = 400  # of a job; later ones are only counted
MOST_OF_WORKER: Final = 200  # entries of a worker; the oldest ones are dropped
ENTRY_BYTES: Final = 150  # about the memory of one entry
MOST_BYTES: Final = 16 << 20  # of all conversations together
BROKER: Final = "b"  # id of the broker's lane

# Kinds of entries.
RECEIVED: Final = 0  # a message from the lane to the broker
SENT: Final = 1  # a message from the broker to the lane
NOTE: Final = 2  # an action of the broker itself
ATTEMPT: Final = 3  # the start of an attempt
GONE: Final = 4  # the connection of the lane has ended, or its worker is lost


class Lane:
    """A party of a conversation: a caller or a worker. The broker's own lane is implied."""

    __slots__ = ("dialect", "id", "name", "role")

    def __init__(self, id: str, role: str, name: str, dialect: str) -> None:
        self.id = id
        self.role = role
        self.name = name
        self.dialect = dialect


class Entry:
    """One row of a conversation."""

    __slots__ = ("count", "ends", "kind", "lane", "mark", "size", "text", "time")

    def __init__(self, time: float, kind: int, lane: str, text: str, size: int = 0, mark: str = "") -> None:
        self.time = time
        self.kind = kind
        self.lane = lane
        self.text = text  # name of the message, or the note
        self.size = size  # bytes of the message; 0: not known
        # Of a received message: the reason to drop it. Of a sent one: the reason that it was not sent. Of a note or an
        # attempt: the outcome.
        self.mark = mark
        self.ends = ""  # lane of the worker whose attempt ends here
        self.count = 1  # repetitions of a heartbeat


class AttemptEntry(Entry):
    """The start of an attempt; and its end, once it has ended."""

    __slots__ = ("ended", "given", "most", "number")

    def __init__(self, given: float, lane: str, number: int, most: int) -> None:
        super().__init__(given, ATTEMPT, lane, "")
        self.given = given  # `time` is later if the job was stored first
        self.number = number
        self.most = most  # attempts that the job may use up
        self.ended: float | None = None


class Room:
    """Memory that all conversations share."""

    __slots__ = ("entries", "most")

    def __init__(self) -> None:
        self.entries = 0
        self.most = MOST_BYTES // ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        return self.entries >= self.most


class Conversation:
    """The recorded messages of one job. Its entries stay after the job has ended, and late messages are added."""

    # fmt: off
    __slots__ = (
        "began", "end", "ends", "entries", "id", "is_kept", "is_over", "is_whole", "lanes", "more", "next_attempt",
        "outcome", "owner", "room", "service",
    )
    # fmt: on

    def __init__(self, id: bytes, service: str, owner: str, began: float, room: Room, *, is_whole: bool = True) -> None:
        self.id = id
        self.service = service
        self.owner = owner  # name of the job's principal
        self.began = began
        self.room = room
        self.is_whole = is_whole  # each message is recorded; otherwise it is made from the job's history
        self.is_over = False  # its job has ended
        self.is_kept = True  # False: dropped, because newer ones took its place
        self.entries: list[Entry] = []
        self.lanes: list[Lane] = []
        self.more = 0  # entries over the limit
        self.outcome = ""  # of the last attempt, if no note has it yet
        self.end = ""  # reason of that outcome
        self.ends = ""  # lane of the worker whose attempt ends at the next note
        self.next_attempt: AttemptEntry | None = None  # added in front of the first message of its worker

    def lane(self, role: str, key: str, name: str, dialect: str) -> str:
        """Return the id of a party, which is added if it is new. `key`: number of a worker; empty for a caller."""
        same = 1
        for each in self.lanes:
            if each.role == role:
                if each.id == key or (not key and each.name == name and each.dialect == dialect):
                    return each.id
                same += 1
        id = key or ("c" if same == 1 else f"c{same}")
        self.lanes.append(Lane(id, role, name, dialect))
        return id

    def add(self, entry: Entry, *, is_first: bool = False) -> None:
        """Add an entry at the end, or in front of all others. The clock of an iteration may be a little behind."""
        if self.entries and not is_first:
            entry.time = max(entry.time, self.entries[-1].time)
        if len(self.entries) < MOST_ENTRIES and self.is_kept and not self.room.is_full:
            self.entries.insert(0 if is_first else len(self.entries), entry)
            self.room.entries += 1
        else:
            self.more += 1

    def note(self, text: str, time: float, outcome: str = "") -> Entry:
        """Add an action of the broker, with the end of the last attempt if no note has it yet."""
        if self.outcome:
            outcome, text = self.outcome, f"{self.end}; {text}" if text else self.end
            self.outcome = self.end = ""
        entry = Entry(time, NOTE, BROKER, text, 0, outcome)
        entry.ends, self.ends = self.ends, ""
        self.add(entry)
        return entry

    def begin_attempt(self, entry: AttemptEntry) -> None:
        """Record the start of an attempt."""
        self.flush(entry.time)
        self.show_attempt()
        self.next_attempt = entry

    def show_attempt(self) -> None:
        """Add the start of the last attempt, if it is not added yet."""
        if self.next_attempt is not None:
            entry, self.next_attempt = self.next_attempt, None
            self.add(entry)

    def flush(self, time: float) -> None:
        """Add the end of the last attempt, if no note has it yet."""
        if self.outcome:
            self.note("", time)

    def end_attempt(self, lane: str, number: int, outcome: str, time: float) -> None:
        """Record how an attempt ended: where it began; and at the worker's last message, or at the next note."""
        self.show_attempt()
        for entry in reversed(self.entries):
            if isinstance(entry, AttemptEntry) and entry.number == number and entry.lane == lane:
                entry.mark = outcome
                entry.ended = time
                break
        last = self.entries[-1] if self.entries else None
        if last is not None and last.lane == lane and last.kind in (RECEIVED, GONE):
            last.ends = lane
        else:
            self.ends = lane

    def not_sent(self, lane: str, mark: str) -> None:
        """Mark the last message to a worker as not sent, unless the worker has replied since."""
        for entry in reversed(self.entries):
            if entry.lane == lane:
                if entry.kind == SENT:
                    entry.mark = mark
                return

    def drop(self) -> None:
        """Forget all entries: newer conversations take their place."""
        self.is_kept = False
        self.more += len(self.entries)
        self.room.entries -= len(self.entries)
        self.entries = []


class WorkerEntry:
    """A row of a worker's conversation, and the job that it is about."""

    __slots__ = ("entry", "id", "owner", "service")

    def __init__(self, entry: Entry, id: bytes = b"", service: str = "", owner: str = "") -> None:
        self.entry = entry
        self.id = id  # of the job; empty: about no job
        self.service = service
        self.owner = owner


class WorkerConversation:
    """The last messages of one worker, while its conversation is requested."""

    __slots__ = ("began", "entries", "more", "until")

    def __init__(self, began: float, until: float) -> None:
        self.began = began
        self.until = until  # it is dropped if it is not requested again before
        self.entries: deque[WorkerEntry] = deque()
        self.more = 0  # entries that were dropped

    def add(self, entry: WorkerEntry) -> None:
        self.entries.append(entry)
        if len(self.entries) > MOST_OF_WORKER:
            self.entries.popleft()
            self.more += 1

    def add_heartbeat(self, lane: str, text: str, time: float) -> None:
        """Add a heartbeat. Those that follow each other are one entry."""
        if self.entries:
            last = self.entries[-1].entry
            if last.text == text and last.kind == RECEIVED and not self.entries[-1].id:
                last.count += 1
                last.time = time
                return
        self.add(WorkerEntry(Entry(time, RECEIVED, lane, text)))


def seconds(duration: float) -> str:
    """Return a duration for people: 1.2 ms, 12.4 s, 3 min."""
    if duration < 1.0:
        return f"{max(duration, 0.0) * 1000.0:.1f} ms"
    if duration < 120.0:
        return f"{duration:.1f} s"
    return f"{duration / 60.0:.0f} min"
