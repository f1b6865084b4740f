"""Remembered requests: a request that is repeated, because its answer was lost, is not carried out twice.

A client numbers its requests. The broker stores, for each client, which numbers it has accepted: one row, written in
the commit of what the request does. So what is remembered grows with the clients and not with the jobs, and a
repetition finds its job even if that has ended and is forgotten: the id of the job follows from client and number.

    oldest                     the client still waits for the answer of this number; it never sends a lower one again
    bits                       the accepted numbers from `oldest` on: requests arrive in any order
    answers                    of requests whose answer does not follow from the number

A client may also name a request by a text of its own, a *free* id. Its row has one request, with its answer.

A row is dropped when its client has been silent for `request_retention`, or if there are too many rows: the principal
with the most loses the one that was used longest ago. Nothing runs twice because of that: a repetition says how long
ago it was sent first. If that was before the last use of a dropped row, nobody knows whether it was accepted, and it is
refused. `_forgotten` has these times; a restart makes them the time of the restart. A row that is made again does not
know what the dropped one knew, so it remembers the time (`known_from`). No wall clock decides anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, final

from dragoman.core.commits import PendingCommits
from dragoman.core.infinity import inf
from dragoman.core.model import JobId
from dragoman.core.policy import Policy

CLIENT: Final = "client/"  # of the keys of notes about clients; their shard follows
FORGOTTEN: Final = "forgotten/"  # of the keys of notes about dropped rows; the shard follows
WINDOW: Final = 4_096  # numbers from the oldest on that a client may use
MOST_ANSWERS: Final = 256  # of one client
MOST_ANSWER: Final = 4_096  # characters of one answer; a longer one is not remembered
FREE: Final = "/"  # start of the name of a free request; that of a client is hexadecimal
CLIENT_DIGITS: Final = 32
MOST_MILLISECOND: Final = (1 << 48) - 1
SWEEP_EVERY: Final = 10.0  # seconds between two looks for silent clients
SWEPT_AT_ONCE: Final = 1_000
DROPPED_AT_ONCE: Final = 2  # rows that a new one takes the place of, if there are too many

# Bits of an id in UUIDv7 layout behind its milliseconds.
_NOISE: Final = 0x0FFF3FFFFFFFFFFFFFFF
_MARKS: Final = 0x70008000000000000000

Place = tuple[int, str, str]  # shard, principal, client


@final
class RequestId:
    """The id of a request. `age`: seconds since it was sent first; 0.0: this is the first time."""

    __slots__ = ("age", "client", "is_free", "millisecond", "number", "oldest")

    def __init__(self, client: str, number: int = 0, oldest: int = 0, millisecond: int = 0, age: float = 0.0) -> None:
        self.client = client
        self.is_free = client.startswith(FREE)
        self.number = number
        self.oldest = oldest
        self.millisecond = millisecond  # of the wall clock of the client, when it made the request
        self.age = age

    @property
    def name(self) -> str:
        """The same for each repetition."""
        return f"{self.client}/{self.number}"

    def job_id(self, principal: str, index: int = 0) -> JobId:
        """Return the id of the job that a numbered request makes: milliseconds, as in all ids, then a digest. `index`:
        that of the job in a batch."""
        text = f"{principal}\0{self.client}\0{self.number}\0{index}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).digest()
        noise = int.from_bytes(digest, "big") & _NOISE | _MARKS
        return JobId(self.millisecond.to_bytes(6, "big") + noise.to_bytes(10, "big"))


def read_request_id(text: str) -> RequestId:
    """Read `client/number/oldest/millisecond[/age]`; any other text is a free id. Raises ValueError."""
    parts = text.split("/")
    count = len(parts)
    if (count != 4 and count != 5) or len(parts[0]) != CLIENT_DIGITS:
        return RequestId(FREE + text)
    try:
        number, oldest, millisecond = int(parts[1]), int(parts[2]), int(parts[3])
        age = float(parts[4]) if count == 5 else 0.0
    except ValueError:
        return RequestId(FREE + text)
    if not 0 < oldest <= number < oldest + WINDOW or not 0 <= millisecond <= MOST_MILLISECOND or not 0.0 <= age < inf:
        raise ValueError(
            f"request_id {text!r}: client/number/oldest/millisecond/age must have an oldest from 1 to the number, at "
            f"most {WINDOW - 1} below it, and an age from 0 on; another text names the request as a whole"
        )
    return RequestId(parts[0], number, oldest, millisecond, age)


def older(text: str, seconds: float) -> str:
    """Return the id of a request that somebody else repeats, so many seconds after it has arrived."""
    asked = read_request_id(text)
    if asked.is_free:
        return text
    return f"{asked.client}/{asked.number}/{asked.oldest}/{asked.millisecond}/{asked.age + seconds:.3f}"


@final
class Repeated:
    """A request that was accepted before. `answer`: what is remembered of its answer; empty: it follows from the
    number."""

    __slots__ = ("answer",)

    def __init__(self, answer: str) -> None:
        self.answer = answer


@final
class ClientRow:
    """The accepted requests of one client, or one free request."""

    __slots__ = ("answers", "bits", "is_dirty", "key", "known_from", "oldest", "place", "used")

    def __init__(self, place: Place, known_from: float, now: float) -> None:
        shard, principal, client = place
        self.place = place
        self.key = f"{CLIENT}{shard}/{json.dumps([principal, client])}"  # of its note
        self.oldest = 0
        self.bits = 0
        self.answers: dict[int, str] = {}
        self.known_from = known_from  # an earlier row of the client may have been dropped that knew older requests
        self.used = now
        self.is_dirty = False  # it is written with the entries of this iteration

    def text(self) -> str:
        answers = json.dumps(self.answers, separators=(",", ":")) if self.answers else "{}"
        return f'[{self.oldest},"{self.bits:x}",{answers}]'

    def has(self, number: int) -> bool:
        return number >= self.oldest and bool(self.bits >> (number - self.oldest) & 1)

    def advance(self, oldest: int) -> None:
        """The client waits for no request below this number any more."""
        self.bits >>= oldest - self.oldest
        self.oldest = oldest
        if self.answers:
            self.answers = {number: each for number, each in self.answers.items() if number >= oldest}


def read_row(place: Place, text: str, known_from: float, now: float) -> ClientRow:
    """Raises ValueError for a text that `text` does not write."""
    row = ClientRow(place, known_from, now)
    try:
        oldest, bits, answers = json.loads(text)
        row.oldest, row.bits = int(oldest), int(bits, 16)
        row.answers = {int(number): str(each) for number, each in answers.items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
    return row


class RememberedRequests:
    """All rows of this broker."""

    def __init__(self, policy: Policy, pending_commits: PendingCommits) -> None:
        self.unsaved: dict[JobId, tuple[ClientRow, int]] = {}  # accepted jobs whose commit is not reported
        self._policy = policy
        self._pending_commits = pending_commits
        self._rows: dict[Place, ClientRow] = {}
        self._by_principal: dict[str, dict[Place, ClientRow]] = {}  # the row that was used longest ago is the first
        self._forgotten: dict[tuple[int, str], float] = {}  # by shard and principal: last use of a row dropped for room
        self._sweep_at = 0.0

    def __len__(self) -> int:
        return len(self._rows)

    # ---------------------------------------------------------------- requests

    def find(self, request: RequestId, principal: str, shard: int, now: float) -> Repeated | None:
        """Return what is remembered of a request; None: it is new. Raises ValueError, with a sentence, if it cannot be
        known whether it was accepted before."""
        row = self._rows.get((shard, principal, request.client))
        if row is not None and row.has(request.number):
            self._use(row, now)
            return Repeated(row.answers.get(request.number, ""))
        if row is not None and request.number < row.oldest:
            raise ValueError(
                f"its client has said that it would not send request {request.number} again, and now waits for "
                f"{row.oldest} and later ones; send it as a new request"
            )
        if request.age > 0.0:
            known_from = self._horizon(shard, principal, now) if row is None else row.known_from
            if now - request.age <= known_from:
                raise ValueError(
                    f"the request was first sent {request.age:.0f} s ago, and what its client asked for then is not "
                    "remembered any more: it may have been carried out; look before you send it as a new one"
                )
        return None

    def accept(self, request: RequestId, principal: str, shard: int, now: float, answer: str = "") -> ClientRow:
        """Remember a request as accepted, in the commit of everything that is decided in this iteration."""
        place = (shard, principal, request.client)
        row = self._rows.get(place)
        if row is None:
            row = self._new_row(place, now)
        else:
            self._use(row, now)
        if request.oldest > row.oldest:
            row.advance(request.oldest)
        row.bits |= 1 << (request.number - row.oldest)
        if answer:
            self._set_answer(row, request.number, answer)
        if not row.is_dirty:
            row.is_dirty = True
            self._pending_commits.note_row(row, shard)
        return row

    def accept_job(
        self, request: RequestId, principal: str, shard: int, id: JobId, now: float, answer: str = ""
    ) -> None:
        """Remember a request that makes this job. `refused` undoes it if the job cannot be stored."""
        self.unsaved[id] = (self.accept(request, principal, shard, now, answer), request.number)

    def set_answer(self, request: RequestId, principal: str, shard: int, answer: str) -> None:
        """Remember the answer of an accepted request, when it is known."""
        row = self._rows.get((shard, principal, request.client))
        if row is not None and row.has(request.number):
            self._set_answer(row, request.number, answer)
            self._write(row)

    def refused(self, id: JobId) -> None:
        """A job could not be stored: its request may come again."""
        found = self.unsaved.pop(id, None)
        if found is not None:
            self._undo(*found)

    def undo(self, row: ClientRow, number: int) -> None:
        """An accepted request could not be stored: it may come again."""
        self._undo(row, number)

    # ---------------------------------------------------------------- rows

    def sweep(self, now: float) -> float:
        """Drop rows of clients that have been silent for long. Returns the time of the next call."""
        if now < self._sweep_at:
            return self._sweep_at
        self._sweep_at = now + SWEEP_EVERY
        retention = self._policy.request_retention
        left = SWEPT_AT_ONCE
        for rows in list(self._by_principal.values()):
            while rows and left:
                row = next(iter(rows.values()))
                if now - row.used < retention:
                    break
                self._drop(row)
                left -= 1
        for place, at in list(self._forgotten.items()):
            if now - at >= retention:
                del self._forgotten[place]
                self._pending_commits.note(_forgotten_key(place), None)
        return self._sweep_at if left else now

    def restore(self, notes: Mapping[str, str], now: float, shard: int = 0) -> None:
        """Restore the rows of a shard. Raises ValueError."""
        for key in notes:
            if key.startswith(FORGOTTEN):
                self._forgotten[shard, str(json.loads(key.split("/", 2)[2]))] = now
        for key, value in notes.items():
            if key.startswith(CLIENT):
                principal, client = json.loads(key.split("/", 2)[2])
                known_from = self._horizon(shard, str(principal), now)
                self._enter(read_row((shard, str(principal), str(client)), value, known_from, now))

    def leave(self, shard: int) -> None:
        """A shard leaves this broker, with its rows."""
        for row in [row for place, row in self._rows.items() if place[0] == shard]:
            self._remove(row)
        for place in [place for place in self._forgotten if place[0] == shard]:
            del self._forgotten[place]
        shard_of = self._pending_commits.shard
        for id in [id for id in self.unsaved if shard_of(id) == shard]:
            del self.unsaved[id]

    def _horizon(self, shard: int, principal: str, now: float) -> float:
        """Return the time before which requests may be forgotten."""
        return max(now - self._policy.request_retention, self._forgotten.get((shard, principal), -inf))

    def _use(self, row: ClientRow, now: float) -> None:
        row.used = now
        rows = self._by_principal[row.place[1]]
        del rows[row.place]
        rows[row.place] = row

    def _new_row(self, place: Place, now: float) -> ClientRow:
        dropped = 0
        while len(self._rows) >= self._policy.max_remembered_requests and dropped < DROPPED_AT_ONCE:
            self._make_room()
            dropped += 1
        row = ClientRow(place, self._horizon(place[0], place[1], now), now)
        self._enter(row)
        return row

    def _make_room(self) -> None:
        """Drop the row that was used longest ago, of the principal that has the most."""
        most: dict[Place, ClientRow] = {}
        for rows in self._by_principal.values():
            if len(rows) > len(most):
                most = rows
        row = next(iter(most.values()))
        shard, principal, _ = row.place
        before = self._forgotten.get((shard, principal))
        self._forgotten[shard, principal] = row.used if before is None else max(before, row.used)
        if before is None:
            self._pending_commits.note(_forgotten_key((shard, principal)), "1")
        self._drop(row)

    def _drop(self, row: ClientRow) -> None:
        self._remove(row)
        self._pending_commits.note(row.key, None)

    def _enter(self, row: ClientRow) -> None:
        place = row.place
        self._rows[place] = row
        rows = self._by_principal.get(place[1])
        if rows is None:
            rows = self._by_principal[place[1]] = {}
        rows[place] = row

    def _remove(self, row: ClientRow) -> None:
        place = row.place
        del self._rows[place]
        rows = self._by_principal[place[1]]
        del rows[place]
        if not rows:
            del self._by_principal[place[1]]

    def _write(self, row: ClientRow) -> None:
        if not row.is_dirty:
            row.is_dirty = True
            self._pending_commits.note_row(row, row.place[0])

    def _undo(self, row: ClientRow, number: int) -> None:
        if self._rows.get(row.place) is row and row.has(number):
            row.bits &= ~(1 << (number - row.oldest))
            row.answers.pop(number, None)
            self._write(row)

    def _set_answer(self, row: ClientRow, number: int, answer: str) -> None:
        row.answers[number] = answer if len(answer) <= MOST_ANSWER else NOT_REMEMBERED
        while len(row.answers) > MOST_ANSWERS:
            row.answers.pop(next(iter(row.answers)))


NOT_REMEMBERED: Final = "-"  # in place of an answer that was too long


def _forgotten_key(place: tuple[int, str]) -> str:
    return f"{FORGOTTEN}{place[0]}/{json.dumps(place[1])}"
