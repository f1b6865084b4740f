"""The image of a shard with payloads and results, for an export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dragoman.cluster.log_reader import ReadBatch
from dragoman.cluster.shard_image import JobImage, ShardImage
from dragoman.cluster.shard_rows import RETRY_OF, read_batch
from dragoman.core.restore import StoredJob
from dragoman.transfer.exported_job import RESULT, ExportedJob

NANO: Final = 1e-9


class FullImage:
    """Collects what the reader of a log delivers."""

    def __init__(self) -> None:
        self.image = ShardImage()
        self._payloads: dict[bytes, bytes] = {}
        self._results: dict[bytes, bytes | None] = {}

    def take(self, read: ReadBatch) -> None:
        """Apply a batch. Raises Malformed."""
        self.image.take(read)
        batch = read_batch(read.data)
        for head, body in batch.jobs:
            payload = self._payloads.get(head[RETRY_OF]) if body is None else body
            if payload is not None:
                self._payloads[head[0]] = payload
        self._payloads.update(batch.payloads)
        for id, status, _ in batch.statuses:
            self._results[id] = status[RESULT]
        for id in batch.erased:
            self._payloads.pop(id, None)
            self._results.pop(id, None)

    def has_payload(self, id: bytes) -> bool:
        """False if the message with the payload of a job was not read."""
        return id in self._payloads

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]

    def jobs(self) -> Iterator[tuple[StoredJob, ExportedJob]]:
        """Yield the jobs, each behind those that it waits for, with times of the server's clock. Raises Malformed."""
        for kept, image in self.image.stored(0, 0.0):  # the decoder rejects what no broker could read
            yield kept, self._job(kept.id, image)

    def _job(self, id: bytes, image: JobImage) -> ExportedJob:
        head = ExportedJob(image.head, b"", None).shifted(image.head_made * NANO).head
        if image.status is None:
            return ExportedJob(head, self._payloads.get(id, b""), None)
        status = [*image.status]
        status[RESULT] = self._results.get(id)
        told = ExportedJob(image.head, b"", status).shifted(image.status_made * NANO).status
        return ExportedJob(head, self._payloads.get(id, b""), told)
