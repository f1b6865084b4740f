"""Frames and keys of `dragoman top`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dragoman.cli.full_screen import key_names
from dragoman.cli.terminal import text_width
from dragoman.cli.top import attempt_lines, worker_lines
from dragoman.cli.top_format import Column, fitted, quantile, quantiles, rate, share, sparkline, within
from dragoman.cli.top_model import Model
from dragoman.cli.top_screen import frame

CLOCK = datetime(2026, 10, 1, 12, 4, 32, tzinfo=UTC)
WORKER: dict[str, Any] = {
    "id": 7,
    "name": "ocr-a5",
    "dialect": "native",
    "state": "busy",
    "services": ["ocr"],
    "capacity": 4,
    "running": ["0197f3a2c4d87b12a9e05c61f38d2b74"],
    "silent": 0.4,
    "lease": 10.0,
}


def service(name: str, **others: Any) -> dict[str, Any]:
    return {
        "name": name,
        "paused": False,
        "waiting": 0,
        "oldest": 0.0,
        "running": 24,
        "slots": 556,
        "done": 841.0,
        "undone": 0.3,
        "wait": [0.0005, 0.0011, 0.002],
        "run": [0.017, 0.039, 0.05],
        **others,
    }


def snapshot(*services: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {
        "instance": "1",
        "at": "2026-10-01T12:04:31.5Z",
        "ready": True,
        "problems": [],
        "totals": {
            "done": 2010.1,
            "undone": {"failed": 1.2, "lost": 0.6},
            "waiting": 2675,
            "running": 362,
            "slots": 1894,
        },
        "broker": {"cpu": 0.31, "lag_p99": 0.0007},
        "attention": [],
        "services": list(services),
        "changes": [],
        **others,
    }


OCR = service("ocr", waiting=442, oldest=21.0, done=21.4, wait=[12.1, 20.9, 26], run=[1.9, 4.3, 6.8], slots=148)
RESIZE = service("resize")
THUMBNAIL = service("thumbnail", paused=True, waiting=2227, oldest=720.0, done=0.0, undone=0.0, wait=None, run=None)


def model(**others: Any) -> Model:
    made = Model(version="0.9.0", started=datetime(2026, 10, 1, 10, 4, 32, tzinfo=UTC))
    assert made.take_snapshot(snapshot(THUMBNAIL, OCR, RESIZE, **others), 100.0)
    return made


FRAME = """\
dragoman 0.9.0  up 2 h  ready   2,010 done/s   2,675 waiting   362/1,894 slots   1.8 not done/s   CPU 31 %   lag 0.7 ms
SERVICE             WAITING  OLDEST  JOBS/S  5 MIN                 WAIT P50/P95    RUN P50/P95  NOT DONE   SLOTS
thumbnail (paused)    2,227  12 min       0                               – / –          – / –         –  24/556
ocr                     442    21 s      21  ▂▂▂▂▂▂▂▅███████        12 s / 21 s  1.9 s / 4.3 s     1.4 %  24/148
resize                    0             841                   < 0.5 ms / 1.1 ms  17 ms / 39 ms    0.04 %  24/556
"""


def shown(made: Model, width: int = 140, height: int | None = None, now: float = 100.5) -> list[str]:
    return frame(made, now, CLOCK, width, height)


def test_a_frame_has_totals_and_services() -> None:
    made = model()
    made.take_series({"ocr": {"done": [1.0] * 75 + [8.0] * 75}})
    assert shown(made) == FRAME.splitlines()


def test_a_narrow_frame_leaves_out_quantiles_first_and_then_the_sparkline() -> None:
    titles = {width: shown(model(), width)[1].split("  ") for width in (100, 80, 60, 40)}
    assert "RUN P50/P95" in " ".join(titles[100])
    assert "WAIT P50/P95" not in " ".join(titles[100])
    assert "5 MIN" in " ".join(titles[80])
    assert "RUN P50/P95" not in " ".join(titles[80])
    assert "5 MIN" not in " ".join(titles[60])
    for width in (100, 80, 60, 40, 20):
        for line in shown(model(), width, 20):
            assert text_width(line) <= width


def test_sentences_that_need_attention_come_first() -> None:
    findings = [{"level": "warning", "about": {"service": f"s{n}"}, "text": f"sentence {n}"} for n in range(7)]
    lines = shown(model(attention=findings))
    assert lines[1:7] == [*(f"! s{n}  sentence {n}" for n in range(5)), "  … and 2 more"]


def test_principal_without_totals_sees_its_services() -> None:
    lines = shown(model(totals=None, broker=None))
    assert lines[0] == "dragoman 0.9.0  up 2 h  ready"
    assert lines[2].startswith("thumbnail")


def test_silent_broker_is_reported_with_the_time_of_the_values() -> None:
    assert "not answered" not in "".join(shown(model(), now=102.9))
    assert shown(model(), now=114.0)[1] == (
        "The broker has not answered for 14 s. These values are of 12:04:31. Trying again."
    )


def test_first_frame_has_the_problem_of_the_stream() -> None:
    made = Model(version="0.9.0")
    assert shown(made)[1] == "Waiting for the first snapshot."
    made.problem = "no broker answers at 127.0.0.1:7480"
    assert shown(made)[1] == "no broker answers at 127.0.0.1:7480. Trying again."


def test_names_of_peers_cannot_move_the_cursor() -> None:
    made = Model()
    made.take_snapshot(snapshot(service("\x1b[2J\n"), attention=[{"level": "x", "about": {}, "text": "\x1b]0;x"}]), 0.0)
    assert all(line.isprintable() for line in shown(made, height=10, now=0.0))


def test_empty_pages_have_the_next_step() -> None:
    made = Model()
    made.take_snapshot(snapshot(), 0.0)
    assert "dragoman worker --exec" in shown(made, now=0.0)[1]
    made.text = "x"
    assert shown(made, now=0.0)[1] == "Nothing matches 'x'."


def test_selected_row_stays_on_the_screen() -> None:
    made = Model()
    made.take_snapshot(snapshot(*(service(f"s{n}") for n in range(50))), 0.0)
    for _ in range(30):
        made.press("down")
    lines = frame(made, 0.0, CLOCK, 140, 12, lambda style, text: f">{text}" if style == "selected" else text)
    assert len(lines) == 12
    assert next(line for line in lines if line.startswith(">")).startswith(">s30 ")


def test_selection_stays_with_its_row_when_rows_move() -> None:
    made = model()
    made.press("down")
    made.take_snapshot(snapshot(RESIZE, THUMBNAIL, OCR), 101.0)
    assert made.chosen is OCR
    made.press("down")
    assert made.chosen is OCR
    made.take_snapshot(snapshot(RESIZE), 102.0)
    assert made.chosen is RESIZE


def test_sort_and_filter_of_services() -> None:
    made = model()

    def names() -> list[str]:
        return [row["name"] for row in made.visible()]

    assert names() == ["thumbnail", "ocr", "resize"]
    assert [(made.press(">"), made.sort, names()) for _ in range(3)] == [
        ("fetch", "name", ["ocr", "resize", "thumbnail"]),
        ("fetch", "waiting", ["thumbnail", "ocr", "resize"]),
        ("fetch", "rate", ["resize", "ocr", "thumbnail"]),
    ]
    for key in ("/", "r", "e", "x", "backspace", "enter"):
        made.press(key)
    assert (made.text, names()) == ("re", ["resize"])
    made.press("escape")
    assert len(names()) == 3


def test_pause_names_its_effect_and_needs_a_yes() -> None:
    made = model()
    made.press("down")
    made.press("p")
    question = "Pause ocr? 442 jobs wait and are not dispatched until it is resumed. [y/N]"
    assert shown(made, height=20)[-1] == question
    assert made.press("n") == ""
    assert made.act is None
    made.press("p")
    assert made.press("y") == "act"
    assert made.act is not None
    assert (made.act.path, made.act.fields) == ("/v1/services/ocr/pause", {"by": "dragoman top"})
    made.act = None
    made.press("up")
    made.press("p")
    assert made.act is not None
    assert made.act.path == "/v1/services/thumbnail/resume"


def test_drain_names_its_effect() -> None:
    made = model()
    assert made.press("w") == "fetch"
    made.rows = [WORKER]
    made.press("d")
    assert made.act is not None
    assert made.act.question == "Drain worker 7 (ocr-a5)? It gets no more jobs, and finishes 1 job."
    assert made.act.path == "/v1/workers/7/drain"


def test_enter_opens_the_jobs_of_a_service_and_escape_returns() -> None:
    made = model()
    assert (made.press("enter"), made.page, made.service) == ("fetch", "jobs", "thumbnail")
    job = {
        "id": "0197f3a2c4d87b12a9e05c61f38d2b74",
        "service": "thumbnail",
        "state": "waiting",
        "outcome": None,
        "attempts": [],
        "max_attempts": 3,
        "created": "2026-10-01T12:03:32Z",
        "reason": "",
    }
    made.rows = [job]
    assert shown(made)[1:] == [
        "JOB           SERVICE    STATE    ATTEMPTS   AGE  REASON",
        "0197f3a2c4d8  thumbnail  waiting       0/3  60 s",
    ]
    assert made.press("enter") == "open"
    made.detail = ["It waits: no worker offers 'thumbnail'."]
    assert shown(made)[-1] == "It waits: no worker offers 'thumbnail'."
    made.press("escape")
    made.press("escape")
    assert (made.page, made.detail) == ("services", ())


def test_keys_are_shown_and_hidden() -> None:
    made = model()
    made.press("?")
    assert any("drain the selected worker" in line for line in shown(made, height=30))
    made.press("w")
    assert not any("drain the selected worker" in line for line in shown(made, height=30))
    assert made.press("q") == "quit"


def test_changes_have_their_time() -> None:
    made = model(changes=[{"at": "2026-10-01T12:01:00Z", "text": "9 workers of 'embed' left"}])
    made.press("c")
    assert shown(made)[-1] == "12:01:00  9 workers of 'embed' left"


def test_new_broker_is_noticed() -> None:
    made = model()
    assert not made.take_snapshot(snapshot(OCR), 101.0)
    assert made.take_snapshot(snapshot(OCR, instance="2"), 102.0)
    assert list(made.history["ocr"]) == [21.4, 21.4]  # one point every two seconds


def test_workers_and_attempts_are_lines() -> None:
    assert worker_lines(WORKER)[2:] == [
        "busy, dialect native, services ocr",
        "holds 1 of 4 jobs",
        "silent for 400 ms, lease 10 s",
        "  job 0197f3a2c4d87b12a9e05c61f38d2b74",
    ]
    attempt = {"number": 1, "outcome": "lost", "worker": "a", "reason": "killed", "started": CLOCK.isoformat()}
    job = {
        "attempts": [{**attempt, "ended": CLOCK.isoformat()}, {**attempt, "number": 2, "outcome": None, "ended": None}]
    }
    assert attempt_lines(job) == ["Attempt 1: lost after 0.0 ms at a: killed", "Attempt 2: running at a: killed"]


def test_numbers() -> None:
    assert [rate(each) for each in (2010.1, 21.4, 1.8, 0.0, None)] == ["2,010", "21", "1.8", "0", "–"]
    assert [share(part, 100.0) for part in (0.0, 0.04, 1.2)] == ["–", "0.04 %", "1.2 %"]
    assert [quantile(each) for each in (None, 0.0005, 0.0011, 12.1)] == ["–", "< 0.5 ms", "1.1 ms", "12 s"]
    assert quantiles(None) == "– / –"


def test_sparkline_groups_values_and_leaves_out_unknown_ones() -> None:
    assert sparkline([], 4) == "    "
    assert sparkline([0.0, 0.0], 4) == "  ▁▁"
    assert sparkline([None, None, 1.0, 1.0, 7.0, 9.0, 16.0, 16.0], 4) == " ▁▅█"
    assert len(sparkline([1.0] * 149, 16)) == 16


def test_table_shortens_long_texts_before_it_leaves_out_a_column() -> None:
    columns = (Column("NAME"), Column("STATE"), Column("SPARE", False, 1))
    rows = [["n" * 60, "busy", "native"]]
    assert fitted(columns, rows, 50)[1] == f"{'n' * 34}…  busy   native"
    assert fitted(columns, rows, 38)[1] == f"{'n' * 30}…  busy"


def test_head_and_keys_leave_out_whole_parts_where_the_screen_is_narrow() -> None:
    assert within(["ab", "cd"], 7) == "ab   cd"
    assert within(["ab", "cd"], 6) == "ab  cd"
    assert within(["ab", "cd", "ef"], 7) == "ab  cd"
    assert within(["ab", "cd", "ef"], 7, ["q"]) == "ab  q"
    assert within(["abcdef"], 4) == "abc…"
    for page in "swjc":
        made = model()
        made.press(page)
        assert shown(made, 80, 24)[-1].endswith(" [?] keys [q]uit"), page
    head = shown(model(), 80)[0]
    assert not head.endswith("…")


def test_table_shortens_the_widest_column_where_none_is_spare() -> None:
    columns = (Column("NAME"), Column("N", True), Column("SPARE", False, 1))
    rows = [["a" * 30, "1", "x" * 20]]
    assert fitted(columns, rows, 40) == [f"{'NAME':30}  N", f"{'a' * 30}  1"]
    assert fitted(columns, rows, 20) == [f"{'NAME':17}  N", f"{'a' * 16}…  1"]


def test_keys_that_arrive_together_are_told_apart() -> None:
    assert key_names("j\x1b[A\x1b[Bé\r\x7f".encode()) == ["j", "up", "down", "é", "enter", "backspace"]
    assert key_names(b"\x1b") == ["escape"]
    assert key_names(b"\x1b[5~") == []


def test_top_of_a_cluster_names_brokers() -> None:
    rows = [service("ocr", brokers=["eu2"]), service("resize", brokers=["eu1", "eu2", "eu3", "eu4", "eu5"])]
    found = {"level": "warning", "about": {"service": "ocr"}, "text": "3 jobs wait.", "brokers": ["eu2"]}
    names = [{"name": name} for name in ("eu1", "eu2")]
    shown = snapshot(*rows, brokers=names, unanswered=["eu3", "eu4"], attention=[found])
    model = Model(version="0.9.0")
    model.take_snapshot(shown, 0.0)
    lines = frame(model, 0.0, CLOCK, 150)
    assert lines[0].startswith("dragoman 0.9.0  ready   2 brokers   2,010 done/s")
    assert "busiest CPU 31 %" in lines[0]
    assert lines[1] == "! eu3, eu4 do not answer: the numbers are those of the other brokers"
    assert lines[2] == "! ocr  eu2: 3 jobs wait."
    assert lines[3].split()[:3] == ["SERVICE", "BROKER", "WAITING"]
    assert lines[4].split()[:3] == ["ocr", "eu2", "0"]
    assert lines[5].startswith("resize   eu1, eu2, eu3 + 2 ")
    model.press("w")
    model.rows = [WORKER | {"broker": "eu2"}]
    assert frame(model, 0.0, CLOCK, 120)[-1].split()[:4] == ["7", "ocr-a5", "eu2", "native"]
    model.press("c")
    changes = [
        {"at": "2026-10-01T12:00:00Z", "text": "1 worker left", "brokers": ["eu1"]},
        {"at": "2026-10-01T12:00:00Z", "text": "'ocr' was paused", "brokers": ["eu1", "eu2"]},
    ]
    model.take_snapshot(snapshot(brokers=names, unanswered=[], changes=changes), 1.0)
    assert [line.split(maxsplit=1)[1] for line in frame(model, 1.0, CLOCK, 120)[-2:]] == [
        "eu1: 1 worker left",
        "'ocr' was paused",
    ]
