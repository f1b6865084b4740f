"""Command line of the benchmarks: selects scenarios, durations and the file for the figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zmq

from bench.brokers import (
    CONTROLLER_COMMAND,
    DRAGOMAN_COMMAND,
    HTTP_COMMAND,
    HTTP_ECHO_COMMAND,
    INTERPRETED,
    MEMODB_COMMAND,
    NATIVE_COMMAND,
    PARKING_COMMAND,
    PLAIN_ECHO_COMMAND,
    PLAIN_SP_COMMAND,
    POWERHOSE_COMMAND,
    PRODUCT,
    PROXY_COMMAND,
    SP_ECHO_COMMAND,
    Kind,
    choose,
)
from bench.cluster import ADOPTED_JOBS, cluster_table, measure_cluster
from bench.compare import (
    CALLED_BACK_SHAPE,
    ECHO_SHAPES,
    HTTP_SHAPES,
    LARGE_SHAPES,
    MEMODB_LARGE_SHAPES,
    MEMODB_SHAPES,
    NATIVE_SHAPES,
    Comparison,
    Plan,
    compare,
)
from bench.core import run as run_core
from bench.dashboard import dashboard_table, measure_dashboard
from bench.durability import compare_stores, measure_restart, restart_table, store_table
from bench.first_paint import first_paint_table, measure_first_paint
from bench.flood import flood_table
from bench.flood import run as run_flood
from bench.generator import (
    CALLED_BACK_GENERATOR,
    HTTP_GENERATOR,
    Generator,
    Shape,
    find_generator,
    find_sp_generator,
    find_submit_generator,
)
from bench.idle import measure_idle
from bench.listeners import DURABLE_SHAPES, durable_table, find_others, one_sync_us
from bench.listeners import OURS as DURABLE_OURS
from bench.measure import NotMeasured
from bench.parked import PARKED, measure_parked
from bench.queues.compare import Standing, compare_queues
from bench.queues.running import Effort
from bench.queues.systems import PAIRS, SYSTEMS, System
from bench.queues.table import queues_table, tasks_table
from bench.secure import (
    CALL_SHAPES,
    HANDSHAKE_SHAPES,
    NATIVE_GENERATOR,
    handshakes_of,
    native_kinds,
    secure_kinds,
    secure_table,
)
from bench.secure import GENERATOR as SECURE_GENERATOR
from bench.secure import NATIVE_SHAPES as SECURE_NATIVE_SHAPES
from bench.secure_load import secrets
from bench.table import CEILING, SUBJECT, called_back_table, comparison_table, core_table, memory_table, parked_table

ECHO_TARGETS = {Shape(workers=64, window=100, size=100): 3.0}
LARGE_TARGETS = {LARGE_SHAPES[0]: 1.5}
NATIVE_TARGETS = {NATIVE_SHAPES[-1]: 2.0}
MEMODB_TARGETS = {MEMODB_SHAPES[0]: 3.0}
MEMODB_LARGE_RATE = 0.5
EXCHANGES = 2  # a job is two exchanges, the caller's and the worker's; an echo is one
PLAIN_SP = Kind("sp echo", "echo", PLAIN_SP_COMMAND)
SP_FLOOR = Kind("sp floor", "echo", SP_ECHO_COMMAND)
PLAIN_ECHO = Kind("asyncio echo", "raw", (*PLAIN_ECHO_COMMAND, str(MEMODB_LARGE_SHAPES[0].size)))
NATIVE = Kind(SUBJECT, "native", NATIVE_COMMAND)
NO_LADDERS = Kind("no ladders", "native", (*NATIVE_COMMAND, "--no-ladders"))
LADDERS_TARGETS = {NATIVE_SHAPES[-1]: 1.02}
HTTP = Kind(SUBJECT, "http", HTTP_COMMAND)
HTTP_ECHO = Kind("Starlette", "httpecho", HTTP_ECHO_COMMAND)
HTTP_RATE = 0.5
MEMODB = Kind(SUBJECT, "memodb", MEMODB_COMMAND)
CALLED_BACK = {  # messages and new connections of one job there, including the caller's two messages
    Kind("PingPong", "pingpong", DRAGOMAN_COMMAND): (4, 0),
    Kind("Powerhose", "powerhose", POWERHOSE_COMMAND): (6, 0),
    Kind("Controller", "controller", CONTROLLER_COMMAND): (8, 3),
}
IDLE_WORKERS = 2000
PARKED_REQUESTS = 20_000
QUEUES_SHARE = 2 / 3  # fraction of a run's seconds: there are many systems, and each takes time to start
LARGE_ROUNDS = 2  # for each round of small jobs: the kernel's share of large ones varies by half from run to run


def main() -> int:
    """Run the chosen scenarios one after the other. Returns 1 if one of them could not be measured."""
    options = _options()
    _allow_many_files()
    bench = Bench(options)
    print(bench.heading, end="\n\n", flush=True)
    failed = False
    for name in options.only or SCENARIOS:
        for scenario in SCENARIOS[name]:
            try:
                print(scenario(bench), end="\n\n", flush=True)
            except NotMeasured as error:
                failed = True
                print(f"{scenario.__name__}: NOT MEASURED: {error}\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(bench.record, indent=1) + "\n")
    tell(f"took {time.monotonic() - bench.start:.0f} s")
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Dragoman beside bare servers.")
    parser.add_argument("--quick", action="store_true", help="one short run each: a first impression, not a proof")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(SCENARIOS), help=" ".join(SCENARIOS))
    parser.add_argument("--seconds", type=float, help="measured seconds of each run (3; quick: 1)")
    parser.add_argument("--repeats", type=int, help="rounds (3; quick: 1)")
    parser.add_argument(
        "--idle-workers", type=int, help="of the scenarios dashboard and first_paint (10000; quick: 1000)"
    )
    parser.add_argument("--outcomes", type=int, help="kept ones, of the same (1000000; quick: 20000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure, of every attempt, to FILE")
    parser.add_argument(
        "--broker",
        metavar="COMMAND",
        help="measure this PingPong broker instead; {frontend} and {backend} in it become port numbers",
    )
    parser.add_argument(
        "--interpreted", action="store_true", help="measure the interpreted sources instead of the compiled product"
    )
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 1.0 if options.quick else 3.0
    if options.repeats is None:
        options.repeats = 1 if options.quick else 3
    if options.seconds <= 0 or options.repeats < 1:
        parser.error("--seconds must be over 0 and --repeats at least 1")
    return options


def _allow_many_files() -> None:
    """Raise the limit of open files: every idle worker is an open file here and in the broker, which inherits the
    limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Bench:
    """One run of the benchmarks: state that all scenarios share, and the record of their figures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.start = time.monotonic()
        self.quick: bool = options.quick
        self.repeats: int = options.repeats
        self.idle_workers: int = options.idle_workers or (1_000 if options.quick else 10_000)
        self.outcomes: int = options.outcomes or (20_000 if options.quick else 1_000_000)
        self.generator: Generator = find_generator()
        self.plan = Plan(
            seconds=options.seconds,
            warmup=0.3 if options.quick else 0.5,
            retry_seconds=4.0 if options.quick else 60.0,
        )
        command = tuple(shlex.split(options.broker)) if options.broker else DRAGOMAN_COMMAND
        self.kinds = (Kind(CEILING, "proxy", PROXY_COMMAND), Kind(SUBJECT, "pingpong", command))
        version = choose(INTERPRETED if options.interpreted else PRODUCT)
        self.heading = (
            f"{version} beside zmq.proxy (libzmq {zmq.zmq_version()} through pyzmq {zmq.__version__})\n"
            f"load: {self.generator.title}\n"
            f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; "
            f"{self.plan.seconds:g} s a run, medians over clean runs"
        )
        if options.broker:
            self.heading += f"\nPingPong: NOT DRAGOMAN but, under its name: {options.broker}"
        self.record: dict[str, Any] = {"heading": self.heading.splitlines()}


def echo(bench: Bench) -> str:
    """100-byte jobs to an echo service."""
    return _compare(bench, "echo", "echo, jobs of 100 bytes", ECHO_SHAPES, ECHO_TARGETS, bench.repeats)


def large(bench: Bench) -> str:
    """Jobs of 1 MiB."""
    rounds = bench.repeats * LARGE_ROUNDS
    return _compare(bench, "large", "echo, jobs of 1 MiB", LARGE_SHAPES, LARGE_TARGETS, rounds)


def _compare(
    bench: Bench, name: str, title: str, shapes: Sequence[Shape], targets: dict[Shape, float], rounds: int
) -> str:
    comparisons = compare(shapes, targets, bench.kinds, bench.generator, bench.plan, rounds, tell)
    bench.record[name] = [_record(comparison, CEILING) for comparison in comparisons]
    return comparison_table(title, comparisons, CEILING)


def native_echo(bench: Bench) -> str:
    """100-byte jobs over the native dialect, whose workers hold 16 jobs at once, beside zmq.proxy."""
    if not bench.generator.speaks_native:
        raise NotMeasured(f"its load generator exists in C only, and could not be built: {bench.generator.title}")
    kinds = (bench.kinds[0], NATIVE)
    comparisons = compare(NATIVE_SHAPES, NATIVE_TARGETS, kinds, bench.generator, bench.plan, bench.repeats, tell)
    bench.record["native_echo"] = [_record(comparison, CEILING) for comparison in comparisons]
    return comparison_table("native: echo, jobs of 100 bytes, workers of capacity 16", comparisons, CEILING)


def ladders(bench: Bench) -> str:
    """100-byte jobs over the native dialect, beside the same broker without ladders: the cost of recording messages."""
    if not bench.generator.speaks_native:
        raise NotMeasured(f"its load generator exists in C only, and could not be built: {bench.generator.title}")
    kinds, shapes = (NO_LADDERS, NATIVE), NATIVE_SHAPES[-1:]
    comparisons = compare(shapes, LADDERS_TARGETS, kinds, bench.generator, bench.plan, bench.repeats, tell)
    bench.record["ladders"] = [_record(comparison, NO_LADDERS.name) for comparison in comparisons]
    return comparison_table(
        "ladders: native echo beside the same broker with --no-ladders", comparisons, NO_LADDERS.name
    )


def http(bench: Bench) -> str:
    """100-byte calls over HTTP to native workers, beside a bare Starlette application that echoes bodies."""
    kinds, generator = (HTTP_ECHO, HTTP), HTTP_GENERATOR
    comparisons = compare(HTTP_SHAPES, {}, kinds, generator, bench.plan, bench.repeats, tell)
    bench.record["http"] = [_record(comparison, HTTP_ECHO.name) for comparison in comparisons]
    title = "HTTP: calls of 100 bytes to native workers, beside a bare Starlette echo on uvicorn"
    return comparison_table(f"{title} (load: {generator.title})", comparisons, HTTP_ECHO.name, HTTP_RATE)


def memodb_echo(bench: Bench) -> str:
    """100-byte jobs over MemoDB, beside a bare SP server that echoes messages: a job is two such exchanges."""
    title = "MemoDB: echo, jobs of 100 bytes, beside a bare SP echo server"
    return _compare_memodb(bench, "memodb_echo", title, MEMODB_SHAPES[:1], MEMODB_TARGETS, PLAIN_SP)


def memodb_floor(bench: Bench) -> str:
    """100-byte jobs over MemoDB, beside an SP echo server on Dragoman's own streams and loop."""
    title = "MemoDB: echo, jobs of 100 bytes, beside an SP echo server on our own streams and loop"
    return _compare_memodb(bench, "memodb_floor", title, MEMODB_SHAPES, {}, SP_FLOOR)


def memodb_large(bench: Bench) -> str:
    """Jobs of 1 MiB over MemoDB, beside a plain asyncio server that echoes the callers' bytes."""
    title = "MemoDB: echo, jobs of 1 MiB, beside a plain asyncio echo server"
    return _compare_memodb(bench, "memodb_large", title, MEMODB_LARGE_SHAPES, {}, PLAIN_ECHO, MEMODB_LARGE_RATE)


def _compare_memodb(
    bench: Bench,
    name: str,
    title: str,
    shapes: Sequence[Shape],
    targets: dict[Shape, float],
    ceiling: Kind,
    rate_target: float | None = None,
) -> str:
    generator = find_sp_generator()
    comparisons = compare(shapes, targets, (ceiling, MEMODB), generator, bench.plan, bench.repeats, tell)
    bench.record[name] = [_record(comparison, ceiling.name) for comparison in comparisons]
    exchanges = EXCHANGES if ceiling.mode == "echo" else 1
    return comparison_table(f"{title} (load: {generator.title})", comparisons, ceiling.name, rate_target, exchanges)


def memodb_memory(bench: Bench) -> str:
    """Memory per parked request."""
    costs = []
    for name in PARKED:
        costs.append(measure_parked(Kind(SUBJECT, "memodb", PARKING_COMMAND), name, PARKED_REQUESTS))
        tell(f"{PARKED_REQUESTS} parked requests  {name:<15}  {costs[-1].kib_each:.2f} KiB each")
    bench.record["memodb_memory"] = [asdict(cost) | {"kib_each": cost.kib_each} for cost in costs]
    return parked_table(costs)


def called_back(bench: Bench) -> str:
    """100-byte jobs through workers to which the broker connects, beside PingPong's, which keep a connection."""
    kinds, generator = tuple(CALLED_BACK), CALLED_BACK_GENERATOR
    [comparison] = compare([CALLED_BACK_SHAPE], {}, kinds, generator, bench.plan, bench.repeats, tell)
    ratios = {kind.name: comparison.cpu_ratio(kind.name, kinds[0].name) for kind in kinds[1:]}
    bench.record["called_back"] = [{"cpu_ratio": ratios} | _measured(comparison)]
    shape = f"{CALLED_BACK_SHAPE.workers} workers, {CALLED_BACK_SHAPE.window} in flight"
    title = f"workers that are called back: echo, jobs of 100 bytes, {shape} (load: {generator.title})"
    return called_back_table(title, comparison, {kind.name: costs for kind, costs in CALLED_BACK.items()})


def queues(bench: Bench) -> str:
    """Jobs from a client program through a broker to workers, beside other task queues."""
    return queues_table(_compare_queues(bench, "queues", SYSTEMS))


def tasks(bench: Bench) -> str:
    """The same with typed tasks beside jobs of bytes, in child processes, threads and coroutines."""
    return tasks_table(_compare_queues(bench, "tasks", [each for pair in PAIRS for each in pair]))


def _compare_queues(bench: Bench, name: str, systems: Sequence[System]) -> list[Standing]:
    effort = Effort(
        warmup=bench.plan.warmup, seconds=bench.plan.seconds * QUEUES_SHARE, call_seconds=0.5 if bench.quick else 1.0
    )
    standings = compare_queues(systems, effort, bench.plan, bench.repeats, tell)
    bench.record[name] = [
        {
            "system": each.system.name,
            "settings": each.system.settings,
            "skipped": each.skipped,
            "medians": asdict(each.figures) if each.runs else None,
            "attempts": [asdict(run) for run in each.attempts],
        }
        for each in standings
    ]
    return standings


def durable(bench: Bench) -> str:
    """Enqueued background jobs, each acknowledged: with a store and without, and beside other servers that sync."""
    generator = find_submit_generator()
    others, missing = find_others()
    kinds = (*DURABLE_OURS, *others)
    sync_us = one_sync_us()
    comparisons = compare(DURABLE_SHAPES, {}, kinds, generator, bench.plan, bench.repeats, tell)
    bench.record["durable"] = {
        "sync_us": sync_us,
        "missing": missing,
        "measured": [_measured(comparison) for comparison in comparisons],
    }
    return durable_table(comparisons, generator.title, sync_us, missing)


def _record(comparison: Comparison, ceiling: str) -> dict[str, Any]:
    return {"cpu_ratio": comparison.cpu_ratio(SUBJECT, ceiling)} | _measured(comparison)


def _measured(comparison: Comparison) -> dict[str, Any]:
    return {
        "shape": asdict(comparison.shape),
        "target": comparison.target,
        "medians": {name: asdict(comparison.figures(name)) for name in comparison.runs},
        "attempts": {name: [asdict(run) for run in runs] for name, runs in comparison.attempts.items()},
    }


def memory(bench: Bench) -> str:
    """Memory per idle worker connection."""
    costs = []
    for kind in bench.kinds:
        costs.append(measure_idle(kind, IDLE_WORKERS))
        tell(f"{IDLE_WORKERS} idle workers  {kind.name:<9}  {costs[-1].kib_each:.2f} KiB each")
    bench.record["memory"] = [asdict(cost) | {"kib_each": cost.kib_each} for cost in costs]
    return memory_table(costs)


def core(bench: Bench) -> str:
    """CPU per job of the pure core, with growing numbers of idle workers and waiting jobs."""
    costs = run_core(tell, quick=bench.quick)
    bench.record["core"] = [asdict(cost) for cost in costs]
    return core_table(costs)


def flood(bench: Bench) -> str:
    """Calls of one owner while others have 100,000 jobs waiting for the same service."""
    figures = run_flood(tell, quick=bench.quick)
    bench.record["flood"] = [asdict(each) for each in figures]
    return flood_table(figures)


def dashboard(bench: Bench) -> str:
    """Full native load with many idle workers and kept outcomes, without and with three readers of snapshots."""
    if not bench.generator.speaks_native:
        raise NotMeasured(f"its load generator exists in C only, and could not be built: {bench.generator.title}")
    plan = bench.plan
    cost = measure_dashboard(
        bench.generator, bench.idle_workers, bench.outcomes, plan.seconds, plan.warmup, bench.repeats, tell
    )
    bench.record["dashboard"] = [asdict(cost)]
    return dashboard_table(cost)


def first_paint(bench: Bench) -> str:
    """Pages of the dashboard in Chromium, on a broker with many idle workers and kept outcomes."""
    paints, kept = measure_first_paint(bench.idle_workers, bench.outcomes, bench.repeats, tell)
    bench.record["first_paint"] = [asdict(each) for each in paints]
    return first_paint_table(paints, bench.idle_workers, kept)


def secure(bench: Bench) -> str:
    """Calls and handshakes over plain connections, CURVE and TLS, beside zmq.proxy without and with CURVE."""
    with secure_kinds() as kinds:
        calls = compare(CALL_SHAPES, {}, kinds, SECURE_GENERATOR, bench.plan, bench.repeats, tell)
        kinds = handshakes_of(kinds)
        handshakes = compare(HANDSHAKE_SHAPES, {}, kinds, SECURE_GENERATOR, bench.plan, bench.repeats, tell)
        kinds = native_kinds(secrets())
        native = compare(SECURE_NATIVE_SHAPES, {}, kinds, NATIVE_GENERATOR, bench.plan, bench.repeats, tell)
    bench.record["secure"] = [_measured(comparison) for comparison in (*calls, *native, *handshakes)]
    load = SECURE_GENERATOR.title
    return "\n\n".join(
        (
            secure_table(f"PingPong: echo, plain, CURVE and TLS (load: {load})", calls, "job"),
            secure_table(f"native: echo, plain, CURVE and TLS (load: {NATIVE_GENERATOR.title})", native, "job"),
            secure_table("handshakes, one connection at a time", handshakes, "handshake"),
        )
    )


def diary(bench: Bench) -> str:
    """Background jobs, from submit to acknowledgement, beside a bare thread that writes the same rows."""
    found = compare_stores(bench.plan.seconds, bench.repeats, tell)
    bench.record["diary"] = [{"callers": callers} | runs for callers, runs in found.items()]
    return store_table(found)


def restart(bench: Bench) -> str:
    """A broker's start with a million waiting jobs."""
    figures = measure_restart(bench.quick, tell)
    bench.record["restart"] = [figures]
    return restart_table(figures)


def cluster(bench: Bench) -> str:
    """Brokers of a cluster on real NATS servers: calls, background jobs, growth and adoption."""
    plan, jobs = bench.plan, ADOPTED_JOBS // 10 if bench.quick else ADOPTED_JOBS
    found = measure_cluster(bench.generator, plan.seconds, plan.warmup, bench.repeats, jobs, tell)
    bench.record["cluster"] = found.record()
    return cluster_table(found)


def tell(line: str) -> None:
    """Print progress to standard error, apart from the tables."""
    print(line, file=sys.stderr, flush=True)


SCENARIOS: dict[str, tuple[Callable[[Bench], str], ...]] = {
    "echo": (echo,),
    "large": (large,),
    "native": (native_echo,),
    "ladders": (ladders,),
    "http": (http,),
    "memory": (memory,),
    "core": (core,),
    "flood": (flood,),
    "dashboard": (dashboard,),
    "first_paint": (first_paint,),
    "secure": (secure,),
    "memodb": (memodb_echo, memodb_floor, memodb_large, memodb_memory),
    "called_back": (called_back,),
    "queues": (queues,),
    "tasks": (tasks,),
    "durable": (durable,),
    "diary": (diary,),
    "restart": (restart,),
    "cluster": (cluster,),
}

if __name__ == "__main__":
    sys.exit(main())
