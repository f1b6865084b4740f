"""Clients of a chaos campaign: native and HTTP, each with the addresses of all brokers."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TypeVar

from chaos.handlers import result_of
from chaos.processes import DIALECTS, ChaosBroker
from chaos.record import Record
from dragoman import AsyncClient, BrokerUnavailable, DragomanError, JobError, JobRefused, NewJob, NoSuchJob, NotFound
from dragoman.sdk.ids import new_batch_id

T = TypeVar("T")
MANY = 20  # attempts
PATIENCE = 90.0  # seconds in which an operation must succeed
REST = 0.2  # seconds between two tries
BATCH = 4  # jobs
HTTP_TIMEOUT = 20.0  # seconds
KINDS = ("key",) * 9 + ("no key",) * 5 + ("delayed",) * 2 + ("batch",) + ("call",) * 3
UNKNOWN = (BrokerUnavailable, JobRefused, TimeoutError)


def _post(place: str, form: dict[str, object]) -> str | None:
    """Submit a background job by HTTP, once. Returns its id; None: it was not acknowledged."""
    connection = http.client.HTTPConnection(place, timeout=HTTP_TIMEOUT)
    try:
        connection.request("POST", "/v1/jobs", json.dumps(form), {"Content-Type": "application/json"})
        response = connection.getresponse()
        said = response.read()
        if response.status in (200, 202):
            return str(json.loads(said)["id"])
        assert response.status in (503, 507), (response.status, said)
        return None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Load:
    """Submits jobs evenly over `seconds`."""

    def __init__(self, brokers: list[ChaosBroker], record: Record, jobs: int, seconds: float, seed: int) -> None:
        self.record = record
        self.count = jobs
        self.submitted = 0
        self._brokers = brokers
        self._random = random.Random(seed)
        self._interval = seconds / jobs
        self._begin = 0.0
        self._seconds = seconds
        turns = [brokers[turn:] + brokers[:turn] for turn in range(len(brokers))]
        self.native = [AsyncClient([each.native for each in turn]) for turn in turns]
        self.http = [AsyncClient([each.http for each in turn]) for turn in turns]

    @property
    def clients(self) -> list[AsyncClient]:
        return self.native + self.http

    async def close(self) -> None:
        for client in self.clients:
            await client.close()

    async def run(self) -> None:
        """Submit everything, and look at some jobs meanwhile."""
        self._begin = time.monotonic()
        looking = asyncio.create_task(self._look())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(24):
                    group.create_task(self._submit_some())
        finally:
            looking.cancel()

    async def _submit_some(self) -> None:
        while self.submitted < self.count:
            number = self.submitted
            kind = self._random.choice(KINDS)
            self.submitted += BATCH if kind == "batch" else 1
            await asyncio.sleep(self._begin + number * self._interval - time.monotonic())
            await self._submit(number, kind)

    async def _submit(self, number: int, kind: str) -> None:
        chance = self._random
        service = chance.choice(DIALECTS)
        attempts = 1 if chance.random() < 0.4 else MANY
        fails = service == "native" and chance.random() < 0.05
        if fails:
            attempts = 2
        client = chance.choice(self.clients)
        delay = chance.uniform(0.5, 8.0) if kind == "delayed" else 0.0
        try:
            if kind == "call":
                await self._call(client, number, service)
            elif kind == "batch":
                await self._batch(number, service, attempts)
            elif kind == "no key":
                await self._without_key(number, service, attempts)
            else:
                await self._with_key(client, number, service, attempts, delay, fails)
        except DragomanError as error:
            self.record.violated("strange answers", f"{kind} {number}: {error!r}")

    def _tries(self) -> Iterator[int]:
        """Count tries until the time is over."""
        tries = count()
        while time.monotonic() < self._begin + self._seconds + PATIENCE:
            yield next(tries)

    def _payload(self, name: str, fails: bool = False) -> bytes:
        return f"{name} {self._random.choice((0, 2, 5, 20, 50))} {'fail' if fails else 'ok'}".encode()

    async def _with_key(
        self, client: AsyncClient, number: int, service: str, attempts: int, delay: float, fails: bool
    ) -> None:
        name = key = f"k{number}"
        payload = self._payload(name, fails)
        self.record.submits(name, attempts)

        async def enqueue(by: AsyncClient) -> str:
            return await by.enqueue(
                service, payload, key=key, attempts=attempts, delay=delay, retry_first=0.2, keep=3600.0
            )

        id = await self._persist(lambda: enqueue(client), f"enqueue {name}")
        if id is None:
            return
        self.record.acknowledged(name, id, attempts, key, fails)
        self.record.counts["jobs with a key"] += 1
        if self._random.random() < 0.1:  # the same again, elsewhere
            await asyncio.sleep(self._random.uniform(0.0, 5.0))
            again = await self._persist(lambda: enqueue(self._random.choice(self.clients)), f"enqueue {name} again")
            if again is not None:
                self.record.counts["keys submitted again"] += 1
                self.record.acknowledged(name, again, attempts, key, fails)

    async def _without_key(self, number: int, service: str, attempts: int) -> None:
        """Clients of the SDK always send a key, and repeat what was not answered. This one does neither: a request
        that is not answered may have made a job, or not."""
        for turn in self._tries():
            name = f"n{number}.{turn}"
            self.record.submits(name, attempts)
            form = {"service": service, "payload": self._payload(name).decode(), "attempts": attempts}
            broker = self._random.choice(self._brokers)
            id = await asyncio.to_thread(_post, broker.places["http"], form | {"retry_first": 0.2, "keep": 3600.0})
            if id is None:
                self.record.counts["submits not acknowledged"] += 1
                await asyncio.sleep(REST)
                continue
            self.record.acknowledged(name, id, attempts, None)
            self.record.counts["jobs without a key"] += 1
            return
        self.record.violated("no answer", f"job {number}")

    async def _batch(self, number: int, service: str, attempts: int) -> None:
        """Jobs that are accepted together or not at all; half of the batches are groups."""
        client = self._random.choice(self.clients)
        is_group = number % 2 == 0
        for turn in self._tries():
            names = [f"b{number}.{turn}.{member}" for member in range(BATCH)]
            group = new_batch_id().hex() if is_group else None
            jobs = [
                NewJob(service, self._payload(name), attempts=attempts, retry_first=0.2, keep=3600.0, group=group)
                for name in names
            ]
            for name in names:
                self.record.submits(name, attempts)
            try:
                ids = await client.enqueue_jobs(jobs)
            except UNKNOWN:
                self.record.counts["submits not acknowledged"] += 1
                await asyncio.sleep(REST)
                continue
            for name, id in zip(names, ids, strict=True):
                self.record.acknowledged(name, id, attempts, None)
            self.record.counts["jobs in groups" if is_group else "jobs in batches"] += BATCH
            return
        self.record.violated("no answer", f"batch {number}")

    async def _call(self, client: AsyncClient, number: int, service: str) -> None:
        name = f"c{number}"
        self.record.submits(name, 1)
        try:
            result = await client.call(service, self._payload(name), timeout=20.0, attempts=1, wait_for_worker=True)
        except (JobError, BrokerUnavailable, TimeoutError):
            self.record.counts["calls that failed"] += 1
            return
        self.record.counts["calls done"] += 1
        if result != result_of(name):
            self.record.violated("wrong result", f"{name}: {result!r}")

    async def _persist(self, act: Callable[[], Awaitable[T]], text: str) -> T | None:
        """Try until it succeeds."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                return await asyncio.wait_for(act(), 30.0)
            except UNKNOWN:
                self.record.counts["operations refused or repeated"] += 1
                await asyncio.sleep(REST)
        self.record.violated("no answer", text)
        return None

    # ---------------------------------------------------------------- outcomes

    async def _look(self) -> None:
        """Ask for jobs by chance, as long as faults happen."""
        while True:
            await asyncio.sleep(0.05)
            if self.record.jobs:
                id = self._random.choice(list(self.record.jobs))
                await self.look_at(id, self._random.choice(self.clients))

    async def look_at(self, id: str, client: AsyncClient) -> bool:
        """Ask for a job. True: it was answered."""
        try:
            view = await asyncio.wait_for(client.job(id), 20.0)
            if view.outcome is None:
                self.record.told(id, None, b"")
                return False
            result = await asyncio.wait_for(client.result(id, 20.0), 30.0) if view.outcome == "done" else b""
        except (NoSuchJob, NotFound):
            self.record.denied(id)
            return True
        except (*UNKNOWN, JobError):
            return False
        self.record.told(id, view.outcome, result, len(view.attempts))
        return True

    async def poll(self, seconds: float, turn: int) -> list[str]:
        """Ask for each job until it has ended. Returns those that have not."""
        left = list(self.record.jobs)
        until = time.monotonic() + seconds
        clients = self.clients
        while left and time.monotonic() < until:
            queue = list(left)
            done: set[str] = set()

            async def work(queue: list[str] = queue, done: set[str] = done) -> None:
                while queue:
                    id = queue.pop()
                    if await self.look_at(id, clients[(hash(id) + turn) % len(clients)]):
                        done.add(id)

            async with asyncio.TaskGroup() as group:
                for _ in range(32):
                    group.create_task(work())
            left = [id for id in left if id not in done]
            if left:
                await asyncio.sleep(0.5)
        return left
