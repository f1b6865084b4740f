"""Sentences about workers."""

from __future__ import annotations

from msgspec.structs import replace

from case_tables import check_every_row
from dragoman.dashboard.worker_says import worker_says
from dragoman.operations.schemas import WorkerView

JOB = "0197f3a2c4d87b12a9e05c61f38d2b74"
IDLE = WorkerView(
    id=1,
    name="ocr-1",
    dialect="native",
    state="idle",
    services=["ocr"],
    capacity=4,
    running=[],
    stuck=0,
    comes_back=False,
    silent=1.0,
    lease=30.0,
)

ROWS: list[tuple[dict[str, object], str]] = [
    ({}, "It holds no job and has 4 slots."),
    (
        {"pace": 3.42},
        "Its attempts take 3.4 times as long as the median of its service. It holds no job and has 4 slots.",
    ),
    ({"state": "busy", "running": [JOB], "capacity": 1}, "It holds 1 job and has 1 slot."),
    (
        {"state": "busy", "running": [JOB], "silent": 24.0},
        "It has been silent for 24 s. It counts as dead after 30 s, and 1 job with it.",
    ),
    ({"state": "busy", "running": [JOB], "silent": 24.0, "lease": None}, "It holds 1 job and has 4 slots: 3 are free."),
    (
        {"state": "detached", "running": [JOB], "silent": 24.0},
        "It has been unreachable for 24 s. Its lease ends in 6.0 s. 1 job of it is then lost or retried.",
    ),
    ({"state": "detached", "silent": 40.0}, "It has been unreachable for 40 s. Its lease ends in 0.0 s."),
    ({"state": "detached", "silent": 40.0, "lease": None}, "It has been unreachable for 40 s."),
    ({"state": "draining", "running": [JOB, JOB]}, "It is draining: it finishes 2 jobs and gets no more."),
    ({"state": "draining"}, "It is drained."),
    (
        {"state": "stuck", "stuck": 1},
        "It is stuck: its slots are taken by attempts that have ended. It gets no job until it proves free.",
    ),
    ({"state": "starting"}, "It is starting: it has joined and is not ready yet."),
    ({"state": "backing off"}, "It is backing off: it declined a job and gets none for a moment."),
]


def test_sentence_about_each_kind_of_worker() -> None:
    def check(facts: dict[str, object], sentence: str) -> None:
        assert worker_says(replace(IDLE, **facts)) == sentence

    check_every_row(check, ROWS)
