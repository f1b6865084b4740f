"""Brokers of one cluster on real NATS servers, for tests."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from dragoman import BrokerUnavailable, Client, JobRefused, NoSuchService, NotFound, PayloadTooLarge
from dragoman.operations.list_schemas import ListWorkersRequest
from dragoman.operations.schemas import EnqueueRequest, JobView
from dragoman.operations.table import ENQUEUE, WORKERS
from dragoman.sdk.operation import OperationCall
from nats_servers import NatsCluster, NatsServer, start_on_free_ports
from programs import Program, Programs, until

HERE = Path(__file__).parent
SOURCES = [each for each in [os.environ.get("PYTHONPATH")] if each]  # other sources than the installed ones
HANDLERS = os.pathsep.join([str(HERE), *SOURCES])  # the path of programs that import the handlers of this folder
LISTENERS = (
    "tcp://127.0.0.1:0",
    "http://127.0.0.1:0",
    "majordomo+tcp://127.0.0.1:0",
    "pingpong+tcp://127.0.0.1:0?frontend=0&service=pingpong",
    "memodb+tcp://127.0.0.1:0",
)
PATIENCE = 60.0
ADOPT_AFTER = 4.0  # seconds; brokers of tests share few cores with others
NAMES = ("eu1", "eu2", "eu3")


def start_nats(folder: Path) -> NatsServer:
    """Start one server with JetStream."""
    settings = f'jetstream {{ store_dir: "{folder / "data"}" }}'
    return start_on_free_ports(lambda: NatsServer(folder, settings=settings))


def initialise(programs: Programs, url: str, shards: int = 4, replicas: int = 1) -> None:
    done = programs.run("cluster", "init", "--cluster", url, "--shards", shards, "--replicas", replicas)
    assert done.ends(PATIENCE) == 0, done.err


def url_of(nats: NatsServer | NatsCluster) -> str:
    if isinstance(nats, NatsServer):
        return nats.url
    return "nats://" + ",".join(each.removeprefix("nats://") for each in nats.urls)


class Member:
    """One broker of the cluster."""

    def __init__(
        self,
        programs: Programs,
        nats: NatsServer | NatsCluster,
        name: str,
        *,
        listeners: tuple[str, ...] = LISTENERS,
        adopt_after: float = ADOPT_AFTER,
        flags: tuple[object, ...] = (),
    ) -> None:
        self.name = name
        self._programs = programs
        programs.environment["PYTHONPATH"] = HANDLERS
        member = ("--cluster", url_of(nats), "--broker-name", name, "--data", "memory", "--strict")
        times = ("--set", f"cluster_adopt_after={adopt_after}")
        self.program = programs.dragoman("serve", *listeners, *member, *times, *flags)
        self.urls: dict[str, str] = {}  # by dialect
        self.places: list[str] = []  # of all listeners for callers
        self.pingpong_workers = ""

    def wait(self) -> None:
        """Wait until it listens."""
        self.program.prints("Try, in two other terminals")
        found = re.findall(r"^  (\w+) +(\w+://\S+) +(?:both|callers)", self.program.out, re.MULTILINE)
        self.urls = {dialect: url if url.startswith("http") else f"{dialect}+{url}" for dialect, url in found}
        self.places = [url for _, url in found]
        places = re.findall(r"^  pingpong +(\w+://\S+) +workers", self.program.out, re.MULTILINE)
        self.pingpong_workers = places[0] if places else ""

    @property
    def url(self) -> str:
        return self.urls["native"]

    def worker(self, function: str, service: str, dialect: str = "native", threads: int = 2) -> Program:
        url = self.urls[dialect]
        words: tuple[object, ...] = ("--service", service, "--threads", threads)
        if dialect == "pingpong":
            url, words = f"pingpong+{self.pingpong_workers}?service=pingpong", ("--concurrency", 1)
        return self._programs.dragoman("worker", f"cluster_handlers:{function}", *words, "--connect", url)

    def knows(self) -> list[str]:
        """Return the names of the members of the cluster."""
        with closing(Client(self.url)) as client:
            return [each.name for each in client.cluster().members]

    def offers(self, service: str) -> bool:
        """True if an idle worker of this broker, or another broker as this one sees it, has the service."""
        with closing(Client(self.url)) as client:
            here = [each for each in client.workers() if each.broker == self.name]
            others = client.operation(WORKERS, ListWorkersRequest(dialect="cluster")).workers
            return any(service in each.services and each.state == "idle" for each in here + others)

    def shards(self) -> int:
        """Return the number of shards that this broker owns."""
        with closing(Client(self.url)) as client:
            return len([each for each in client.cluster().shards if each.owner == self.name and each.state == "owned"])


def start_members(
    programs: Programs,
    nats: NatsServer | NatsCluster,
    names: tuple[str, ...] = NAMES,
    *,
    listeners: tuple[str, ...] = LISTENERS,
    adopt_after: float = ADOPT_AFTER,
    flags: tuple[object, ...] = (),
    known: int = 0,
) -> list[Member]:
    """Start brokers, and wait until they know each other. `known`: number of brokers with those that run already."""
    made = [Member(programs, nats, name, listeners=listeners, adopt_after=adopt_after, flags=flags) for name in names]
    for member in made:
        member.wait()
    wanted = known or len(names)
    for member in made:
        until(lambda member=member: len(member.knows()) == wanted, f"{member.name} knows all", PATIENCE)
    return made


def wait_for_owners(members: list[Member], shards: int = 4) -> None:
    """Wait until all shards are owned by these brokers."""
    until(lambda: sum(each.shards() for each in members) == shards, "all shards are owned", PATIENCE)


def wait_for_balance(members: list[Member], shards: int = 4) -> None:
    """Wait until the shards are shared out evenly: none of them moves any more."""

    def is_even() -> bool:
        counts = [each.shards() for each in members]
        return sum(counts) == shards and max(counts) - min(counts) <= 1

    until(is_even, "the shards are shared out", PATIENCE)


def enqueue(members: list[Member], service: str, payload: bytes, key: str, **options: Any) -> tuple[str, Member]:
    """Enqueue a background job with a key. Returns its id, and the broker that has it."""
    found: list[tuple[str, Member]] = []

    def is_enqueued() -> bool:
        for member in members:
            try:
                with closing(Client(member.url, wait_for_broker=False)) as client:
                    id = client.enqueue(service, payload, key=key, **options)
                    broker = client.job(id).broker
                    owners = [each for each in members if each.name == broker]
                    assert owners, f"{id} is at {broker!r}, which is none of {[each.name for each in members]}"
                    found.append((id, owners[0]))
                return True
            except (NoSuchService, PayloadTooLarge):
                raise
            except (JobRefused, BrokerUnavailable):
                continue  # another broker has the shard, or is about to, or this one stops; the key makes it one job
        return False

    until(is_enqueued, f"the job {key} is enqueued", PATIENCE)
    return found[0]


def view_of(members: list[Member], id: str) -> JobView | None:
    """Return a job as its owner shows it; None: no broker has it now."""
    for member in members:
        try:
            with closing(Client(member.url, wait_for_broker=False)) as client:
                return client.job(id)
        except (JobRefused, BrokerUnavailable, NotFound):
            continue
    return None


def enqueue_at(member: Member, service: str, payload: bytes, **options: Any) -> str:
    """Enqueue a background job in one of the shards that a broker owns: its request has no key and no id, so any shard
    will do."""
    until(member.shards, f"{member.name} has a shard", PATIENCE)
    form = msgspec.json.encode(EnqueueRequest(service=service, **options))
    with closing(Client(member.url)) as client:
        answer, _ = client._request(OperationCall(ENQUEUE.name, form, payload))
    view = msgspec.json.decode(answer, type=JobView)
    assert view.broker == member.name
    return view.id
