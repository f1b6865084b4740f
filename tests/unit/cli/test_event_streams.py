"""Event streams of commands: their lines, filters and limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.cli.broker_http import ServerEvent, http_target, parse_events
from dragoman.cli.event_lines import EventLines, duration
from dragoman.cli.tail import Printer
from dragoman.sdk.address import AddressError

ID = "0197f3a2c4d87b12a9e05c61f38d2b74"
WORKER = {"id": 7, "name": "ocr-a5", "dialect": "native", "services": ["ocr", "resize"]}


LAST = {
    "number": 1,
    "worker": "ocr-a5",
    "outcome": "timed out",
    "seconds": 30.0,
    "reason": "no result within 30 s",
}


def job(**others: Any) -> dict[str, Any]:
    return {"id": ID, "service": "ocr", **others}


def test_events_are_parsed_across_comments_and_several_lines_of_data() -> None:
    lines = b":\n\nevent: waiting\ndata: {}\n\nid: 4\r\ndata: a\r\ndata:b\r\n\r\nevent: cut\ndata: x\n".splitlines(True)
    assert list(parse_events(lines)) == [
        ServerEvent("comment", ""),
        ServerEvent("waiting", "{}"),
        ServerEvent("message", "a\nb"),
    ]


def test_a_line_has_time_job_service_state_and_worker() -> None:
    lines = EventLines()
    told = []
    for now, name, fields in (
        (1.0, "waiting", job(background=True)),
        (1.0, "running", job(attempt=1, worker="ocr-a5", dialect="native", max_attempts=3)),
        (31.0, "delayed", job(last=LAST, delay=1.1)),
        (32.0, "waiting", job(last=LAST)),
        (32.0, "late", job(state="waiting", attempt=1, worker="ocr-a5", dialect="native")),
        (32.0, "running", job(attempt=2, worker="ocr-b1")),
        (62.0, "ended", job(outcome="timed out", reason="no result in 30 s", quarantined=True)),
        (63.0, "joined", WORKER),
    ):
        told.append(lines.line(name, fields, now, "12:00:00.000"))
    assert told == [
        "12:00:00.000  0197f3a2c4d8  ocr  waiting    background job",
        "12:00:00.000  0197f3a2c4d8  ocr  running    attempt 1 of 3 at ocr-a5 (native)",
        "12:00:00.000  0197f3a2c4d8  ocr  timed out  after 30 s at ocr-a5: no result within 30 s; retry in 1.1 s",
        "12:00:00.000  0197f3a2c4d8  ocr  waiting",
        "12:00:00.000  0197f3a2c4d8  ocr  late       result of ocr-a5 (native) dropped: attempt 1 has ended (D2)",
        "12:00:00.000  0197f3a2c4d8  ocr  running    attempt 2 at ocr-b1",
        "12:00:00.000  0197f3a2c4d8  ocr  timed out  after 30 s at ocr-b1, in quarantine: no result in 30 s",
        "12:00:00.000                ocr, resize  joined     worker ocr-a5 (native)",
    ]


def test_a_line_has_the_broker_in_a_cluster() -> None:
    lines = EventLines()
    lines.line("joined", {**WORKER, "broker": "frankfurt"}, 1.0, "")
    told = lines.line("running", job(attempt=1, worker="eu2", dialect="cluster", broker="eu1"), 1.0, "12:00")
    assert told == "12:00  eu1        0197f3a2c4d8  ocr          running    attempt 1 at eu2 (cluster)"


def test_a_job_that_waits_again_at_once_says_why() -> None:
    lines = EventLines()
    lines.line("running", job(attempt=1, worker="ocr-a5"), 1.0, "")
    told = lines.line("waiting", job(last={**LAST, "outcome": "failed", "reason": ""}), 31.0, "12:00")
    assert told == "12:00  0197f3a2c4d8  ocr  failed     after 30 s at ocr-a5; retry at once"
    told = lines.line("delayed", job(background=True, delay=90.0), 31.0, "12:00")
    assert told == "12:00  0197f3a2c4d8  ocr  delayed    background job, starts in 90 s"


def test_names_of_peers_cannot_move_the_cursor() -> None:
    line = EventLines().line("running", job(service="\x1b[2J", attempt=1, worker="a\nb"), 0.0, "12:00")
    assert line.isprintable()


def test_events_left_out_are_counted_in_a_line() -> None:
    written: list[str] = []
    printer = Printer(False, written.append)
    printer.receive(ServerEvent("skipped", '{"count": 3120}'), 10.0)
    assert written == ["… 3,120 events left out in the last second (--all to see them)"]


def test_with_all_events_nobody_is_told_to_ask_for_them() -> None:
    """Other brokers of a cluster limit their events all the same."""
    written: list[str] = []
    Printer(False, written.append, everything=True).receive(ServerEvent("skipped", '{"count": 3120}'), 0.0)
    assert written == ["… 3,120 events left out in the last second"]


def test_json_has_the_event_and_its_time() -> None:
    written: list[str] = []
    printer = Printer(True, written.append)
    for event in (ServerEvent("open", ""), ServerEvent("waiting", json.dumps(job())), ServerEvent("overflow", "")):
        printer.receive(event, 10.0)
    (line,) = map(json.loads, written)
    assert line == {"event": "waiting", "at": line["at"], **job()}


def test_durations_have_the_unit_that_fits() -> None:
    seconds = (0.0004, 0.012, 0.5, 1.5, 31, 720, 9000)
    assert [duration(each) for each in seconds] == [
        "0.4 ms",
        "12 ms",
        "500 ms",
        "1.5 s",
        "31 s",
        "12 min",
        "2 h",
    ]


def test_default_address_is_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_URL", "tcp://127.0.0.1:7400")
    assert str(http_target(None).place) == "127.0.0.1:7480"
    monkeypatch.setenv("DRAGOMAN_URL", "http://127.0.0.1:9999")
    assert str(http_target(None).place) == "127.0.0.1:9999"
    with pytest.raises(AddressError, match="this command needs HTTP"):
        http_target("tcp://127.0.0.1:7400")
