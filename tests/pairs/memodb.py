"""MemoDB, by hand."""

from __future__ import annotations

from io import BytesIO
from itertools import count
from typing import Any

import cbor2

from dragoman.carriers.sp import Sp
from dragoman.core.states import Outcome
from pairs.participants import ATTEMPTS, JOB_TIMEOUT, MAX_PAYLOAD, TOO_LARGE, Participants
from pairs.world import SERVICE, Connection, World

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)
DETACH_TIMEOUT = 5.0
URL = f"memodb+tcp://127.0.0.1:0?max_payload={MAX_PAYLOAD}&detach_timeout={DETACH_TIMEOUT}&attempts={ATTEMPTS}"


class Context:
    """An NNG context: one request at a time."""

    def __init__(self, world: World) -> None:
        self.connection = Connection(world, world.listener(URL, "both"), Sp("REQ"))
        self._numbers = count(0x8000_0001)
        self._request = b""

    def ask(self, *header: Any, payload: bytes = b"") -> None:
        self._request = next(self._numbers).to_bytes(4, "big")
        self.connection.say(self._request, cbor2.dumps(["memo01", *header], canonical=True), payload)

    def answers(self) -> list[tuple[list[Any], bytes]]:
        found = []
        for route, body in self.connection.take():
            assert route == self._request
            stream = BytesIO(body)
            header = cbor2.CBORDecoder(stream).decode()
            assert header[0] == "memo01"
            found.append((header[1:], bytes(body[stream.tell() :])))
        return found


class MemoDbCaller:
    def __init__(self, world: World) -> None:
        self._context = Context(world)

    def submit(self, payload: bytes) -> None:
        self._context.ask(JOB, b"", SERVICE, int(JOB_TIMEOUT * 1000), payload=payload)

    def told(self) -> list[tuple[Outcome, bytes]]:
        answers = []
        for header, payload in self._context.answers():
            assert header == [RESULT, b""]
            answers.append((Outcome.DONE, payload))
        return answers


class MemoDbWorker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._id = b""
        self._context = Context(world)
        self._context.ask(READY, b"", [SERVICE, "another"])

    def jobs(self) -> list[bytes]:
        given = []
        for (kind, own_id, *fields), payload in self._context.answers():
            self._id = own_id
            if kind == JOB:
                assert fields == [SERVICE, int(JOB_TIMEOUT * 1000)]
                given.append(payload)
            elif kind == HEARTBEAT:
                self._context.ask(HEARTBEAT, self._id)
            else:
                assert kind == DISCONNECT
                self._context.ask(READY, b"", [SERVICE, "another"])
        return given

    def finish(self, result: bytes) -> None:
        self._context.ask(RESULT, self._id, payload=result)

    def fail(self) -> None:
        """Fail the job with a result that is too large: there is no message for a failure."""
        self.finish(bytes(TOO_LARGE))

    def vanish(self) -> None:
        """Disconnect, and wait until the broker does not expect a reconnect any more."""
        self._context.connection.cut()
        self._world.wait(DETACH_TIMEOUT)

    def recover(self, world: World) -> None:
        self.finish(b"the result of a job that is over")
        self.jobs()  # if it was given up, it hears DISCONNECT, and begins anew


MEMODB = Participants("memodb", "memodb", MemoDbCaller, MemoDbWorker, silent=frozenset(Outcome) - {Outcome.DONE})
