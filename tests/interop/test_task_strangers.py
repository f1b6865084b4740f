"""Tasks and programs in other languages, written from docs/tasks.md and docs/http.md alone: a worker in JavaScript that
is a task, and callers in JavaScript and with curl."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from case_tables import check_every_row
from dragoman import Client, Context, JobFailed, LocalBroker, task, using
from programs import STRANGERS, Program, Programs

CURL = ("curl", "--silent", "--show-error", "--max-time", "60")


@dataclass
class Shortened:
    text: str
    cut: int
    names: dict[str, int]
    at: datetime


@task
def shorten(text: str, length: int = 10, *words: str, **names: int) -> Shortened:
    raise AssertionError("the worker in JavaScript runs it")


@task(name="shorten")
def shorten_loosely(text: object) -> Shortened:
    raise AssertionError("the worker in JavaScript runs it, and takes texts only")


@task(name="texts/describe")
def describe(ctx: Context, shortened: Shortened, *marks: str, loud: bool = False) -> str:
    text = f"{shortened.text}{''.join(marks)} ({shortened.at:%A})"
    return text.upper() if loud else text


@task(format="msgpack")
def pack(data: bytes, times: int = 2) -> bytes:
    return data * times


@task(format="cbor")
def pack_cbor(data: bytes, times: int = 2) -> bytes:
    return data * times


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def tasks(broker: LocalBroker) -> Iterator[None]:
    with Client(broker.urls["native"]) as client, using(client):
        yield


def test_worker_in_javascript_is_a_task(broker: LocalBroker, tasks: None, programs: Programs) -> None:
    programs.start("node", STRANGERS / "task_worker.js", "work", broker.urls["http"]).prints("joined")
    when = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert shorten.call("a long sentence", 6) == Shortened("a long", 9, {}, when)
    assert shorten.call("short", 3, "and", "more", Ada=1) == Shortened("sho and more", 2, {"Ada": 1}, when)
    handle = shorten_loosely.with_options(attempts=3, retry_on=OSError).enqueue(5)
    with pytest.raises(JobFailed, match=r"^failed: dragoman.WrongArguments: argument 'text' of shorten: wrong type$"):
        handle.result(timeout=60)
    view = handle.job()
    assert view.error is not None
    assert (view.quarantined, len(view.attempts), view.error.permanent) == (True, 1, True)
    unlucky = shorten.with_options(attempts=2, retry_first=0.01).enqueue("unlucky")
    with pytest.raises(JobFailed, match="RangeError: not today") as failed:
        unlucky.result(timeout=60)
    assert "task_worker.js" in failed.value.remote_traceback
    assert len(unlucky.job().attempts) == 2


ARGUMENTS = {"shortened": {"text": "so", "cut": 1, "names": {}, "at": "2026-11-16T13:00:00+01:00"}}


def test_programs_in_other_languages_call_tasks(
    dragoman_worker_of: Callable[..., None], broker: LocalBroker, programs: Programs
) -> None:
    dragoman_worker_of(describe, pack, pack_cbor)
    http = broker.urls["http"]

    def by_node(arguments: object) -> str:
        words = ("call", http, "texts/describe", json.dumps(arguments))
        return printed(programs.start("node", STRANGERS / "task_worker.js", *words))

    def by_curl(arguments: object) -> str:
        address = f"{http}/v1/call/texts%2Fdescribe"
        return printed(programs.start(*CURL, "--data-binary", json.dumps(arguments), address))

    def check(arguments: dict[str, Any], answer: str) -> None:
        assert by_node(arguments) == (answer if ":" in answer else json.dumps(answer))
        found = json.loads(by_curl(arguments))
        assert (f"{found['error']['type']}: {found['error']['message']}" if ":" in answer else found) == answer

    wrong = "dragoman.WrongArguments"
    check_every_row(
        check,
        [
            (ARGUMENTS, "so (Monday)"),
            (ARGUMENTS | {"marks": ["!", "?"], "loud": True}, "SO!? (MONDAY)"),
            ({}, f"{wrong}: argument 'shortened' of texts/describe is missing"),
            (
                ARGUMENTS | {"loud": 1},
                f"{wrong}: argument 'loud' of texts/describe: expected `bool`, got `int`",
            ),
            (
                ARGUMENTS | {"quiet": True},
                f"{wrong}: texts/describe has no parameter 'quiet'; its parameters: shortened, marks, loud",
            ),
        ],
    )


# Maps of two entries and one, byte by byte: {"data": 0x00ff, "times": 3} and {"data": 0x00ff}
MSGPACK = (b"\x82\xa4data\xc4\x02\x00\xff\xa5times\x03", b"\x81\xa4data\xc4\x02\x00\xff")
CBOR = (b"\xa2\x64data\x42\x00\xff\x65times\x03", b"\xa1\x64data\x42\x00\xff")


def test_bytes_of_the_binary_formats_are_those_of_their_specifications(
    dragoman_worker_of: Callable[..., None], broker: LocalBroker, programs: Programs
) -> None:
    dragoman_worker_of(pack, pack_cbor)

    def check(service: str, payload: bytes, result: bytes) -> None:
        (programs.folder / "payload").write_bytes(payload)
        out = programs.folder / "result"
        words = (
            "--data-binary",
            f"@{programs.folder}/payload",
            "--output",
            out,
            f"{broker.urls['http']}/v1/call/{service}",
        )
        printed(programs.start(*CURL, "--fail-with-body", *words))
        assert out.read_bytes() == result

    check_every_row(
        check,
        [
            ("pack", MSGPACK[0], b"\xc4\x06" + b"\x00\xff" * 3),
            ("pack", MSGPACK[1], b"\xc4\x04" + b"\x00\xff" * 2),
            ("pack_cbor", CBOR[0], b"\x46" + b"\x00\xff" * 3),
            ("pack_cbor", CBOR[1], b"\x44" + b"\x00\xff" * 2),
        ],
    )
    assert msgspec.msgpack.decode(MSGPACK[0]) == {"data": b"\x00\xff", "times": 3}


def printed(program: Program) -> str:
    assert program.ends() == 0, program.err
    return program.out.strip()


@pytest.fixture
def dragoman_worker_of(broker: LocalBroker) -> Iterator[Callable[..., None]]:
    """Starts a worker of tasks in a thread."""
    from dragoman.testing.workers import WorkerThread

    started: list[WorkerThread] = []

    def start(*tasks: Any) -> None:
        started.append(WorkerThread(broker, tasks, {}))

    yield start
    for each in started:
        each.close()
