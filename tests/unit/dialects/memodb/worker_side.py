"""The worker side of MemoDB with a broker written by hand."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import cbor2

from dragoman.dialects.memodb.options import WorkerOptions
from dragoman.dialects.memodb.peer import WorkerSide

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)
ID, OTHER = b"\xd8\x5f\xf4\x7f", b"another id"


def memo(*items: object, payload: bytes = b"") -> bytes:
    """Encode a message with an independent library."""
    return cbor2.dumps(["memo01", *items], canonical=True) + payload


class Worker:
    """A worker side and its I/O, which records all calls; `reconnect` ends the connection, as the real one does."""

    def __init__(
        self, *services: str, concurrency: int = 1, heartbeat_after: float = 10.0, first_request: int = 0
    ) -> None:
        self.sent: list[tuple[bytes, bytes]] = []  # request id and message
        self.job_refs: list[Hashable] = []
        self.runs: list[bytes] = []
        self.reconnects: list[str] = []
        self.now = 100.0
        options = WorkerOptions(heartbeat_after=heartbeat_after)
        self.side = WorkerSide(options, self, services, concurrency, first_request)

    # the port

    def send(self, frames: Sequence[bytes]) -> None:
        assert len(frames[0]) == 4
        assert frames[0][0] & 0x80, "the last word of the route has its top bit set"
        self.sent.append((bytes(frames[0]), b"".join(frames[1:])))

    def run(self, job_ref: Hashable, payload: bytes, assignment: object = None) -> None:
        self.job_refs.append(job_ref)
        self.runs.append(bytes(payload))

    def reconnect(self, reason: str) -> None:
        assert reason
        self.reconnects.append(reason)
        self.side.lost()

    def leave(self, reason: str) -> None:
        raise AssertionError("this wire has no word for it")

    # what a test does

    def open(self) -> Worker:
        self.side.opened(self.now)
        return self

    def said(self) -> list[bytes]:
        """Return the messages since the last call, without their request ids."""
        return [message for _, message in self.take()]

    def take(self) -> list[tuple[bytes, bytes]]:
        taken, self.sent = self.sent, []
        return taken

    def answer(self, request: bytes, *items: object, payload: bytes = b"") -> None:
        self.side.receive([request, memo(*items, payload=payload)], self.now)

    def reply(self, *items: object, payload: bytes = b"") -> None:
        """Reply to its only request."""
        ((request, _),) = self.take()
        self.answer(request, *items, payload=payload)

    def job(self, payload: bytes = b"job", id: bytes = ID) -> None:
        self.reply(JOB, id, "default", 5000, payload=payload)

    def finish(self, result: bytes = b"result", number: int = -1) -> None:
        self.side.finished(self.job_refs[number], result, self.now)

    def fail(self, number: int = -1) -> None:
        self.side.failed(self.job_refs[number], "ValueError: no", self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass; the side ticks when it requested it."""
        until = self.now + seconds
        while (due := self.side.tick(self.now)) <= until:
            assert due > self.now, "it asks to come again at once, for ever"
            self.now = due
        self.now = until
        self.side.tick(self.now)
