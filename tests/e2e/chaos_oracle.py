"""Checks the state after chaos, by every table there is: jobs, quarantine, services, counters, executions, results.

An oracle that only counts done jobs would not notice wrong rows in another table.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

from chaos_services import result_of
from survivor import Survivor

from dragoman import AsyncClient

UNWRITTEN = 5.0  # seconds that an attempt may be on its way to disk, or to the hands that do it, on a busy machine
DONE = ("ended", "done", False)
PERFECT_ZEROS = (
    "dragoman_jobs_present",
    "dragoman_queue_depth",
    "dragoman_jobs_running",
    "dragoman_jobs_delayed",
    "dragoman_payload_bytes",
    "dragoman_store_unavailable",
    "dragoman_internal_errors_total",
    "dragoman_bad_messages_total",
    "dragoman_outcomes_erased_total",
)


Executions = dict[tuple[str, int], list[float]]


def executions(file: Path) -> Executions:
    """Return the start times of each attempt by a worker, by job and number."""
    found: Executions = {}
    for line in file.read_text().splitlines():
        job, attempt, moment = line.split()
        found.setdefault((job, int(attempt)), []).append(float(moment))
    return found


def judge_jobs(setup: Survivor, jobs: dict[str, bytes], poison: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """I3, I22: each of these jobs (payloads by id) exists once and is done; the only others are poison, in quarantine.
    Returns the views of the done jobs."""
    listed = list(setup.jobs())
    views = {view["id"]: view for view in listed}
    assert len(views) == len(listed), "a job is listed once"
    for bad in poison:
        assert views.pop(bad)["quarantined"], f"{bad} is in quarantine"
    lost, strange = jobs.keys() - views.keys(), views.keys() - jobs.keys()
    assert not lost, f"{len(lost)} that were acknowledged are gone"
    assert not strange, f"{len(strange)} are there that nobody handed in, or twice"
    odd = [view for view in views.values() if (view["state"], view["outcome"], view["quarantined"]) != DONE]
    assert not odd, f"{len(odd)} are not done, such as {odd[:3]}"
    assert sorted(view["id"] for view in setup.jobs(quarantined="true")) == sorted(poison)
    assert not [each for state in ("waiting", "delayed", "running") for each in setup.jobs(state=state)]
    for service in setup.get("/v1/services")["services"]:
        assert (service["waiting"], service["delayed"], service["running"]) == (0, 0, 0), service
    return views


def judge_counters(setup: Survivor, kept: int) -> dict[str, float]:
    """I17: counters of this run of the broker only, because they end with the process."""
    told = setup.numbers()
    came = told["dragoman_jobs_accepted_total"] + told["dragoman_jobs_restored_total"]
    assert came == told["dragoman_jobs_total"] + told["dragoman_jobs_present"], told
    odd = {name: told[name] for name in PERFECT_ZEROS if told.get(name)}
    assert not odd, odd
    assert (told["dragoman_outcomes_kept"], told["dragoman_ready"]) == (kept, 1)
    return told


def judge_executions(views: dict[str, dict[str, Any]], seen: Executions, kills: list[float]) -> None:
    """I8: only dispatched attempts were executed. An attempt is stored just after it was dispatched; if the broker dies
    in between, it is dispatched again under the same number. So a broker's death explains each repetition."""
    given = {id: len(view["attempts"]) + 1 for id, view in views.items()}  # the last one was done
    assert {job for job, _ in seen} == views.keys(), "what is done was executed, and nothing else"
    beyond = [(job, attempt) for job, attempt in seen if attempt > given[job]]
    assert not beyond, f"{len(beyond)} executions of attempts that nobody handed out"
    pairs = (pair for moments in seen.values() for pair in pairwise(sorted(moments)))
    odd = [(first, again) for first, again in pairs if not any(_explains(kill, first, again) for kill in kills)]
    assert not odd, f"{len(odd)} attempts were executed twice, though no broker died then"


def _explains(kill: float, first: float, again: float) -> bool:
    """Return whether a broker's death explains a repeated attempt: it was new then, or on its way to its worker."""
    return kill < again and abs(kill - first) < UNWRITTEN


def judge_attempts(views: dict[str, dict[str, Any]], most: int) -> None:
    """Only deaths cost attempts, and each at most those held by the dead process: `most` in all."""
    attempts = [each for view in views.values() for each in view["attempts"] if each["outcome"] != "done"]
    others = [each for each in attempts if each["outcome"] != "lost"]
    assert not others, f"{len(others)} attempts were not lost, such as {others[:3]}"
    assert len(attempts) <= most, f"{len(attempts)} attempts were lost"


def judge_results(setup: Survivor, jobs: dict[str, bytes]) -> None:
    """I7: each result was computed for its own job."""
    found = asyncio.run(_results(setup.native, list(jobs)))
    wrong = [id for id, payload in jobs.items() if found[id] != result_of(id, payload)]
    assert not wrong, f"{len(wrong)} results are another job's"


async def _results(native: str, ids: list[str]) -> dict[str, bytes]:
    async with AsyncClient(native) as client:
        return dict(zip(ids, await asyncio.gather(*(client.result(id, timeout=60) for id in ids)), strict=True))
