"""Starts NATS servers and the brokers of a cluster as processes on loopback, for bench/cluster.py."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import ROOT, chosen, data_folder, free_ports, wait_until_listening
from bench.measure import NotMeasured
from dragoman import BrokerUnavailable, Client

NATS_SERVER = Path(sys.executable).with_name("nats-server")
PATIENCE = 60.0
SHARDS = 12
BALANCED = 150.0  # seconds; a broker that came first gives one shard up every ten seconds
ADOPT_AFTER = 10.0  # seconds; the default


@dataclass(frozen=True, slots=True)
class Member:
    """A running broker of the cluster."""

    name: str
    process: subprocess.Popen[bytes]
    url: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def owned(self) -> tuple[int, int]:
        """Return the number of shards that it owns, and of the jobs in them."""
        with Client(self.url, connect_timeout=PATIENCE) as client:
            mine = [each for each in client.cluster().shards if each.owner == self.name and each.state == "owned"]
        return len(mine), sum(each.jobs or 0 for each in mine)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Running brokers, and the NATS servers between them."""

    members: list[Member]
    nats_pids: list[int]

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.members]


@contextmanager
def running_cluster(brokers: int, servers: int = 1, synced: bool = False) -> Iterator[Cluster]:
    """Start NATS servers, initialise a cluster with as many replicas, and start brokers. Yields when the brokers know
    each other and the shards are shared out evenly."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(data_folder()))
        ports = free_ports(2 * servers)
        nats = [_start_nats(stack, folder, ports, number, synced) for number in range(servers)]
        url = "nats://" + ",".join(f"127.0.0.1:{port}" for port in ports[:servers])
        _initialise(url, servers, synced)
        members = [_start_member(stack, folder, url, f"b{number}") for number in range(1, brokers + 1)]
        for each in members:
            wait_until_listening(each.process, each.name, int(each.url.rpartition(":")[2]))
        wait_until(lambda: _is_even(members), "the shards are shared out", BALANCED)
        yield Cluster(members, [each.pid for each in nats])


def wait_until(fact: Callable[[], bool], what: str, patience: float = PATIENCE, nap: float = 0.05) -> None:
    deadline = time.monotonic() + patience
    while not fact():
        if time.monotonic() > deadline:
            raise NotMeasured(f"still waiting after {patience:g} s: {what}")
        time.sleep(nap)


def _start_nats(
    stack: ExitStack, folder: Path, ports: Sequence[int], number: int, synced: bool
) -> subprocess.Popen[bytes]:
    servers = len(ports) // 2
    name = f"n{number + 1}"
    sync = ", sync_interval: always" if synced else ""
    lines = [
        f'listen: "127.0.0.1:{ports[number]}"',
        f"server_name: {name}",
        f'jetstream {{ store_dir: "{folder / name}"{sync} }}',
    ]
    if servers > 1:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[servers:])
        lines.append(f'cluster {{ name: bench, listen: "127.0.0.1:{ports[servers + number]}", routes: [{routes}] }}')
    config = folder / f"{name}.conf"
    config.write_text("\n".join(lines))
    process = _start(stack, [str(NATS_SERVER), "-c", str(config)], folder / f"{name}.log")
    wait_until_listening(process, "nats-server", ports[number])
    return process


def _initialise(url: str, replicas: int, synced: bool) -> None:
    """Make the logs. Servers that have just been started elect a leader first, so it may take several tries."""
    words = [str(chosen()), "cluster", "init", "--cluster", url, "--shards", str(SHARDS), "--replicas", str(replicas)]
    if synced:
        words.append("--synced")
    deadline = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        if not done.returncode:
            return
        if time.monotonic() > deadline:
            raise NotMeasured(f"the cluster cannot be initialised: {done.stderr.strip()}")
        time.sleep(0.5)


def _start_member(stack: ExitStack, folder: Path, url: str, name: str) -> Member:
    [port] = free_ports(1)
    words = [str(chosen()), "serve", f"tcp://127.0.0.1:{port}", "--data", "memory", "--cluster", url]
    words += ["--broker-name", name, "--set", f"cluster_adopt_after={ADOPT_AFTER}"]
    process = _start(stack, words, folder / f"{name}.log")
    return Member(name, process, f"tcp://127.0.0.1:{port}")


def _start(stack: ExitStack, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    try:
        with open(log, "wb") as file:
            process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    except OSError as error:
        raise NotMeasured(f"{words[0]} cannot be started: {error}") from error
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _is_even(members: Sequence[Member]) -> bool:
    try:
        counts = [each.owned()[0] for each in members]
    except BrokerUnavailable:
        return False
    return sum(counts) == SHARDS and max(counts) - min(counts) <= 1
