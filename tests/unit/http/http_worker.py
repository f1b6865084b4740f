"""An HTTP worker by hand, for an application without sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from http_world import World

from dragoman.core.model import Worker as CoreWorker
from dragoman.core.model import WorkerId

Task = asyncio.Task[httpx2.Response]


class Worker:
    def __init__(self, world: World, *services: str, **facts: Any) -> None:
        self.world = world
        joined = world.ask("POST", "/v1/workers", json={"services": services or ("s",), **facts})
        assert joined.status_code == 201, joined.text
        self.joined = joined.json()
        self.path = joined.headers["location"]
        self.headers = {"Dragoman-Worker-Token": self.joined["token"]}

    @property
    def core(self) -> CoreWorker:
        return self.world.broker.worker_registry.workers[WorkerId(self.joined["id"])]

    def asks(self, wait: float | None = None, **headers: str) -> Task:
        """Send `next`, which may have to wait."""
        query = {} if wait is None else {"wait": wait}
        said = {**self.headers, **{f"Dragoman-{name.title()}": value for name, value in headers.items()}}
        return self.world.begin("POST", f"{self.path}/next", params=query, headers=said)

    def takes(self) -> httpx2.Response:
        answer = self.world.finish(self.asks())
        assert answer.status_code == 200, answer
        return answer

    def says(self, word: str, attempt: str = "", body: bytes = b"", **facts: Any) -> httpx2.Response:
        headers = {**self.headers, **facts.pop("headers", {})}
        if attempt:
            headers["Dragoman-Attempt"] = attempt
        return self.world.ask("POST", f"{self.path}/{word}", headers=headers, content=body, **facts)

    def leaves(self) -> httpx2.Response:
        return self.world.ask("DELETE", self.path, headers=self.headers)


def token(answer: httpx2.Response) -> str:
    attempt: str = answer.headers["dragoman-attempt"]
    return attempt


def kind(answer: httpx2.Response) -> tuple[int, str]:
    """Return status and kind of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["title"]
    assert said["detail"]
    return answer.status_code, said["type"].removeprefix("urn:dragoman:")


def only_job(world: World) -> Any:
    (job,) = world.broker.jobs.values()
    return job


def call(world: World, body: bytes = b"x", **headers: str) -> Task:
    said = {f"Dragoman-{name.title()}": value for name, value in headers.items()}
    return world.begin("POST", "/v1/call/s", content=body, headers=said)
