"""Workers of principals: the token of a worker, and the principal that joined (R162)."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from http_worker import kind
from token_world import OPS, WEB, TokenWorld, bearer

JOB = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def world() -> Iterator[TokenWorld]:
    world = TokenWorld()
    yield world
    world.close()


class Joined:
    """A worker that `web` has joined, with a job."""

    def __init__(self, world: TokenWorld) -> None:
        self._world = world
        answer = world.ask("POST", "/v1/workers", headers=bearer(WEB), json={"services": ["resize"], "capacity": 2})
        self.path, self.token = answer.headers["location"], answer.json()["token"]
        self.call = world.begin("POST", "/v1/call/resize", headers=bearer(OPS), content=b"cat")
        given = self.sends("next", WEB)
        self.attempt = given.headers["dragoman-attempt"]

    def sends(self, word: str, token: str, *, is_bearer: bool = False) -> httpx2.Response:
        """Send a request with the token of a principal; `is_bearer`: the token of the worker takes its place."""
        own = bearer(self.token) if is_bearer else {"Dragoman-Worker-Token": self.token, **bearer(token)}
        attempt = {"Dragoman-Attempt": self.attempt} if word and not word.startswith("next") else {}
        method = "POST" if word else "DELETE"
        path = f"{self.path}/{word}" if word else self.path
        return self._world.ask(method, path, headers={**own, **attempt}, content=b"y")


def test_worker_sends_both_tokens(world: TokenWorld) -> None:
    worker = Joined(world)
    assert worker.sends("heartbeat", WEB).status_code == 204
    assert worker.sends("result", WEB).status_code == 204
    assert world.finish(worker.call).content == b"y"
    assert worker.sends("", WEB).status_code == 204


@pytest.mark.parametrize("word", ["next?wait=0", "result", "progress", "heartbeat", ""])
def test_worker_of_another_principal_does_not_exist(world: TokenWorld, word: str) -> None:
    worker = Joined(world)
    foreign = worker.sends(word, OPS)
    assert kind(foreign) == (410, "gone")
    unknown = world.ask("DELETE", "/v1/workers/4711", headers=bearer(OPS))
    assert foreign.json() == unknown.json()
    assert not worker.call.done()
    assert worker.sends("result", WEB).status_code == 204


@pytest.mark.parametrize("word", ["next?wait=0", "result", "progress", "heartbeat", ""])
def test_bearer_is_the_principal_and_not_the_worker(world: TokenWorld, word: str) -> None:
    worker = Joined(world)
    assert kind(worker.sends(word, "", is_bearer=True)) == (401, "unauthenticated")
    alone = world.ask("POST", f"{worker.path}/heartbeat", headers=bearer(WEB))
    assert kind(alone) == (403, "wrong-token")


def test_too_large_result_of_another_principal_ends_no_job(world: TokenWorld) -> None:
    from dragoman.http.app import make_too_large

    worker = Joined(world)
    for token, is_ended in ((OPS, False), ("", False), (WEB, True)):
        headers = {"Dragoman-Worker-Token": worker.token, "Dragoman-Attempt": worker.attempt, **bearer(token)}
        fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        raw_path = f"{worker.path}/result".encode()
        scope = {"type": "http", "method": "POST", "raw_path": raw_path, "headers": fields, "query_string": b""}
        make_too_large(world.listener)(scope)
        world.settle()
        assert worker.call.done() is is_ended


def test_workers_of_a_revoked_principal_leave(world: TokenWorld) -> None:
    """R163, D8."""
    worker = Joined(world)
    poll = world.begin("POST", f"{worker.path}/next", headers={"Dragoman-Worker-Token": worker.token, **bearer(WEB)})
    other = world.ask("POST", "/v1/workers", headers=bearer(OPS), json={"services": ["mail"]}).json()["id"]
    assert world.session.end_revoked(world.now) == 0
    ops = world.broker.principals.named("ops")
    world.broker.principals.apply({"ops": (ops.rights, ops.limits)})
    assert world.session.end_revoked(world.now) == 1
    world.runner.run_once()
    assert [each.id for each in world.broker.worker_registry.workers.values()] == [other]
    assert kind(world.finish(poll)) == (410, "gone")
    assert kind(world.finish(worker.call)) == (502, "lost")
    world.hangups[-2].happen()
    assert world.session.end_revoked(world.now) == 0
