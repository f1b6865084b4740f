"""The sentence about a service."""

from __future__ import annotations

from typing import Any

from case_tables import check_every_row
from dragoman.dashboard.says import says
from dragoman.operations.schemas import LimitsView, ServiceView

BUSY = {"waiting": 442, "workers": 48, "arrived": 41.0, "done": 22.0}


def row(**fields: Any) -> ServiceView:
    zeros = {
        "ended": {},
        "waiting": 0,
        "delayed": 0,
        "running": 0,
        "oldest": 0.0,
        "workers": 0,
        "idle": 0,
        "slots": 0,
        "need": 0,
    }
    rates = {"arrived": 0.0, "done": 0.0, "undone": 0.0, "wait": [], "run": [], "dialects": []}
    return ServiceView(
        **{"name": "ocr", "paused": False, "paused_by": "", "paused_at": None, **zeros, **rates, **fields}
    )


ROWS: list[tuple[dict[str, Any], dict[str, int], str]] = [
    (
        BUSY,
        {"busy": 48},
        "All 48 workers are busy. 41 jobs/s arrive, 22 are done: the queue grows by 19 a second.",
    ),
    (
        {**BUSY, "done": 60.0, "undone": 3.0, "workers": 1},
        {"busy": 1},
        "Its only worker is busy. 41 jobs/s arrive, 60 are done, 3.0 end otherwise: the queue shrinks by 22 a second "
        "and is empty in 20 s.",
    ),
    (
        {**BUSY, "done": 41.0},
        {"busy": 40, "detached": 8},
        "None of 48 workers is free (40 busy, 8 detached). 41 jobs/s arrive, 41 are done: the queue stays at 442 jobs.",
    ),
    (
        {"workers": 2, "idle": 1, "arrived": 0.25, "done": 0.25},
        {"idle": 1, "busy": 1},
        "1 of 2 workers is free. 0.25 jobs/s arrive, 0.25 are done; no job waits.",
    ),
    ({"workers": 1, "idle": 1}, {"idle": 1}, "Its only worker is free. No jobs arrive."),
    ({"workers": 1}, {"stuck": 1}, "Its only worker is not free (stuck). No jobs arrive."),
    ({"waiting": 1}, {}, "No worker offers 'ocr'. 1 job waits."),
    (
        {"waiting": 3, "workers": 2, "idle": 1, "limits": LimitsView(max_running=4, reached="'ocr' runs 4 jobs (...)")},
        {"idle": 1, "busy": 1},
        "'ocr' runs 4 jobs (...). 3 jobs wait.",
    ),
    (
        {"waiting": 2, "paused": True, "paused_by": "ops"},
        {},
        "The service is paused by ops: its jobs are not dispatched. 2 jobs wait.",
    ),
    (  # the mean of the last 10 seconds is that of before the pause, too, and does not tell how the queue grows now
        {"waiting": 12, "workers": 1, "paused": True, "paused_by": "ops", "arrived": 5.6, "done": 5.4},
        {},
        "The service is paused by ops: its jobs are not dispatched. 5.6 jobs/s arrive; 12 jobs wait.",
    ),
]


def test_the_sentence_names_the_cause_and_the_trend() -> None:
    def check(fields: dict[str, Any], states: dict[str, int], text: str) -> None:
        assert says(row(**fields), states) == text

    check_every_row(check, ROWS)
