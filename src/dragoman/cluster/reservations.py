"""Keys of jobs that are in another shard than their key: reserved in the shard of the key, which decides about it (C6).

A batch is in one shard, so that it is accepted in one commit, and its keys may belong to others. Before the batch is
accepted, each key is reserved by a note in the log of the key's shard, with the id and the shard of the job. So the
owner of the key's shard finds the job, and makes no second one.

A reservation never ends by itself: its job may exist as long as its shard can be read. Its owner asks the owner of the
job's shard, when the key is used and from time to time. An owner that has neither the job nor a batch with it that is
being accepted proves that there is no such job, and never will be: its epoch is not older than that of the batch, and
no owner of an older epoch can commit any more (C1). Then the reservation is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.store import KEY
from dragoman.core.commits import PendingCommits
from dragoman.core.job_keys import Place
from dragoman.core.model import JobId

LOOK_EVERY: Final = 300.0  # seconds between two questions whether the job of a reservation exists


@final
class Reservation:
    """The job of a key."""

    __slots__ = ("digest", "epoch", "home", "id", "look_at", "request", "shard")

    def __init__(self, home: int, id: JobId, shard: int, epoch: int, digest: str, request: str) -> None:
        self.home = home  # shard of the key
        self.id = id  # the first job; a retry of it has the same key
        self.shard = shard  # of the job
        self.epoch = epoch  # of that shard, when its owner reserved the key
        self.digest = digest  # of the payload, in hexadecimal digits
        self.request = request  # id of the request that has reserved it: a batch may be sent again, with the same jobs
        self.look_at = 0.0  # time of the next question; 0: none was asked yet


class Reservations:
    """The reserved keys of the shards of this broker, and the jobs of batches that are being accepted here."""

    def __init__(self, pending_commits: PendingCommits) -> None:
        self._pending_commits = pending_commits
        self._by_place: dict[Place, Reservation] = {}
        self._accepting: dict[JobId, int] = {}  # number of batches: the same one may be sent twice
        self._waiting: dict[JobId, list[Callable[[], None]]] = {}  # calls that wait for the decision about these

    def __len__(self) -> int:
        return len(self._by_place)

    # ---------------------------------------------------------------- keys

    def find(self, place: Place) -> Reservation | None:
        return self._by_place.get(place)

    def reserve(self, place: Place, home: int, id: JobId, shard: int, epoch: int, digest: str, request: str) -> None:
        """Reserve a key for a job, in place of any other job. If the job is in the shard of the key, it has its key by
        itself when it is accepted; until then the reservation is not stored, because both are lost together."""
        before = self._by_place.get(place)
        self._by_place[place] = Reservation(home, id, shard, epoch, digest, request)
        if shard != home:
            self._pending_commits.note(_key(home, place), json.dumps([id.hex(), shard, epoch, digest, request]))
        elif before is not None and before.shard != home:
            self._pending_commits.note(_key(home, place), None)

    def undo(self, place: Place, request: str) -> None:
        """The batch of a request was not accepted: the key is free, unless a later request has reserved it."""
        found = self._by_place.get(place)
        if found is not None and found.request == request:
            self.drop(place, found.id)

    def drop(self, place: Place, id: JobId) -> None:
        """The key is not reserved for this job any more."""
        found = self._by_place.get(place)
        if found is not None and found.id == id:
            del self._by_place[place]
            if found.shard != found.home:
                self._pending_commits.note(_key(found.home, place), None)

    def due(self, most: int, now: float) -> list[tuple[Place, Reservation]]:
        """Return reservations whose job is to be looked for. The next time for each follows later."""
        found: list[tuple[Place, Reservation]] = []
        for place, each in self._by_place.items():
            if each.look_at == 0.0:
                each.look_at = now + LOOK_EVERY
            elif each.look_at <= now and len(found) < most:
                each.look_at = now + LOOK_EVERY
                found.append((place, each))
        return found

    # ---------------------------------------------------------------- batches

    def accept(self, ids: Iterable[JobId]) -> None:
        """A batch with these jobs is going to be accepted, when its keys are reserved."""
        for id in ids:
            self._accepting[id] = self._accepting.get(id, 0) + 1

    def accepted(self, ids: Iterable[JobId]) -> None:
        """The jobs are accepted, or will not be with this batch."""
        waiting: list[Callable[[], None]] = []
        for id in ids:
            self._accepting[id] -= 1
            if not self._accepting[id]:
                del self._accepting[id]
                waiting += self._waiting.pop(id, ())
        for call in waiting:
            call()

    def is_accepting(self, id: JobId) -> bool:
        """True if it is not decided about a job of a batch."""
        return id in self._accepting

    def when_accepted(self, id: JobId, call: Callable[[], None]) -> bool:
        """Call back when it is decided about a job of a batch. False: it is decided."""
        if id not in self._accepting:
            return False
        self._waiting.setdefault(id, []).append(call)
        return True

    # ---------------------------------------------------------------- shards that come and go

    def restore(self, home: int, notes: Mapping[str, str]) -> None:
        """Reserve what the owner before has reserved. Raises Malformed."""
        for key, value in notes.items():
            if key.startswith(KEY):
                try:
                    principal, service, name = json.loads(key.split("/", 2)[2])
                    id, shard, epoch, digest, request = json.loads(value)
                    job = JobId(bytes.fromhex(id))
                except (ValueError, TypeError, IndexError) as error:
                    raise Malformed("bad note", f"{key}: {error}") from None
                self._by_place[principal, service, name] = Reservation(home, job, shard, epoch, digest, request)

    def leave(self, home: int) -> None:
        """A shard leaves this broker, with its keys."""
        for place in [place for place, each in self._by_place.items() if each.home == home]:
            del self._by_place[place]


def _key(home: int, place: Place) -> str:
    return f"{KEY}{home}/{json.dumps(place)}"
