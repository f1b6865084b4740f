"""Links: records arrive in order, none is lost and none arrives twice, whatever NATS drops."""

from __future__ import annotations

from random import Random

import pytest

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.link import ACKNOWLEDGE_AFTER, HEADER, REPEAT_AFTER, REPEAT_LONGEST, Link
from dragoman.cluster.records import AnyRecord, Recall, read_packet
from dragoman.core.infinity import inf


def record(number: int, size: int = 3) -> Recall:
    return Recall(b"%d" % number, "x" * size)


def pair() -> tuple[Link, Link]:
    return Link("a", "1", 1 << 20), Link("b", "2", 1 << 20)


def pass_on(packets: list[bytes], to: Link, now: float) -> list[AnyRecord]:
    return [each for packet in packets for each in to.receive(read_packet(packet), now)]


def test_records_of_one_iteration_are_one_packet() -> None:
    a, b = pair()
    a.add(record(1))
    a.add(record(2))
    (packet,) = a.flush(0.0)
    assert pass_on([packet], b, 0.0) == [record(1), record(2)]
    assert a.flush(0.0) == []


def test_packets_are_repeated_until_they_are_acknowledged() -> None:
    a, b = pair()
    a.add(record(1))
    lost = a.flush(0.0)
    assert a.next_tick() == REPEAT_AFTER
    (again,) = a.tick(REPEAT_AFTER)
    assert again == lost[0]
    assert a.next_tick() == 3 * REPEAT_AFTER  # the delay doubles
    assert pass_on([again], b, 1.0) == [record(1)]
    assert b.next_tick() == 1.0 + ACKNOWLEDGE_AFTER
    assert pass_on(b.tick(1.0 + ACKNOWLEDGE_AFTER), a, 1.1) == []
    assert (a.next_tick(), b.next_tick()) == (inf, inf)


def test_an_answer_acknowledges() -> None:
    a, b = pair()
    a.add(record(1))
    pass_on(a.flush(0.0), b, 0.0)
    b.add(record(2))
    assert pass_on(b.flush(0.0), a, 0.0) == [record(2)]
    assert (a.next_tick(), b.next_tick()) == (ACKNOWLEDGE_AFTER, REPEAT_AFTER)  # nothing of a is repeated


def test_duplicates_are_dropped_and_acknowledged_again() -> None:
    a, b = pair()
    a.add(record(1))
    packets = a.flush(0.0)
    assert len(pass_on(packets, b, 0.0)) == 1
    assert pass_on(packets, b, 0.5) == []
    assert b.next_tick() <= 0.5


def test_packets_after_a_gap_are_dropped() -> None:
    a, b = pair()
    a.add(record(1))
    a.flush(0.0)
    a.add(record(2))
    assert pass_on(a.flush(0.0), b, 0.0) == []
    assert pass_on(a.tick(REPEAT_AFTER), b, 0.5) == [record(1), record(2)]


def test_everything_is_sent_again_after_a_reconnect() -> None:
    a, b = pair()
    for number in range(3):
        a.add(record(number))
        a.flush(0.0)
    a.reconnected(0.1)
    assert len(pass_on(a.tick(0.1), b, 0.1)) == 3


def test_large_records_are_cut_and_joined() -> None:
    a, b = pair()
    a.max_message = HEADER + 100
    a.add(record(1, 1_000))
    a.add(record(2))
    packets = a.flush(0.0)
    assert len(packets) == 11
    assert max(map(len, packets)) <= a.max_message
    assert pass_on(packets, b, 0.0) == [record(1, 1_000), record(2)]


def test_the_delay_of_repetitions_has_a_limit() -> None:
    a, _ = pair()
    a.add(record(1))
    a.flush(0.0)
    now = 0.0
    for _ in range(10):
        now = a.next_tick()
        a.tick(now)
    assert a.next_tick() - now == REPEAT_LONGEST


def test_an_acknowledgement_of_an_unknown_packet_is_malformed() -> None:
    a, b = pair()
    a.add(record(1))
    pass_on(a.flush(0.0), b, 0.0)
    other = Link("a", "1", 1 << 20)
    with pytest.raises(Malformed, match="unknown packet"):
        pass_on(b.tick(1.0), other, 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_any_loss_and_duplication_leaves_the_same_records(seed: int) -> None:
    """Both directions at once, with messages lost and doubled. NATS keeps the order of one connection."""
    random = Random(seed)
    a, b = pair()
    a.max_message = b.max_message = HEADER + 20
    sent: dict[str, list[AnyRecord]] = {"a": [], "b": []}
    received: dict[str, list[AnyRecord]] = {"a": [], "b": []}
    now, number = 0.0, 0
    while now < 30.0 or min(a.next_tick(), b.next_tick()) < inf:
        now += 0.05
        assert now < 300.0
        for name, link, other in (("a", a, b), ("b", b, a)):
            if now < 30.0 and random.random() < 0.3:
                number += 1
                made = record(number, random.choice([0, 5, 60]))
                link.add(made)
                sent[name].append(made)
            is_lossy = now < 40.0
            for packet in [*link.flush(now), *link.tick(now)]:
                for _ in range(random.choice([0, 1, 1, 1, 2]) if is_lossy else 1):
                    received[name] += other.receive(read_packet(packet), now)
    assert received == sent
