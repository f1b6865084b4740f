"""Every command has the same output and exit code over a native address and over HTTP; with `--json` it prints
views."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import Result

from case_tables import check_every_row
from command_runner import command_runner
from dragoman import Client, LocalBroker
from dragoman.cli import MODULES, dragoman, sections
from dragoman.cli.tables import print_json
from dragoman.operations.schemas import JobRef, PurgeView
from dragoman.operations.table import WHY
from programs import PATIENCE, until

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from native_worker import HandWorker

LISTEN = ("tcp://127.0.0.1:0?lease=1e8", "http://127.0.0.1:0")
UNKNOWN = "0" * 32
# Commands that perform no operation of a broker.
OFFLINE = {"serve", "worker", "config", "store", "access", "keys", "token", "demo", "replay", "export", "import"}
HTTP_ONLY = {"tail", "top"}  # read streams; tests/e2e/test_live_commands.py


class World:
    """A broker with a hand-written worker, some jobs, and commands that use one of its addresses."""

    group = act = ""  # ids of a group and of an act on many jobs, if there are any

    def __init__(self, dialect: str) -> None:
        self.broker = LocalBroker(*LISTEN)
        self.url = self.broker.urls[dialect]
        self.worker = HandWorker(self.broker.urls["native"].removeprefix("native+"), "echo")
        self.client = Client(self.broker.urls["native"])
        self.waiting = self.client.enqueue("later", "gr\u00fc\u00dfe", key="k\u00fc")
        self.done = self.client.enqueue("echo", b"hello")
        self.failed = self.client.enqueue("echo", b"fail \x1b[31m so", attempts=1)
        self.client.set_schedule("nightly", "report", cron="0 3 * * *")
        until(lambda: self.client.job(self.failed).state == "ended", "the last of them has ended")
        until(lambda: [each.state for each in self.client.workers()] == ["idle"], "the worker is idle")
        (self.number,) = (each.id for each in self.client.workers())

    def run(self, *words: object, given: bytes = b"") -> Result:
        return command_runner().invoke(dragoman, [*map(str, words), "--connect", self.url], input=given)

    def close(self) -> None:
        self.client.close()
        self.worker.stop()
        self.broker.close()


Words = Callable[[World], Iterable[object]]

COMMANDS: dict[str, Words] = {
    "call": lambda world: ["call", "echo", "hello"],
    "call, fails": lambda world: ["call", "echo", "fail so"],
    "call, nobody": lambda world: ["call", "nobody"],
    "call, too late": lambda world: ["call", "echo", "hold", "--timeout", 1.5],
    "enqueue": lambda world: ["enqueue", "later", "x", "--delay", 60, "--timeout", "none", "--retry-first", 5],
    "enqueue, waits": lambda world: ["enqueue", "echo", "hello", "--wait", PATIENCE],
    "enqueue, not yet": lambda world: ["enqueue", "later", "x", "--wait", 0],
    "enqueue, no name": lambda world: ["enqueue", "a\x07b"],
    "enqueue, key reused": lambda world: ["enqueue", "later", "other", "--key", "k\u00fc"],
    "result": lambda world: ["result", world.done],
    "result, waits": lambda world: ["result", world.done, "--wait", PATIENCE],
    "result, failed": lambda world: ["result", world.failed],
    "result, not yet": lambda world: ["result", world.waiting],
    "result, unknown": lambda world: ["result", UNKNOWN],
    "result, no id": lambda world: ["result", "x"],
    "job": lambda world: ["job", world.waiting],
    "job, failed": lambda world: ["job", world.failed],
    "job, unknown": lambda world: ["job", UNKNOWN],
    "job, empty": lambda world: ["job", ""],
    "jobs": lambda world: ["jobs"],
    "jobs, cut off": lambda world: ["jobs", "--limit", 2],
    "jobs, filtered": lambda world: ["jobs", "--service", "echo", "--state", "ended", "--outcome", "failed"],
    "jobs, quarantined": lambda world: ["jobs", "--quarantined"],
    "jobs, none": lambda world: ["jobs", "--service", "nobody"],
    "why": lambda world: ["why", world.waiting],
    "group": lambda world: ["group", world.client.enqueue_group("later", [b"a", b"b"])],
    "group, unknown": lambda world: ["group", UNKNOWN],
    "cancel-group": lambda world: ["cancel-group", world.client.enqueue_group("later", [b"a", b"b"])],
    "job, by key": lambda world: ["job", "--service", "later", "--key", "k\u00fc"],
    "delete": lambda world: ["delete", world.done, world.waiting, UNKNOWN],
    "delete, all": lambda world: ["delete", "--all", "--service", "echo", "--dry-run"],
    "retry, all": lambda world: ["retry", "--all", "--service", "echo", "--yes"],
    "cancel, all": lambda world: ["cancel", "--all", "--service", "later", "--yes"],
    "bulk-act": lambda world: ["bulk-act", world.client.cancel_jobs(service="later").id],
    "bulk-act, unknown": lambda world: ["bulk-act", UNKNOWN],
    "stop-bulk-act": lambda world: ["stop-bulk-act", world.client.cancel_jobs(service="later").id],
    "cancel": lambda world: ["cancel", world.done, UNKNOWN, "x", world.waiting],
    "retry": lambda world: ["retry", world.done, world.failed],
    "schedule set": lambda world: ["schedule", "set", "hourly", "report", "all", "--every", 3600],
    "schedule set, nonsense": lambda world: ["schedule", "set", "hourly", "report", "--cron", "nonsense"],
    "schedule list": lambda world: ["schedule", "list"],
    "schedule show": lambda world: ["schedule", "show", "nightly"],
    "schedule show, unknown": lambda world: ["schedule", "show", "unknown"],
    "schedule pause": lambda world: ["schedule", "pause", "nightly"],
    "schedule resume": lambda world: ["schedule", "resume", "nightly"],
    "schedule remove": lambda world: ["schedule", "remove", "nightly"],
    "services": lambda world: ["services"],
    "show-service": lambda world: ["show-service", "echo"],
    "show-service, unknown": lambda world: ["show-service", "nobody"],
    "workers": lambda world: ["workers"],
    "show-worker": lambda world: ["show-worker", world.number],
    "pause": lambda world: ["pause", "later", "--by", "\x1b[2J"],
    "resume": lambda world: ["resume", "later"],
    "resume, unknown": lambda world: ["resume", "nobody"],
    "limit": lambda world: ["limit", "later", "--max-running", 4, "--rate", "100/min"],
    "limit, nonsense": lambda world: ["limit", "later", "--rate", "often"],
    "purge, all": lambda world: ["purge", "--all", "--service", "later", "--dry-run"],
    "purge": lambda world: ["purge", "later", "--yes"],
    "drain": lambda world: ["drain", world.number],
    "drain, unknown": lambda world: ["drain", 10**9],
    "health": lambda world: ["health"],
    "cluster status": lambda world: ["cluster", "status"],
    "quarantine": lambda world: ["quarantine"],
    "quarantine retry, unknown": lambda world: ["quarantine", "retry", "0" * 16],
    "ladder, unknown": lambda world: ["ladder", UNKNOWN],
    "listeners, filtered": lambda world: ["listeners", "--help"],
    "broker, help": lambda world: ["broker", "--help"],
    "overview, help": lambda world: ["overview", "--help"],
    "show-history, unknown": lambda world: ["show-history", "nobody"],
}


def seen(text: str) -> str:
    """Return the output without values that differ between two runs: ids, times, addresses, durations and numbers."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "<moment>", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "<place>", text)
    text = re.sub(r"(in )?\b[0-9.]+ (ms|s|min|h|d)\b( ago)?", "<span>", text)
    text = re.sub(r"(worker |connections +|id +|^ *)\d+\b", r"\1<number>", text, flags=re.MULTILINE)
    text = re.sub(r"(silent|oldest|lease|pace) +[0-9.]+", r"\1 <span>", text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "<group>", text)
    text = re.sub(r"^(arrived|done|undone|wait|run|need) .*\n", "", text, flags=re.MULTILINE)  # of the last seconds
    return re.sub(" +", " ", text)


def outcome(dialect: str, words: Words) -> tuple[int, str, str]:
    world = World(dialect)
    try:
        ran = world.run(*words(world))
    finally:
        world.close()
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.exit_code, seen(ran.stdout), seen(ran.stderr)


def test_every_command_is_in_the_table() -> None:
    named = {words.split(",")[0].split()[0] for words in COMMANDS}
    assert named == {name for names in sections().values() for name in names} - OFFLINE - HTTP_ONLY
    assert set(MODULES) > OFFLINE


def test_every_command_gives_the_same_by_both_addresses() -> None:
    def check(name: str) -> None:
        native, http = (outcome(dialect, COMMANDS[name]) for dialect in ("native", "http"))
        assert native == http
        assert native[1] or native[2]
        assert all(each.isprintable() or each == "\n" for each in native[1] + native[2])  # T14

    check_every_row(check, [(name,) for name in COMMANDS])


# Words of a command about an unknown id or name, and the end of the error.
UNKNOWN_NAMES = [
    (["job", UNKNOWN], "`dragoman jobs` lists the jobs"),
    (["why", UNKNOWN], "`dragoman jobs` lists the jobs"),
    (["schedule", "remove", "nope"], '"nope"; `dragoman schedule list` lists the schedules'),
    (["schedule", "show", "nope"], '"nope"; `dragoman schedule list` lists the schedules'),
    (["show-service", "nope"], "`dragoman services` lists the services"),
    (["show-worker", 10**9], "`dragoman workers` lists the workers"),
    (["drain", 10**9], "`dragoman workers` lists the workers"),
]


def test_an_error_about_an_unknown_name_says_how_to_list_the_known_ones() -> None:
    world = World("native")

    def check(words: list[object], says: str) -> None:
        ran = world.run(*words)
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert ran.stderr.startswith("dragoman: no ")
        assert ran.stderr.endswith(f"{says}\n")

    try:
        check_every_row(check, UNKNOWN_NAMES)
    finally:
        world.close()


# Words of a command, and lines of its output.
FACTS: list[tuple[Words, tuple[str, ...]]] = [
    (lambda world: ["health"], (r"connections +\d+",)),
    (lambda world: ["show-worker", world.number], (r"silent +[\d.]+ m?s", r"lease +1157 d")),
    (lambda world: ["show-service", "later"], (r"oldest +[\d.]+ s",)),
]


def test_numbers_have_names_and_units() -> None:
    """`peers 2` and `silent 0.23` were riddles."""
    world = World("native")

    def check(words: Words, lines: tuple[str, ...]) -> None:
        shown = world.run(*words(world)).stdout
        for line in lines:
            assert re.search(f"^{line}$", shown, re.M), shown

    try:
        check_every_row(check, FACTS)
    finally:
        world.close()


def test_ids_from_standard_input_are_checked_one_by_one() -> None:
    world = World("native")
    try:
        ran = world.run("cancel", "-", given=f"123\n{world.waiting}\n".encode())
    finally:
        world.close()
    assert (ran.exit_code, ran.stdout) == (2, f"{world.waiting}\n")
    assert ran.stderr.startswith("dragoman: job '123': a job's id has 32 lower-case hex digits")


# ---------------------------------------------------------------- --json

VIEWS: dict[str, tuple[Words, Callable[[Client[bytes], World], Any]]] = {
    "job": (lambda world: ["job", world.failed], lambda client, world: [client.job(world.failed)]),
    "jobs": (lambda world: ["jobs"], lambda client, world: client.jobs()),
    "services": (lambda world: ["services"], lambda client, world: client.services()),
    "show-service": (lambda world: ["show-service", "echo"], lambda client, world: [client.service("echo")]),
    "schedule list": (lambda world: ["schedule", "list"], lambda client, world: client.schedules()),
    "schedule show": (
        lambda world: ["schedule", "show", "nightly"],
        lambda client, world: [client.schedule("nightly")],
    ),
    "workers": (lambda world: ["workers"], lambda client, world: client.workers()),
    "show-worker": (
        lambda world: ["show-worker", world.number],
        lambda client, world: [client.worker(world.number)],
    ),
    "health": (lambda world: ["health"], lambda client, world: [client.health()]),
    "group": (lambda world: ["group", world.group], lambda client, world: [client.group(world.group)]),
    "cancel-group": (lambda world: ["cancel-group", world.group], lambda client, world: [client.group(world.group)]),
    "limit": (
        lambda world: ["limit", "later", "--max-running", 4],
        lambda client, world: [client.service("later")],
    ),
    "bulk-act": (lambda world: ["bulk-act", world.act], lambda client, world: [client.bulk_act(world.act)]),
    "stop-bulk-act": (lambda world: ["stop-bulk-act", world.act], lambda client, world: [client.bulk_act(world.act)]),
    "why": (
        lambda world: ["why", world.failed],
        lambda client, world: [client.operation(WHY, JobRef(id=world.failed))],
    ),
    "schedule set": (
        lambda world: ["schedule", "set", "hourly", "report", "--every", 3600],
        lambda client, world: [client.schedule("hourly")],
    ),
}
# Their values change with each request, or with the request itself: tests of operations compare them.
WITHOUT_VIEW = {"overview", "show-history", "broker", "listeners", "ladder", "quarantine retry"}
WITHOUT_VIEW |= {"cancel", "delete", "purge", "retry"}  # of many jobs; tests/e2e/test_bulk_commands.py
WITHOUT_VIEW |= {"cluster status"}  # of a broker in a cluster; tests/e2e/test_cluster.py
MOVING = re.compile(r'"(silent|oldest|peers)":[0-9.e-]+')


def commands_with_json(group: click.Group) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {each}" for each in commands_with_json(command))
        elif command is not None and any("--json" in each.opts for each in command.params):
            yield name


def test_every_command_with_json_is_in_the_table() -> None:
    known = {each for each in commands_with_json(dragoman) if each.split()[0] not in OFFLINE | HTTP_ONLY}
    assert {*VIEWS, *WITHOUT_VIEW} == known


@pytest.mark.parametrize("dialect", ["native", "http"])
def test_json_is_the_view(dialect: str) -> None:
    world = World(dialect)
    world.client.cancel(world.waiting)
    world.group = world.client.enqueue_group("later", [b"a", b"b"], delay=3600)
    world.act = world.client.cancel_jobs(service="nobody").id

    def check(name: str) -> None:
        words, views = VIEWS[name]
        ran = world.run(*words(world), "--json")
        assert ran.exit_code == 0
        assert ran.stdout.isascii()
        expected = [msgspec.json.encode(each) for each in views(world.client, world)]
        printed = [msgspec.json.encode(msgspec.json.decode(line)) for line in ran.stdout.splitlines()]
        assert [MOVING.sub("", each.decode()) for each in printed] == [MOVING.sub("", e.decode()) for e in expected]

    try:
        check_every_row(check, [(name,) for name in VIEWS])
    finally:
        world.close()


def test_json_is_written_as_http_writes_it_but_for_what_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, hostile = PurgeView(name='a "b" \\', purged=1), PurgeView(name="\x1b\x7f\x9b\u202e\U0001f600", purged=2)
    print_json(plain, hostile)
    first, second = capsys.readouterr().out.splitlines()
    assert first == msgspec.json.encode(plain).decode()
    assert second.isascii()
    assert second.isprintable()
    assert msgspec.json.decode(second, type=PurgeView) == hostile
