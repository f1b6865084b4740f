"""A broker that is killed and restarted on the same data folder, with the same two listeners."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from programs import PATIENCE, Program, Programs, until

Answer = tuple[int, dict[str, str], bytes]


class HttpListener(HTTPConnection):
    """The HTTP listener, by its socket file, which belongs to this test run only."""

    def __init__(self, place: str, timeout: float = 30.0) -> None:
        super().__init__("localhost", timeout=timeout)
        self._place = place

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._place)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request. Returns status, headers by lower-case names, and body. Raises OSError and HTTPException."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.request(method, path, body, named)
        response = self.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


class Survivor:
    """A broker whose listeners are socket files in the test's folder, the same after every start."""

    def __init__(self, programs: Programs, *flags: object, data: Path | None = None) -> None:
        self.data = data or programs.folder / "data"
        self.native = f"ipc://{programs.folder}/n"
        self.place = str(programs.folder / "h")
        self.url = f"http+unix://{self.place}"
        self.kills: list[float] = []  # when it was killed
        self._programs = programs
        self._flags = flags
        self.start()

    def start(self, until: str = "jobs restored") -> Program:
        """Start the broker, and wait until it has printed this."""
        self.broker = self.try_to_start()
        self.broker.prints(until)
        return self.broker

    def try_to_start(self) -> Program:
        return self.launch("serve", self.native, self.url, "--data", self.data, *self._flags)

    def launch(self, *words: object) -> Program:
        """Start a dragoman command."""
        return self._programs.dragoman(*words)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.kills.append(time.monotonic())
        self.broker.kill()

    def kill_and_start(self) -> None:
        self.kill()
        self.start()

    # ---------------------------------------------------------------- what it is asked

    def listener(self) -> HttpListener:
        return HttpListener(self.place)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request on its own connection."""
        listener = self.listener()
        try:
            return listener.ask(method, path, body, **headers)
        finally:
            listener.close()

    def say(self, method: str, path: str, **said: Any) -> tuple[int, Any]:
        """Send JSON. Returns the view, or the problem document."""
        body = json.dumps(said).encode() if method in ("POST", "PUT") else b""
        status, _, told = self.ask(method, path, body, Content_Type="application/json")
        return status, json.loads(told) if told else None

    def get(self, path: str) -> Any:
        status, view = self.say("GET", path)
        assert status == 200, (path, status, view)
        return view

    def enqueue(self, service: str, payload: str = "", **order: Any) -> str:
        """Enqueue a job. Returns its id once it is on disk."""
        status, view = self.say("POST", "/v1/jobs", service=service, payload=payload, **order)
        assert status == (200 if view.get("state") == "ended" else 202), (status, view)  # by its key, it may have ended
        return str(view["id"])

    def job(self, id: str) -> dict[str, Any]:
        view: dict[str, Any] = self.get(f"/v1/jobs/{id}")
        return view

    def jobs(self, **filter: object) -> Iterator[dict[str, Any]]:
        """Return all jobs, page by page."""
        listener = self.listener()
        path: str | None = "/v1/jobs?limit=1000" + "".join(f"&{name}={value}" for name, value in filter.items())
        while path is not None:
            status, headers, body = listener.ask("GET", path)
            assert status == 200, (path, status, body)
            yield from json.loads(body)["jobs"]
            link = headers.get("link")
            path = link.partition(">")[0].lstrip("<") if link else None
        listener.close()

    def becomes(self, id: str, state: str, patience: float = PATIENCE) -> dict[str, Any]:
        """Wait until this job has the state; `state` may be an outcome as well."""

        def look() -> dict[str, Any] | None:
            view = self.job(id)
            return view if state in (view["state"], view["outcome"]) else None

        return until(look, f"job {id} is {state}", patience) or {}

    def why(self, id: str) -> str:
        """Return the output of `dragoman why`."""
        return self.whys({"": id})[""]

    def whys(self, ids: dict[str, str]) -> dict[str, str]:
        """Return the same for many jobs, by their names in the test."""
        asked = {name: self._programs.dragoman("why", id, "--connect", self.url) for name, id in ids.items()}
        for each in asked.values():
            assert each.ends() == 0, each.err
        return {name: each.out.strip() for name, each in asked.items()}

    def numbers(self) -> dict[str, float]:
        """Return all counters, summed over labels: `dragoman_jobs_total` is that of all services and outcomes."""
        status, _, body = self.ask("GET", "/metrics", Accept="application/openmetrics-text")
        assert status == 200, body
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(body.decode()):
            for each in family.samples:
                found[each.name] = found.get(each.name, 0.0) + each.value
        return found

    def has_ended_all(self) -> bool:
        """Return whether the broker knows all jobs, and all have ended."""
        view = self.get("/v1/health")
        return not view["loading"] and view["jobs"] == 0
