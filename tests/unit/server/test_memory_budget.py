"""Connections that are closed when payloads and data in transit together exceed max_memory (L6, R17)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.core.memory import MemoryAccount, Transit
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.memory_budget import MemoryBudget


class Peer(SimpleNamespace):
    """The part of a connection that the budget reads."""

    __hash__ = object.__hash__

    def __init__(self) -> None:
        super().__init__(
            carrier=SimpleNamespace(holding=0, release=lambda: None),
            stream=SimpleNamespace(backlog=0, sent=0, pause=lambda: None, resume=lambda: None),
            limits=ConnectionLimits(),
            holding=0,
            largest=0,
            is_lost=False,
            dialled=False,
            closing=None,
        )


@pytest.fixture
def memory() -> MemoryAccount:
    return MemoryAccount(1_600)


@pytest.fixture
def budget(memory: MemoryAccount) -> Any:
    return MemoryBudget(memory)


def receive(budget: Any, peer: Peer, size: int) -> Any:
    peer.carrier.holding = size
    return budget.check_partial(peer)


def leave_unsent(budget: Any, peer: Peer, size: int) -> Any:
    peer.stream.backlog = size
    return budget.check_unsent(peer, 0.0)


def test_largest_incomplete_message_goes_when_payloads_leave_no_room(budget: Any, memory: MemoryAccount) -> None:
    small, large = Peer(), Peer()
    assert receive(budget, large, 500) is None
    memory.payloads = 1_000
    whom, reason = receive(budget, small, 101)
    assert whom is large
    assert reason == "500 bytes of an incomplete message, the most of all connections (max_memory)"
    assert memory.transit[Transit.INCOMPLETE] == 101


def test_slowest_reader_goes_when_bodies_leave_no_room(budget: Any, memory: MemoryAccount) -> None:
    small, large = Peer(), Peer()
    assert leave_unsent(budget, large, 500) is None
    memory.set_transit(Transit.BODIES, 1_000)
    whom, reason = leave_unsent(budget, small, 101)
    assert whom is large
    assert reason == "500 bytes unsent, the most of all connections (max_memory)"


def test_reader_within_the_reserve_stays_when_payloads_take_all(budget: Any, memory: MemoryAccount) -> None:
    """Otherwise a worker that is sent a job would be closed, its job would return, and no job would ever end."""
    memory.payloads = 1_600
    assert leave_unsent(budget, Peer(), 100) is None
    assert receive(budget, Peer(), 0) is None


def test_unsent_data_that_was_taken_meanwhile_does_not_count(budget: Any, memory: MemoryAccount) -> None:
    reader = Peer()
    assert leave_unsent(budget, reader, 1_500) is None
    reader.stream.backlog = 0
    assert receive(budget, Peer(), 1_500) is None
    assert memory.fits(100)


def test_connection_that_ends_gives_its_room_back(budget: Any, memory: MemoryAccount) -> None:
    peer = Peer()
    leave_unsent(budget, peer, 300)
    receive(budget, peer, 400)
    assert memory.in_transit == 700
    budget.forget(peer)
    assert (memory.in_transit, budget.received) == (0, 0)


def test_a_reader_with_much_unsent_stays_while_it_reads_and_goes_when_it_does_not() -> None:
    """A bug: what the broker itself had piled up closed the connection at once, although the other side read all of
    it as fast as it could."""
    budget = MemoryBudget(MemoryAccount(1 << 40))
    reader, stalled, slow, small = Peer(), Peer(), Peer(), Peer()
    for peer in (reader, stalled, slow):
        assert leave_unsent(budget, peer, 500 << 20) is None
    assert leave_unsent(budget, small, 32 << 20) is None
    second, ended = 64 << 10, []
    for now in range(1, 40):
        reader.stream.sent += second
        slow.stream.sent += second - 10
        ended += [(now, peer, reason) for peer, reason in budget.stalled(float(now))]
        for _, peer, _ in ended:
            peer.closing = "over budget"
    text = f"{500 << 20} bytes unsent (max_send_buffer)"
    assert ended == [
        (10, stalled, f"{text}, 0 taken within 10 s"),
        (10, slow, f"{text}, {10 * second - 100} taken within 10 s"),
    ]
    reader.stream.backlog = 32 << 20
    assert budget.stalled(60.0) == []
    assert not budget.over


def test_a_pause_of_the_broker_does_not_count_as_a_stall() -> None:
    budget, peer = MemoryBudget(MemoryAccount(1 << 40)), Peer()
    leave_unsent(budget, peer, 500 << 20)
    budget.extend(100.0)
    assert budget.stalled(109.0) == []
    assert [each for each, _ in budget.stalled(110.0)] == [peer]
