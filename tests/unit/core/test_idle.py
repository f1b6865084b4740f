"""The list of idle workers: its order after any operation."""

from __future__ import annotations

import gc
from random import Random

import pytest

from dragoman.core.idle import IdleList


def list_of(*workers: str) -> IdleList[str]:
    idle: IdleList[str] = IdleList()
    for worker in workers:
        idle.append(worker)
    return idle


def test_workers_stand_in_the_order_they_came() -> None:
    idle = list_of("a", "b", "c")
    assert (list(idle), len(idle), idle.first()) == (["a", "b", "c"], 3, "a")


def test_an_empty_list_has_no_first() -> None:
    idle = list_of()
    assert (list(idle), len(idle), idle.first(), "a" in idle) == ([], 0, None, False)


def test_a_worker_that_is_there_keeps_its_place() -> None:
    idle = list_of("a", "b")
    idle.append("a")
    assert list(idle) == ["a", "b"]


@pytest.mark.parametrize("worker", ["a", "b", "c"])
def test_a_worker_is_removed_from_anywhere(worker: str) -> None:
    idle = list_of("a", "b", "c")
    idle.remove(worker)
    idle.remove(worker)
    assert list(idle) == [each for each in "abc" if each != worker]
    assert worker not in idle


@pytest.mark.parametrize("worker", ["a", "b", "c"])
def test_a_worker_is_moved_to_either_end(worker: str) -> None:
    others = [each for each in "abc" if each != worker]
    idle = list_of("a", "b", "c")
    assert idle.move_to_end(worker)
    assert list(idle) == [*others, worker]
    idle.prepend(worker)
    assert list(idle) == [worker, *others]


def test_a_worker_that_is_not_there_is_not_moved() -> None:
    idle = list_of("a")
    assert not idle.move_to_end("b")
    assert list(idle) == ["a"]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_plain_list_whatever_is_done_to_it(seed: int) -> None:
    chance = Random(seed)
    idle, plain = list_of(), list[str]()
    for _ in range(300):
        worker = chance.choice("abcdefg")
        act = chance.choice(["append", "prepend", "remove", "move_to_end"])
        if act == "append" and worker not in plain:
            plain.append(worker)
        elif act == "move_to_end" and worker in plain:
            plain.remove(worker)
            plain.append(worker)
        elif act in ("prepend", "remove"):
            plain = [each for each in plain if each != worker]
            if act == "prepend":
                plain.insert(0, worker)
        getattr(idle, act)(worker)
        assert list(idle) == plain
        assert (len(idle), idle.first()) == (len(plain), plain[0] if plain else None)
        assert [each for each in "abcdefg" if each in idle] == sorted(plain)


def test_who_was_removed_leaves_nothing_for_the_collector() -> None:
    idle = list_of("a", "b", "c")
    gc.collect()
    for worker in "bac":
        idle.remove(worker)
    assert gc.collect() == 0
