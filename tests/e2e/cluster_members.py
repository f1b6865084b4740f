"""Brokers of one cluster as processes."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from dragoman import Client
from dragoman.operations.list_schemas import ListWorkersRequest
from dragoman.operations.table import WORKERS
from nats_servers import NatsServer
from programs import Program, Programs, until

HERE = Path(__file__).parent
LISTENERS = (
    "tcp://127.0.0.1:0",
    "http://127.0.0.1:0",
    "majordomo+tcp://127.0.0.1:0",
    "pingpong+tcp://127.0.0.1:0?frontend=0&service=pingpong",
    "memodb+tcp://127.0.0.1:0",
)
PATIENCE = 60.0


def start_members(programs: Programs, nats: NatsServer, *names: str) -> list[Member]:
    """Start brokers, and wait until each knows all others."""
    programs.environment["PYTHONPATH"] = str(HERE)
    made = [Member(programs, nats, name) for name in names]
    for member in made:
        until(lambda member=member: len(member.knows()) == len(names), f"{member.name} knows all", PATIENCE)
    return made


class Member:
    """One broker of the cluster."""

    def __init__(self, programs: Programs, nats: NatsServer, name: str) -> None:
        self.name = name
        self._programs = programs
        flags = ("--cluster", nats.url, "--broker-name", name, "--data", "memory", "--strict")
        self.program = programs.dragoman("serve", *LISTENERS, *flags)
        self.program.prints("Try, in two other terminals")
        self.urls = {
            dialect: url if url.startswith("http") else f"{dialect}+{url}"
            for dialect, url in re.findall(r"^  (\w+) +(\w+://\S+) +(?:both|callers)", self.program.out, re.MULTILINE)
        }
        self.pingpong_workers = re.findall(r"^  pingpong +(\w+://\S+) +workers", self.program.out, re.MULTILINE)[0]

    @property
    def url(self) -> str:
        return self.urls["native"]

    def worker(self, function: str, service: str, dialect: str = "native") -> Program:
        url = self.urls[dialect]
        words: tuple[object, ...] = ("--service", service, "--threads", 2)
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
