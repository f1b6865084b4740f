"""The one limit of log lines that others can cause (R215)."""

from __future__ import annotations

from typing import Any, cast

from dragoman.core.counters import Counters
from dragoman.core.owners import Owner
from dragoman.core.rights import Principal
from dragoman.operations.bulk_acts import BulkAct
from dragoman.server.event_log import log_bulk_act
from dragoman.server.reports import LINES, LINES_OF_SOURCE, Reports, source_of


class World:
    def __init__(self) -> None:
        self.now = 100.7
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.reports = Reports(Counters(), lambda: self.now, self._log)

    def _log(self, level: str, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


class Peer:
    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.label = f"{address}:{port}"


def peer(address: str, port: int = 1) -> Any:
    return Peer(address, port)


def act(number: int) -> BulkAct:
    made = object.__new__(BulkAct)
    facts = {"act": "cancel", "done": number, "of": number, "owner": Owner(Principal("hog")), "service": "s"}
    for name, value in {**facts, "left_out": 0, "problem": "", "group": ""}.items():
        setattr(made, name, value)
    return made


def test_lines_of_all_kinds_about_one_source_share_one_limit_and_the_rest_is_counted() -> None:
    """A bug: each bad connection and each act on many jobs had a line of its own: one peer wrote 1.7 MB in 4 s."""
    world = World()
    reports = world.reports
    for port in range(100):
        each = peer("192.0.2.1", port)
        reports.bad_message(each, "bad frame", "")
        reports.log_limited("connection closed", peer=each)
        reports.remark("worker rejected", peer=each)
        reports.remark_limited("call dropped", peer=each)
        reports.log_limited("connection rejected", address="192.0.2.1")
        reports.log_limited("request rejected", address="192.0.2.1:4242")
        reports.internal_error(ValueError(), peer=each)
    assert len(world.lines) == LINES_OF_SOURCE
    reports.log_limited("connection closed", peer=peer("192.0.2.2"))
    assert world.events()[-1] == "connection closed", "another source has its own lines"
    world.now += 0.9
    reports.lines.look(world.now)
    assert len(world.lines) == LINES_OF_SOURCE + 1, "the second is not over"
    world.now += 0.2
    reports.lines.look(world.now)
    left_out = 700 - LINES_OF_SOURCE
    assert world.lines[-1] == ("log lines left out", {"count": left_out, "sources": {"192.0.2.1": left_out}})
    assert reports.lines.left_out == {}


def test_acts_on_many_jobs_count_for_their_principal() -> None:
    world = World()
    for number in range(1_000):
        log_bulk_act(world.reports.lines, act(number), world.now)
    assert world.events() == ["jobs cancelled"] * LINES_OF_SOURCE
    world.reports.lines.flush()
    assert world.lines[-1][1] == {"count": 980, "sources": {"principal hog": 980}}


def test_lines_of_many_sources_have_a_limit_together() -> None:
    world = World()
    for number in range(1_000):
        world.reports.log_limited("connection rejected", address=f"2001:db8:0:{number:x}::1")
    assert len(world.lines) == LINES
    world.now += 1.0
    world.reports.log_limited("connection rejected", address="192.0.2.1")
    assert world.events()[-2:] == ["log lines left out", "connection rejected"]
    assert world.lines[-2][1]["count"] == 800
    assert len(cast(dict[str, int], world.lines[-2][1]["sources"])) == 5


def test_lines_about_the_broker_itself_have_no_limit() -> None:
    world = World()
    for _ in range(2 * LINES):
        world.reports.remark("event loop stalled")
    assert len(world.lines) == 2 * LINES


def test_debug_lines_take_the_place_of_no_other() -> None:
    world = World()
    for port in range(100):
        world.reports.admitted(peer("uid 1000", port), "debug", principal="ann")
    for port in range(100):
        world.reports.admitted(peer("uid 1000", port), "info", principal="ann")
    assert len(world.lines) == 2 * LINES_OF_SOURCE


def test_source_of_a_label() -> None:
    sources = {
        "192.0.2.1:4242": "192.0.2.1",
        "[2001:db8::7]:4242": "2001:db8::/64",
        "2001:db8::7": "2001:db8::/64",
        "uid 1000": "uid 1000",
        "pid 17": "pid 17",
        "tcp://192.0.2.1:5555": "tcp://192.0.2.1",
        "service": "service",
    }
    assert {label: source_of(label) for label in sources} == sources
