"""The image of a shard: its jobs and notes, as all batches that were read so far have left them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.log_reader import ReadBatch
from dragoman.cluster.shard_rows import RESULT, RETRY_OF, read_batch
from dragoman.core.restore import StoredJob
from dragoman.store.errors import InvalidRow
from dragoman.store.rows import RowDecoder

NANO: Final = 1e-9

Place = tuple[int, int]  # the first and the last message of a commit


@final
class JobImage:
    """A job of the shard. Payload and result stay in the log; their places are kept."""

    __slots__ = ("head", "head_made", "holder", "payload", "payload_of", "result", "status", "status_made")

    def __init__(self, head: list[Any], made: int, payload: Place | None) -> None:
        self.head = head
        self.head_made = made
        self.payload = payload
        self.payload_of: bytes = head[0]  # the job with which the payload was written: this one, or one that it retries
        self.status: list[Any] | None = None
        self.status_made = 0
        self.holder = ""
        self.result: Place | None = None


class ShardImage:
    """Collects what the reader of a log delivers."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, JobImage] = {}
        self.notes: dict[str, str] = {}
        self._decoder = RowDecoder()

    def take(self, read: ReadBatch) -> None:
        """Apply a batch. Raises Malformed."""
        batch, place = read_batch(read.data), (read.first, read.last)
        for head, body in batch.jobs:
            known = self.jobs.get(head[0])
            made = self.jobs[head[0]] = JobImage(head, read.made, place)
            first = self.jobs.get(head[RETRY_OF]) if body is None else None
            if first is not None:
                made.payload, made.payload_of = first.payload, first.payload_of
            if known is not None:  # written again by a cleaning; its status follows
                made.status, made.status_made = known.status, known.status_made
                made.holder, made.result = known.holder, known.result
        for head in batch.heads:
            image = self._image(head[0])
            image.head, image.head_made = head, read.made
        for id, _ in batch.payloads:
            image = self._image(id)
            image.payload, image.payload_of = place, id
        for id, status, holder in batch.statuses:
            image = self._image(id)
            image.status, image.status_made, image.holder = status, read.made, holder
            image.result = place if status[RESULT - 1] is not None else None
            status[RESULT - 1] = None
        for key, value in batch.notes:
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = value
        for id in batch.erased:
            self.jobs.pop(id, None)

    def _image(self, id: bytes) -> JobImage:
        """Return the image of a job. While its log is cleaned, a status may come before the job is written again."""
        image = self.jobs.get(id)
        if image is None:
            image = self.jobs[id] = JobImage([id], 0, None)
        return image

    def stored(self, claimed: int, claimed_at: float) -> Iterator[tuple[StoredJob, JobImage]]:
        """Yield the jobs, each behind those that it waits for. `claimed`: time of our claim by the server's clock;
        `claimed_at`: the same moment by the broker's clock. Raises Malformed."""
        waiting: dict[bytes, tuple[StoredJob, JobImage]] = {}
        for id, image in self.jobs.items():
            kept = self._decoded(image, claimed, claimed_at)
            if kept.outcome is None and kept.token is None and kept.extras is not None and kept.extras.after:
                waiting[id] = kept, image
            else:
                yield kept, image
        for id in list(waiting):
            path = [id]
            while path:
                entry = waiting.get(path[-1])
                before = _first_before(entry[0], waiting) if entry is not None else None
                if before is not None and before not in path:
                    path.append(before)
                    continue
                if entry is not None:
                    del waiting[path[-1]]
                    yield entry
                path.pop()

    def unreadable(self) -> dict[bytes, str]:
        """Return the jobs that no broker could restore, each with the reason."""
        found: dict[bytes, str] = {}
        for id, image in self.jobs.items():
            try:
                self._decoded(image, 0, 0.0)
            except Malformed as problem:
                found[id] = problem.detail
        return found

    def _decoded(self, image: JobImage, claimed: int, claimed_at: float) -> StoredJob:
        if len(image.head) == 1:
            raise Malformed("bad rows", f"a row of job {image.head[0].hex()}, which the log does not have")
        try:
            kept = self._decoder.job([1, *image.head], (claimed - image.head_made) * NANO - claimed_at)
            if image.status is not None:
                row = [*image.status[: RESULT - 1], *image.status[RESULT:]]
                self._decoder.add_status(kept, row, (claimed - image.status_made) * NANO - claimed_at)
        except (InvalidRow, ValueError, TypeError) as error:
            raise Malformed("bad rows", str(error)) from None
        return kept


def _first_before(kept: StoredJob, waiting: Mapping[bytes, object]) -> bytes | None:
    """Return one of the jobs that this one waits for, among those that are not restored yet."""
    after = kept.extras.after if kept.extras is not None else ()
    return next((id for id in after if id in waiting), None)
