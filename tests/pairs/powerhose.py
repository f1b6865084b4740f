"""Powerhose, by hand: the worker's own socket is dialled."""

from __future__ import annotations

from dragoman.carriers.zmtp import Zmtp
from dragoman.core.states import Outcome
from pairs.participants import ATTEMPTS, JOB_TIMEOUT, MAX_PAYLOAD, TOO_LARGE, Participants
from pairs.pingpong import PingPongCaller
from pairs.world import SERVICE, Connection, Dialled, World

OPTIONS = f"service={SERVICE}&job_timeout={JOB_TIMEOUT}&max_payload={MAX_PAYLOAD}"
URL = f"powerhose+tcp://127.0.0.1:0?frontend=0&attempts={ATTEMPTS}&{OPTIONS}"
FIRST_PORT = 9001


class PowerhoseCaller(PingPongCaller):
    """A caller. Outcomes have the same form as in PingPong."""

    def __init__(self, world: World) -> None:
        self._connection = Connection(world, world.listener(URL, "callers"), Zmtp("DEALER", dials=True))


class PowerhoseWorker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._port = FIRST_PORT + len(world.dialled)
        self._job_id = b""
        self._registrant = Connection(world, world.listener(URL, "workers"), Zmtp("REQ", dials=True))
        world.places[self._place] = lambda: Zmtp("REP")
        self._register()

    def jobs(self) -> list[bytes]:
        given = []
        for word in self._heard():
            if word == b"WAKE":
                self._dialled.say(b"", b"GIVE")
                (job,) = self._heard()
                kind, self._job_id, data = job.split(b":::", 2)
                assert kind == b"JOB"
                given.append(data)
        return given

    def finish(self, result: bytes) -> None:
        self._dialled.say(b"", b":::".join((b"JOBRES", self._job_id, result)))

    def fail(self) -> None:
        """Fail the job with a result that is too large: there is no message for a failure."""
        self.finish(bytes(TOO_LARGE))

    def vanish(self) -> None:
        del self._world.places[self._place]
        self._registrant.cut()
        self._dialled.cut()

    def recover(self, world: World) -> None:
        """Register again a second after a time-out, or send the late result of a cancelled job."""
        if self._dialled.is_cut:
            world.wait(1)
            self._register()
        else:
            self.finish(b"the result of a job that is over")

    @property
    def _dialled(self) -> Dialled:
        return self._world.dialled[self._place][-1]

    @property
    def _place(self) -> str:
        return f"127.0.0.1:{self._port}"

    def _register(self) -> None:
        self._registrant.say(b"", b"PING:::tcp://127.0.0.1:%d" % self._port)
        assert self._registrant.take() == [[b"", b"PONG"]]
        self._world.connect()

    def _heard(self) -> list[bytes]:
        return [bytes(body) for _, body in self._dialled.take()]


POWERHOSE = Participants(
    "powerhose", "powerhose", PowerhoseCaller, PowerhoseWorker, hangs_up=frozenset({Outcome.TIMED_OUT})
)
