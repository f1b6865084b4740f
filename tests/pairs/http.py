"""HTTP, by hand."""

from __future__ import annotations

import json

from dragoman.core.states import Outcome
from dragoman.http.options import ListenerOptions
from pairs.asgi import Exchange, settle
from pairs.participants import ATTEMPTS, JOB_TIMEOUT, Participants
from pairs.world import SERVICE, World

OPTIONS = ListenerOptions(job_timeout=JOB_TIMEOUT, attempts=ATTEMPTS, lease=600)
OUTCOMES = {
    (502, "failed"): Outcome.FAILED,
    (502, "lost"): Outcome.LOST,
    (504, "timed-out"): Outcome.TIMED_OUT,
    (409, "cancelled"): Outcome.CANCELLED,
    (503, "draining"): Outcome.REFUSED,
    (403, "forbidden"): Outcome.REFUSED,
    (413, "too-large"): Outcome.REFUSED,
}


class HttpCaller:
    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: list[Exchange] = []

    def submit(self, payload: bytes) -> None:
        headers = {"Dragoman-Wait-For-Worker": "true"}
        self._calls.append(Exchange(self._world, "POST", f"/v1/call/{SERVICE}", payload, headers, OPTIONS))

    def told(self) -> list[tuple[Outcome, bytes]]:
        settle(self._world)
        over = [call for call in self._calls if call.is_over]
        self._calls = [call for call in self._calls if not call.is_over]
        return [self._read(call) for call in over]

    def _read(self, call: Exchange) -> tuple[Outcome, bytes]:
        if call.status == 200:
            assert len(call.headers["dragoman-job"]) == 32
            return Outcome.DONE, call.content
        assert call.headers["content-type"] == "application/problem+json"
        problem = json.loads(call.content)
        assert problem["detail"]
        return OUTCOMES[call.status, problem["type"].removeprefix("urn:dragoman:")], b""


class HttpWorker:
    """A worker that requests the next job as soon as it has finished one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._token = ""
        form = json.dumps({"services": [SERVICE, "another"]}).encode()
        joined = Exchange(world, "POST", "/v1/workers", form, {"Content-Type": "application/json"}, OPTIONS)
        assert joined.status == 201
        self._path = joined.headers["location"]
        self._secret = {"Dragoman-Worker-Token": json.loads(joined.content)["token"]}
        self._ask()

    def jobs(self) -> list[bytes]:
        settle(self._world)
        if not self._next.is_over or self._next.status != 200:
            return []
        given, self._next.status = self._next, 0
        assert given.headers["dragoman-service"] == SERVICE
        assert given.headers["dragoman-attempt-number"] == "1"
        self._token = given.headers["dragoman-attempt"]
        return [given.content]

    def finish(self, result: bytes) -> None:
        self._say("result", result)
        self._ask()

    def fail(self) -> None:
        self._say("result?outcome=failed", b"not so")
        self._ask()

    def vanish(self) -> None:
        """Leave: no response is read any more, and a request shows that the worker was not just slow."""
        assert Exchange(self._world, "DELETE", self._path, b"", self._secret, OPTIONS).status == 204

    def recover(self, world: World) -> None:
        self.finish(b"the result of a job that is over")

    def _ask(self) -> None:
        self._next = Exchange(self._world, "POST", f"{self._path}/next", b"", self._secret, OPTIONS)

    def _say(self, word: str, body: bytes) -> None:
        headers = {**self._secret, "Dragoman-Attempt": self._token, "Content-Length": str(len(body))}
        said = Exchange(self._world, "POST", f"{self._path}/{word}", body, headers, OPTIONS)
        assert said.status in (204, 409, 413)


HTTP = Participants("http", "http", HttpCaller, HttpWorker)
