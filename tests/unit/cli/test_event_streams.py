"""Event streams of commands: their lines, filters and limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.cli.broker_http import ServerEvent, http_target, parse_events
from dragoman.cli.event_lines import EventLines, Filter, RateLimit, duration
from dragoman.cli.tail import Printer
from dragoman.sdk.address import AddressError

ID = "0197f3a2c4d87b12a9e05c61f38d2b74"
WORKER = {"id": 7, "name": "ocr-a5", "dialect": "native", "services": ["ocr", "resize"]}


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
        (1.0, "running", job(attempt=1, worker="ocr-a5")),
        (31.0, "delayed", job()),
        (32.0, "running", job(attempt=2, worker="ocr-b1")),
        (62.0, "ended", job(outcome="timed out", reason="no result in 30 s", quarantined=True)),
        (63.0, "joined", WORKER),
    ):
        lines.watch(name, fields, now)
        told.append(lines.line(name, fields, now, "12:00:00.000"))
    assert told == [
        "12:00:00.000  0197f3a2c4d8  ocr  waiting    background job",
        "12:00:00.000  0197f3a2c4d8  ocr  running    attempt 1 at ocr-a5",
        "12:00:00.000  0197f3a2c4d8  ocr  delayed",
        "12:00:00.000  0197f3a2c4d8  ocr  running    attempt 2 at ocr-b1",
        "12:00:00.000  0197f3a2c4d8  ocr  timed out  after 30 s at ocr-b1, in quarantine: no result in 30 s",
        "12:00:00.000                ocr, resize  joined     worker ocr-a5 (native)",
    ]


def test_names_of_peers_cannot_move_the_cursor() -> None:
    line = EventLines().line("running", job(service="\x1b[2J", attempt=1, worker="a\nb"), 0.0, "12:00")
    assert line.isprintable()


def test_filters() -> None:
    running, failed = job(worker="ocr-a5"), job(outcome="failed")
    cases = [
        (Filter(service="ocr"), "running", running, True),
        (Filter(service="mail"), "running", running, False),
        (Filter(service="resize"), "joined", WORKER, True),
        (Filter(worker="ocr-a5"), "running", running, True),
        (Filter(worker="7"), "left", WORKER, True),
        (Filter(worker="8"), "left", WORKER, False),
        (Filter(worker="ocr-a5"), "ended", failed, False),
        (Filter(state="running"), "running", running, True),
        (Filter(state="failed"), "ended", failed, True),
        (Filter(state="failed"), "running", running, False),
        (Filter(failed=True), "ended", failed, True),
        (Filter(failed=True), "ended", job(outcome="done"), False),
        (Filter(failed=True), "running", running, False),
    ]
    assert [filter.wants(name, fields) for filter, name, fields, _ in cases] == [wanted for *_, wanted in cases]


def events(printer: Printer, *times: float) -> None:
    for now in times:
        printer.receive(ServerEvent("waiting", json.dumps(job())), now)


def test_events_above_the_limit_are_counted_and_not_printed() -> None:
    written: list[str] = []
    printer = Printer(Filter(), RateLimit(2), False, written.append)
    events(printer, 10.0, 10.1, 10.2, 10.3)
    printer.receive(ServerEvent("skipped", '{"skipped": 3000}'), 10.4)
    assert len(written) == 2
    printer.receive(ServerEvent("comment", ""), 11.1)
    assert written[2:] == ["… 3,002 events left out in the last second (--all to see them)"]
    events(printer, 11.2)
    assert len(written) == 4


def test_json_has_the_event_its_time_and_the_number_of_those_left_out() -> None:
    written: list[str] = []
    printer = Printer(Filter(), RateLimit(1), True, written.append)
    events(printer, 10.0, 10.1, 11.5)
    first, left_out, last = (json.loads(line) for line in written)
    assert first == {"event": "waiting", "at": first["at"], **job()}
    assert left_out == {"event": "skipped", "skipped": 1}
    assert last["event"] == "waiting"


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
