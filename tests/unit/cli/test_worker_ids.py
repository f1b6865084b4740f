"""Worker ids: as many of the last digits as tell workers apart."""

from __future__ import annotations

from typing import Any

import click
import pytest

from dragoman.cli.worker_ids import short_ids, worker_id
from dragoman.operations.list_schemas import WorkersView
from dragoman.operations.schemas import (
    WorkerView,
)


class Client:
    """Answers the operation `workers`."""

    def __init__(self, *ids: int) -> None:
        self._ids = ids

    def operation(self, row: Any, request: Any) -> WorkersView:
        facts: dict[str, Any] = {"name": "w", "dialect": "native", "state": "idle", "services": [], "capacity": 1}
        facts |= {"running": [], "stuck": 0, "comes_back": False, "silent": 0.0, "lease": None}
        return WorkersView(workers=[WorkerView(id=id, **facts) for id in self._ids])


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([], []),
        ([1, 17, 123_456], ["1", "17", "123456"]),
        ([4_294_967_297, 4_294_967_298], ["7297", "7298"]),
        ([4_294_967_297, 4_294_977_297, 5], ["67297", "77297", "5"]),
    ],
)
def test_lists_show_as_many_digits_as_tell_workers_apart(ids: list[int], texts: list[str]) -> None:
    assert list(short_ids(ids).values()) == texts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7298", 4_294_967_298),
        ("4294967298", 4_294_967_298),
        ("98", 98),  # too short to name another worker by accident
        ("9999", 9_999),  # nobody: the broker refuses it
        ("123456", 123_456),  # a whole number wins
    ],
)
def test_last_digits_name_a_worker(text: str, found: int) -> None:
    client: Any = Client(4_294_967_297, 4_294_967_298, 123_456, 7_000_123_456)
    assert worker_id(client, text) == found


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("7297", 1, "worker 7297: 2 workers end with these digits: 4294967297, 4294977297. Type more digits"),
        ("up", 2, "worker 'up': a worker's number is digits only, as `dragoman workers` lists it"),
    ],
)
def test_text_that_names_no_one_worker_is_an_error(
    text: str, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client: Any = Client(4_294_967_297, 4_294_977_297)
    with pytest.raises(click.exceptions.Exit) as ended:
        worker_id(client, text)
    assert (ended.value.exit_code, capsys.readouterr().err) == (code, f"dragoman: {told}\n")
