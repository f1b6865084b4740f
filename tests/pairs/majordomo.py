"""Majordomo, by hand: both RFCs, and the variant of common packages."""

from __future__ import annotations

from dragoman.carriers.zmtp import Zmtp
from dragoman.core.states import Outcome
from pairs.participants import ATTEMPTS, JOB_TIMEOUT, MAX_PAYLOAD, TOO_LARGE, Participants
from pairs.world import SERVICE, Connection, World

URL = f"majordomo+tcp://127.0.0.1:0?attempts={ATTEMPTS}&job_timeout={JOB_TIMEOUT}&max_payload={MAX_PAYLOAD}"


def connect(world: World) -> Connection:
    return Connection(world, world.listener(URL, "both"), Zmtp("DEALER", dials=True))


class Rfc7Caller:
    request: tuple[bytes, ...] = (b"", b"MDPC01", SERVICE.encode())
    answer: tuple[bytes, ...] = request

    def __init__(self, world: World) -> None:
        self._connection = connect(world)

    def submit(self, *body: bytes) -> None:
        self._connection.say(*self.request, *body)

    def told(self) -> list[tuple[Outcome, bytes]]:
        return [(Outcome.DONE, b"".join(body)) for body in self.bodies()]

    def bodies(self) -> list[list[bytes]]:
        """Return the bodies received since the last call, frame by frame."""
        at = len(self.answer)
        told = self._connection.take()
        assert all(tuple(message[:at]) == self.answer for message in told)
        return [message[at:] for message in told]


class Rfc18Caller(Rfc7Caller):
    request = (b"MDPC02", b"\x01", SERVICE.encode())
    answer = (b"MDPC02", b"\x03", SERVICE.encode())


class FieldCaller(Rfc7Caller):
    request = (b"", b"MDPC02", b"\x02", SERVICE.encode())
    answer = (b"", b"MDPC02", b"\x04")


class Rfc7Worker:
    """A worker without heartbeats: no test lets time pass for an idle one."""

    head: tuple[bytes, ...] = (b"", b"MDPW01")
    reply, heartbeat = b"\x03", b"\x04"

    def __init__(self, world: World) -> None:
        self._client = b""
        self.body: list[bytes] = []  # of its last job, frame by frame
        self._connection = connect(world)
        self._connection.say(*self.head, b"\x01", SERVICE.encode())

    def jobs(self) -> list[bytes]:
        given = []
        for message in self._connection.take():
            at = len(self.head)
            assert tuple(message[:at]) == self.head
            command, *rest = message[at:]
            if command == b"\x02":
                self._client, empty, *self.body = rest
                assert empty == b""
                given.append(b"".join(self.body))
            else:
                assert [command, *rest] == [self.heartbeat]
        return given

    def finish(self, *body: bytes) -> None:
        self._connection.say(*self.head, self.reply, self._client, b"", *body)

    def fail(self) -> None:
        """Fail the job with a result that is too large: there is no message for a failure."""
        self.finish(bytes(TOO_LARGE))

    def vanish(self) -> None:
        self._connection.cut()

    def recover(self, world: World) -> None:
        self.finish(b"the result of a job that is over")


class Rfc18Worker(Rfc7Worker):
    head = (b"MDPW02",)
    reply, heartbeat = b"\x04", b"\x05"

    def part(self, *body: bytes) -> None:
        self._connection.say(*self.head, b"\x03", self._client, b"", *body)


class FieldWorker(Rfc18Worker):
    head = (b"", b"MDPW02")


SILENT = frozenset(Outcome) - {Outcome.DONE}
RFC7 = Participants("majordomo", "majordomo", Rfc7Caller, Rfc7Worker, silent=SILENT)
RFC18 = Participants("majordomo-0.2", "majordomo", Rfc18Caller, Rfc18Worker, silent=SILENT)
FIELD = Participants("majordomo-field", "majordomo", FieldCaller, FieldWorker, silent=SILENT)
