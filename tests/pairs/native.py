"""Native, by hand."""

from __future__ import annotations

import json
from itertools import count

from dragoman.carriers.carrier import Message
from dragoman.carriers.zmtp import Zmtp
from dragoman.core.states import Outcome
from pairs.participants import ATTEMPTS, JOB_TIMEOUT, MAX_PAYLOAD, Participants
from pairs.world import SERVICE, Connection, World

URL = f"tcp://127.0.0.1:0?max_payload={MAX_PAYLOAD}&attempts={ATTEMPTS}&lease=600"
HELLO, WELCOME, SUBMIT, RESULT, FAILED, JOB, RECALL = b"\x01", b"\x02", b"\x10", b"\x20", b"\x21", b"\x30", b"\x31"
OUTCOMES = [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST, Outcome.CANCELLED, Outcome.REFUSED]


def connect(world: World, role: bytes, about: object) -> Connection:
    connection = Connection(world, world.listener(URL, "both"), Zmtp("DEALER"))
    connection.say(HELLO + b"\x01" + role, json.dumps(about).encode())
    assert [head[:1] for head, _ in connection.take()[:1]] == [WELCOME]
    return connection


_job_numbers = count(1)  # of all callers: the address of a caller that has ended is that of a later one, too


class NativeCaller:
    def __init__(self, world: World) -> None:
        self._connection = connect(world, b"\x01", {})
        self._waiting: set[bytes] = set()

    def submit(self, payload: bytes) -> None:
        job = next(_job_numbers).to_bytes(16, "big")
        self._waiting.add(job)
        job_timeout = int(JOB_TIMEOUT * 1000).to_bytes(4, "big")
        head = SUBMIT + b"\x01\xff\x00" + bytes(4) + job_timeout + bytes(4) + SERVICE.encode()  # it waits for a worker
        self._connection.say(head, job, payload)

    def told(self) -> list[tuple[Outcome, bytes]]:
        return [self._read(message) for message in self._connection.take()]

    def _read(self, message: Message) -> tuple[Outcome, bytes]:
        head = message[0]
        if head[:1] == RESULT:
            self._waiting.remove(bytes(head[1:]))
            return Outcome.DONE, bytes(message[1])
        assert head[:1] == FAILED
        assert message[2]  # there is a sentence
        self._waiting.remove(bytes(head[2:]))
        return OUTCOMES[head[1] - 1], b""


class NativeWorker:
    def __init__(self, world: World) -> None:
        self._token = b""
        self._connection = Connection(world, world.listener(URL, "both"), Zmtp("DEALER"))
        self._connection.say(HELLO + b"\x01\x02", json.dumps({"services": [SERVICE, "another"]}).encode())

    def jobs(self) -> list[bytes]:
        given = []
        for head, *frames in self._connection.take():
            if head[:1] == JOB:
                record, payload = frames
                self._token = bytes(record[:16])
                assert record[32:34] == b"\x00\x01"
                assert head[1:].decode() == SERVICE
                given.append(bytes(payload))
            else:
                assert head[:1] in (WELCOME, RECALL)
        return given

    def finish(self, result: bytes) -> None:
        self._connection.say(RESULT + self._token, result)

    def fail(self) -> None:
        self._connection.say(FAILED + b"\x01" + self._token, b"ValueError", b"not so", b"Traceback ...")

    def vanish(self) -> None:
        self._connection.cut()

    def recover(self, world: World) -> None:
        self.finish(b"the result of a job that is over")


NATIVE = Participants("native", "native", NativeCaller, NativeWorker)
