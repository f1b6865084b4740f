"""Judges what chaos has left, by every table there is: jobs, quarantine, services, counters, executions, results.

An oracle that only counts what is done stays content while another table fills with what should not be there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from chaos_services import result_of
from survivor import Survivor

from dragoman import AsyncClient

DONE = ("ended", "done", False)
PERFECT_ZEROS = (
    "dragoman_jobs_present",
    "dragoman_queue_depth",
    "dragoman_jobs_running",
    "dragoman_jobs_delayed",
    "dragoman_payload_bytes",
    "dragoman_diary_problem",
    "dragoman_internal_errors_total",
    "dragoman_bad_messages_total",
    "dragoman_outcomes_erased_total",
)


def executions(file: Path) -> Counter[tuple[str, int]]:
    """How often each attempt of each job was seen by a worker."""
    words = (line.split() for line in file.read_text().splitlines())
    return Counter((job, int(attempt)) for job, attempt, _ in words)


def judge_jobs(house: Survivor, jobs: dict[str, bytes], poison: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """I3, I22: each of these (payloads by id) is there once and done, and nothing is there besides but what is poison,
    and that in quarantine. Returns the views of those that are done."""
    listed = list(house.jobs())
    views = {view["id"]: view for view in listed}
    assert len(views) == len(listed), "a job is listed once"
    for bad in poison:
        assert views.pop(bad)["quarantined"], f"{bad} is in quarantine"
    assert views.keys() == jobs.keys(), "what was acknowledged is there, and nothing else"
    odd = [view for view in views.values() if (view["state"], view["outcome"], view["quarantined"]) != DONE]
    assert not odd, f"{len(odd)} are not done, such as {odd[:3]}"
    assert sorted(view["id"] for view in house.jobs(quarantined="true")) == sorted(poison)
    assert not [each for state in ("waiting", "delayed", "running") for each in house.jobs(state=state)]
    for service in house.get("/v1/services")["services"]:
        assert (service["waiting"], service["delayed"], service["running"]) == (0, 0, 0), service
    return views


def judge_counters(house: Survivor, kept: int) -> dict[str, float]:
    """I17: of this run of the broker alone, for counts end with their process."""
    told = house.numbers()
    came = told["dragoman_jobs_accepted_total"] + told["dragoman_jobs_restored_total"]
    assert came == told["dragoman_jobs_total"] + told["dragoman_jobs_present"]
    assert {name: told.get(name, 0.0) for name in PERFECT_ZEROS} == dict.fromkeys(PERFECT_ZEROS, 0.0)
    assert told["dragoman_outcomes_kept"] == kept
    assert told["dragoman_ready"] == 1
    return told


def judge_executions(views: dict[str, dict[str, Any]], seen: Counter[tuple[str, int]], most_unwritten: int) -> None:
    """I8: nothing was executed that was not handed out. An attempt is written down just after it was handed out, so a
    broker that dies in between hands it out again under the same number: at most `most_unwritten` times in all."""
    given = {id: len(view["attempts"]) + 1 for id, view in views.items()}  # the last one was done
    assert {job for job, _ in seen} == views.keys(), "what is done was executed, and nothing else"
    assert not [(job, attempt) for job, attempt in seen if attempt > given[job]]
    unwritten = sum(seen.values()) - len(seen)
    assert unwritten <= most_unwritten, f"{unwritten} executions without an attempt of their own"


def judge_attempts(views: dict[str, dict[str, Any]], most: int) -> None:
    """Only deaths cost attempts, and each no more than was held by whoever died: `most` in all."""
    attempts = [each for view in views.values() for each in view["attempts"]]
    others = [each for each in attempts if each["outcome"] != "lost"]
    assert not others, f"{len(others)} attempts were not lost, such as {others[:3]}"
    assert len(attempts) <= most, f"{len(attempts)} attempts were lost"


def judge_results(house: Survivor, jobs: dict[str, bytes]) -> None:
    """I7: each result was computed for its own job."""
    found = asyncio.run(_results(house.native, list(jobs)))
    assert [id for id, payload in jobs.items() if found[id] != result_of(id, payload)] == []


async def _results(native: str, ids: list[str]) -> dict[str, bytes]:
    async with AsyncClient(native) as client:
        return dict(zip(ids, await asyncio.gather(*(client.result(id, timeout=60) for id in ids)), strict=True))
