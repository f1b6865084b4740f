"""Brokers of a cluster on real NATS servers: calls within a broker and through one hop, background jobs by number of
replicas, growth from one broker to three, and the adoption of the jobs of a broker that is killed.

All processes share the cores of one machine. CPU per job holds on any machine; jobs a second hold for this one.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from bench.brokers import NATIVE_COMMAND, ROOT, Kind, running
from bench.cluster_processes import ADOPT_AFTER, SHARDS, Cluster, Member, running_cluster, wait_until
from bench.generator import Generator, find_submit_generator
from bench.measure import NotMeasured, read_process, take_reading
from bench.table import block, verdict
from dragoman import Client

HOP_TARGET = 1.6  # CPU of each broker, in multiples of a local call's
GROWTH_TARGET = 2.4  # jobs a second of three brokers, in multiples of one broker's
TRIES = 3
LIMIT = 120.0  # seconds; more than any load takes
CALLS_LOAD = ("--workers", "8", "--size", "100")  # 128 slots: more than calls in flight
WINDOWS = (100, 1)
DELAY_MS = 5
SLOTS = 16  # of one worker of load.c
CALLERS = 64  # of background jobs, at each broker
STORES = {"R1": (1, False), "R3": (3, False), "R3, sync always": (3, True)}  # servers, and whether each write is synced
ADOPTED_JOBS = 100_000

Tell = Callable[[str], None]
Figures = dict[str, float]


@dataclass(slots=True)
class ClusterFigures:
    """All runs, by row."""

    calls: dict[tuple[str, int], list[Figures]] = field(default_factory=dict)  # by place and window
    background: dict[str, list[Figures]] = field(default_factory=dict)
    growth: dict[tuple[str, int], list[Figures]] = field(default_factory=dict)  # by load and number of brokers
    adoption: Figures = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return every run, for JSON."""
        return {
            "calls": [{"place": place, "window": window, "runs": runs} for (place, window), runs in self.calls.items()],
            "background": self.background,
            "growth": [{"load": load, "brokers": number, "runs": runs} for (load, number), runs in self.growth.items()],
            "adoption": self.adoption,
        }


def measure_cluster(
    generator: Generator, seconds: float, warmup: float, repeats: int, jobs: int, tell: Tell
) -> ClusterFigures:
    """Run everything; rows that are compared take turns. `jobs`: of the broker that is killed."""
    if not generator.speaks_native:
        raise NotMeasured(f"its load generator exists in C only, and could not be built: {generator.title}")
    load, submit = generator.command, find_submit_generator().command
    times = ("--warmup", str(warmup), "--seconds", str(seconds))
    found = ClusterFigures()
    found.adoption = _patiently(lambda: _measure_adoption(submit, jobs), tell)
    tell(f"adoption  {_progress(found.adoption)}")
    for _ in range(repeats):
        _measure_calls(found, load, times, tell)
        for name, (servers, synced) in STORES.items():
            figures = _patiently(partial(_in_cluster, 3, servers, synced, _background, load, submit, times, 0), tell)
            found.background.setdefault(name, []).append(figures)
            tell(f"background  {name:<16} {_progress(figures)}")
        for brokers in (1, 3):
            loads: dict[str, Callable[[], Figures]] = {
                "calls": partial(_in_cluster, brokers, 1, False, _spread_calls, load, times),
                "calls at one broker": partial(_in_cluster, brokers, 1, False, _calls_at_one, load, times),
                "background jobs": partial(_in_cluster, brokers, 1, False, _background, load, submit, times, DELAY_MS),
            }
            for name, measure in loads.items():
                figures = _patiently(measure, tell)
                found.growth.setdefault((name, brokers), []).append(figures)
                tell(f"growth  {name:<20} {brokers} brokers {_progress(figures)}")
    return found


def _patiently(measure: Callable[[], Figures], tell: Tell) -> Figures:
    """Measure, again if it fails: on a machine that others use, a broker may be silent for so long that others take
    its shards, and callers are told to ask again."""
    for _ in range(TRIES - 1):
        try:
            return measure()
        except NotMeasured as problem:
            tell(f"once more: {problem}")
    return measure()


def _in_cluster(
    brokers: int, servers: int, synced: bool, measure: Callable[..., Figures], *arguments: object
) -> Figures:
    with running_cluster(brokers, servers, synced) as cluster:
        return measure(cluster, *arguments)


# ---------------------------------------------------------------- calls


def _measure_calls(found: ClusterFigures, load: Sequence[str], times: Sequence[str], tell: Tell) -> None:
    kind = Kind("alone", "native", NATIVE_COMMAND)
    with running(kind) as alone, running_cluster(2) as cluster:
        first, second = cluster.members
        for window in WINDOWS:
            places = {
                "alone": (alone.frontend, alone.frontend, alone.pid, []),
                "local": (first.url, first.url, first.pid, [second.pid, *cluster.nats_pids]),
                "hop": (first.url, second.url, first.pid, [second.pid, *cluster.nats_pids]),
            }
            for place, (frontend, backend, pid, others) in places.items():
                words = [*load, *_calls(frontend, backend, window, times), *CALLS_LOAD, "--broker-pid", str(pid)]
                words += [word for other in others for word in ("--other-pid", str(other))]
                watched = [pid, *others]
                with _machine(watched) as machine:
                    [run] = _run_all([words])
                figures = {"rate": run["rate"], "p50_us": run["p50_us"], "p99_us": run["p99_us"], **machine}
                figures["first_us"] = run["broker_us"]
                figures["second_us"], figures["nats_us"] = run.get("others_us", (0.0, 0.0))
                found.calls.setdefault((place, window), []).append(figures)
                tell(f"calls  {place:<6} {window:>3} in flight  {_progress(figures)}")


def _calls(frontend: str, backend: str, window: int, times: Sequence[str]) -> list[str]:
    return ["--mode", "native", "--frontend", frontend, "--backend", backend, "--window", str(window), *times]


def _run_all(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Run loads at the same time. Returns what each has printed; a wrong or missing reply is no measurement."""
    started = [
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in commands
    ]
    runs = []
    try:
        for process in started:
            out, err = process.communicate(timeout=LIMIT)
            run = json.loads(out) if not process.returncode else {"wrong": -1}
            if run["wrong"] or run["missing"]:
                raise NotMeasured(f"the load failed: {run['wrong']} replies are wrong: {err.strip()}")
            runs.append(run)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"the load did not end in {LIMIT:g} s") from None
    finally:
        for process in started:
            process.kill()
            process.wait()
    return runs


# ---------------------------------------------------------------- growth


def _spread_calls(cluster: Cluster, load: Sequence[str], times: Sequence[str]) -> Figures:
    """Callers and workers at each broker."""
    return _slow_calls(cluster, load, times, [(each, 4 * SLOTS) for each in cluster.members])


def _calls_at_one(cluster: Cluster, load: Sequence[str], times: Sequence[str]) -> Figures:
    """Workers at each broker, and all callers at the first."""
    return _slow_calls(cluster, load, times, [(cluster.members[0], 4 * SLOTS * len(cluster.members))])


def _slow_calls(
    cluster: Cluster, load: Sequence[str], times: Sequence[str], callers: Sequence[tuple[Member, int]]
) -> Figures:
    """Calls whose workers take DELAY_MS and have SLOTS slots at each broker: slots are the limit, and no core."""
    slow = ("--workers", "1", "--size", "100", "--delay-ms", str(DELAY_MS))
    commands = [
        [*load, *_calls(each.url, each.url, window, times), *slow, "--broker-pid", str(each.pid)]
        for each, window in callers
    ]
    commands[0] += [word for pid in cluster.nats_pids for word in ("--other-pid", str(pid))]
    first = callers[0][0]
    if len(callers) == 1:
        commands[0] += [word for each in cluster.members if each != first for word in ("--other-pid", str(each.pid))]
    idle = [each for each in cluster.members if each not in [caller for caller, _ in callers]]
    with _workers(load, idle, slow, "echo") as pids, _machine(cluster.pids + cluster.nats_pids + pids) as machine:
        runs = _run_all(commands)
    jobs = sum(run["jobs"] for run in runs)
    nats, *others = runs[0]["others_us"]
    brokers_us = sum(run["broker_us"] * run["jobs"] for run in runs) + sum(others) * runs[0]["jobs"]
    return {
        "rate": sum(run["rate"] for run in runs),
        "p50_us": median(run["p50_us"] for run in runs),
        "brokers_us": brokers_us / jobs,
        "nats_us": nats * runs[0]["jobs"] / jobs,
        **machine,
    }


@contextmanager
def _workers(
    load: Sequence[str], members: Sequence[Member], options: Sequence[str], service: str
) -> Iterator[list[int]]:
    """Start a process with a worker at each of these brokers. Yields their ids."""
    with ExitStack() as stack:
        pids = []
        for each in members:
            words = [*load, *_calls(each.url, each.url, 0, ()), *options, "--service", service]
            process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE)
            stack.callback(process.wait)
            stack.callback(process.kill)
            pids.append(process.pid)
        yield pids


# ---------------------------------------------------------------- background jobs


def _background(
    cluster: Cluster, load: Sequence[str], submit: Sequence[str], times: Sequence[str], delay_ms: int
) -> Figures:
    """Callers enqueue at each broker while workers at each broker run the jobs: jobs a second from the first enqueue to
    the last outcome."""
    options = ("--workers", "1", "--size", "100", "--delay-ms", str(delay_ms))
    commands = [_submits(submit, each, times) for each in cluster.members]
    measured = cluster.pids + cluster.nats_pids
    with _workers(load, cluster.members, options, "bench") as pids, _machine(measured + pids) as machine:
        before, start = {pid: _cpu(pid) for pid in measured}, time.monotonic()
        runs = _run_all(commands)
        with Client(cluster.members[0].url, connect_timeout=LIMIT) as client:
            wait_until(lambda: _is_drained(client), "all jobs are done", LIMIT)
            took = time.monotonic() - start
            counts = client.job_counts()
    used = {pid: _cpu(pid) - before[pid] for pid in measured}
    if counts.undone:
        raise NotMeasured(f"{counts.undone} jobs are not done")
    jobs = counts.done
    return {
        "rate": jobs / took,
        "acknowledged": sum(run["rate"] for run in runs),
        "p50_us": median(run["p50_us"] for run in runs),
        "p99_us": max(run["p99_us"] for run in runs),
        "brokers_us": sum(used[pid] for pid in cluster.pids) * 1e6 / jobs,
        "nats_us": sum(used[pid] for pid in cluster.nats_pids) * 1e6 / jobs,
        **machine,
    }


def _submits(submit: Sequence[str], member: Member, times: Sequence[str]) -> list[str]:
    load = ("--window", str(CALLERS), "--size", "100", "--broker-pid", str(member.pid))
    return [*submit, "--mode", "native", "--frontend", member.url, *load, *times]


def _is_drained(client: Client) -> bool:
    counts = client.job_counts()
    return not counts.waiting and not counts.running and not counts.delayed


# ---------------------------------------------------------------- adoption


def _measure_adoption(submit: Sequence[str], jobs: int) -> Figures:
    """Kill a broker with this many waiting jobs. Returns the seconds until others own all of them, and their CPU."""
    with running_cluster(3) as cluster:
        first, *others = cluster.members
        while first.owned()[1] < jobs:
            _run_all([_submits(submit, first, ("--warmup", "0", "--seconds", "0.3"))])
        lost = first.owned()[1]
        before = sum(_cpu(each.pid) for each in others)
        first.process.kill()
        first.process.wait()
        start = time.monotonic()

        initial = sum(each.owned()[0] for each in others)
        began: list[float] = []

        def is_adopted() -> bool:
            found = [each.owned() for each in others]
            shards = sum(number for number, _ in found)
            if shards > initial and not began:
                began.append(time.monotonic())
            return shards == SHARDS and sum(held for _, held in found) == lost

        wait_until(is_adopted, "the jobs are adopted", LIMIT, 0.02)
        end = time.monotonic()
        used = sum(_cpu(each.pid) for each in others) - before
    return {"jobs": lost, "seconds": end - start, "moving": end - began[0], "cpu_us": used * 1e6 / lost}


# ---------------------------------------------------------------- the machine


def _cpu(pid: int) -> float:
    process = read_process(pid)
    return process.user + process.system


@contextmanager
def _machine(pids: Sequence[int]) -> Iterator[Figures]:
    """Yield a dict that has, after the block, the cores that programs other than these and the finished loads used."""
    told: Figures = {}
    before, used, loads = take_reading(0), sum(map(_cpu, pids)), _children()
    yield told
    after = take_reading(0)
    seconds = after.at - before.at
    busy = (os.cpu_count() or 1) * seconds - (after.idle - before.idle) - (after.steal - before.steal)
    ours = sum(map(_cpu, pids)) - used + _children() - loads + after.own - before.own
    told["foreign_cores"] = max(0.0, (busy - ours) / seconds)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _progress(figures: Figures) -> str:
    return "  ".join(f"{name} {value:,.2f}" for name, value in figures.items())


# ---------------------------------------------------------------- the table


def cluster_table(found: ClusterFigures) -> str:
    """Return the medians; ratios of CPU are to a call within a broker of the cluster."""
    return "\n\n".join("\n".join(lines) for lines in (_calls_lines(found), _store_lines(found), _growth_lines(found)))


def _middle(runs: Sequence[Figures], name: str) -> float:
    return median(run[name] for run in runs)


def _calls_lines(found: ClusterFigures) -> list[str]:
    rows: list[Sequence[str]] = [
        (
            "in flight",
            "calls",
            "calls/s",
            "p50 µs",
            "p99 µs",
            "caller's broker",
            "worker's broker",
            "NATS",
            "ratios",
            "",
            "foreign",
        )
    ]
    for (place, window), runs in found.calls.items():
        local = _middle(found.calls["local", window], "first_us")
        first, second, nats = (_middle(runs, name) for name in ("first_us", "second_us", "nats_us"))
        is_hop = place == "hop"
        ratios = f"{first / local:.2f}, {second / local:.2f}" if is_hop else f"{first / local:.2f}"
        goal = HOP_TARGET if is_hop and window > 1 else None
        rows.append(
            (
                str(window),
                place,
                f"{_middle(runs, 'rate'):,.0f}",
                f"{_middle(runs, 'p50_us'):,.0f}",
                f"{_middle(runs, 'p99_us'):,.0f}",
                f"{first:.2f}",
                f"{second:.2f}" if is_hop else "",
                f"{nats:.2f}" if is_hop else "",
                ratios,
                verdict(max(first, second) / local, goal),
                _foreign(runs),
            )
        )
    title = "cluster: calls of 100 bytes, native, 8 workers of capacity 16; CPU µs a call (alone: without a cluster)"
    return block(title, rows)


def _store_lines(found: ClusterFigures) -> list[str]:
    rows: list[Sequence[str]] = [
        ("log", "jobs/s", "acknowledged/s", "p50 µs", "p99 µs", "brokers CPU µs/job", "NATS CPU µs/job", "foreign")
    ]
    for name, runs in found.background.items():
        rows.append(
            (
                name,
                f"{_middle(runs, 'rate'):,.0f}",
                f"{_middle(runs, 'acknowledged'):,.0f}",
                f"{_middle(runs, 'p50_us'):,.0f}",
                f"{_middle(runs, 'p99_us'):,.0f}",
                f"{_middle(runs, 'brokers_us'):.1f}",
                f"{_middle(runs, 'nats_us'):.1f}",
                _foreign(runs),
            )
        )
    callers = f"3 brokers, {SHARDS} shards, {CALLERS} callers and {SLOTS} slots at each"
    return block(f"cluster: background jobs of 100 bytes, {callers}; p50 and p99 of the acknowledgement", rows)


def _growth_lines(found: ClusterFigures) -> list[str]:
    rows: list[Sequence[str]] = [
        ("load", "brokers", "jobs/s", "growth", "", "brokers CPU µs/job", "NATS CPU µs/job", "foreign")
    ]
    for (name, brokers), runs in sorted(found.growth.items()):
        ratio = _middle(runs, "rate") / _middle(found.growth[name, 1], "rate")
        rows.append(
            (
                name,
                str(brokers),
                f"{_middle(runs, 'rate'):,.0f}",
                f"{ratio:.2f}",
                verdict(ratio, GROWTH_TARGET if brokers > 1 else None, at_least=True),
                f"{_middle(runs, 'brokers_us'):.1f}",
                f"{_middle(runs, 'nats_us'):.1f}",
                _foreign(runs),
            )
        )
    told = found.adoption
    adopted = (
        f"adoption: {told['jobs']:,.0f} jobs of a broker that is killed are owned by two others "
        f"{told['seconds']:.2f} s later, {told['seconds'] - ADOPT_AFTER:.2f} s without cluster_adopt_after, "
        f"{told['moving']:.2f} s after the first shard; CPU {told['cpu_us']:.1f} µs a job"
    )
    title = f"cluster: growth with {SLOTS} slots of {DELAY_MS} ms at each broker, R1"
    return [*block(title, rows), "", adopted]


def _foreign(runs: Sequence[Figures]) -> str:
    return f"{_middle(runs, 'foreign_cores'):.2f}"
