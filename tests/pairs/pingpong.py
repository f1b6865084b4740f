"""PingPong, by hand: both editions."""

from __future__ import annotations

from dragoman.carriers.zmtp import Zmtp
from dragoman.core.states import Outcome
from pairs.participants import ATTEMPTS, JOB_TIMEOUT, MAX_PAYLOAD, TOO_LARGE, Participants
from pairs.world import SERVICE, Connection, World

CONTROL = (b"PONG", b"EXIT")


def url(edition: str) -> str:
    options = f"service={SERVICE}&edition={edition}&job_timeout={JOB_TIMEOUT}&max_payload={MAX_PAYLOAD}"
    return f"pingpong+tcp://127.0.0.1:0?frontend=0&attempts={ATTEMPTS}&{options}"


class PingPongCaller:
    def __init__(self, world: World) -> None:
        self._connection = Connection(world, world.listener(url("plain"), "callers"), Zmtp("DEALER", dials=True))

    def submit(self, payload: bytes) -> None:
        self._connection.say(b"", payload)

    def told(self) -> list[tuple[Outcome, bytes]]:
        answers = []
        for message in self._connection.take():
            if message[1:3] == [b"", b"ERROR"]:
                outcome, _, reason = message[3].decode().partition(": ")
                assert reason
                answers.append((Outcome(outcome), b""))
            else:
                empty, result = message
                assert empty == b""
                answers.append((Outcome.DONE, bytes(result)))
        return answers


class PlainWorker:
    edition = "plain"

    def __init__(self, world: World) -> None:
        self._world = world
        self._envelope: list[bytes] = []
        self._connect()

    def jobs(self) -> list[bytes]:
        given = [message[1:] for message in self._connection.take() if bytes(message[1]) not in CONTROL]
        for job in given:
            self._envelope = [bytes(frame) for frame in job[1:2]]
        return [bytes(job[0]) for job in given]

    def finish(self, result: bytes) -> None:
        if self._envelope:
            self._connection.say(b"", b"JOB COMPLETE", *self._envelope, b"", result)
        else:
            self._connection.say(b"", result)

    def fail(self) -> None:
        """Fail the job with a result that is too large: there is no message for a failure."""
        self.finish(bytes(TOO_LARGE))

    def vanish(self) -> None:
        self._connection.cut()

    def recover(self, world: World) -> None:
        self.finish(b"the result of a job that is over")

    def _connect(self) -> None:
        listener = self._world.listener(url(self.edition), "workers")
        self._connection = Connection(self._world, listener, Zmtp("DEALER", dials=True))
        self._connection.say(b"", b"READY")


class PackageWorker(PlainWorker):
    edition = "package"


PLAIN = Participants("pingpong", "pingpong", PingPongCaller, PlainWorker)
PACKAGE = Participants("pingpong-package", "pingpong", PingPongCaller, PackageWorker)
