"""The simulation of large clusters, in small: `python -m bench.scale` runs it with 32 brokers and 100,000 workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.scale import Report, Size, simulate, text
from bench.scale_model import Cluster, Member
from dragoman.cluster.link import Link
from dragoman.cluster.records import AnyRecord, Packet, read_records

SMALL = Size(brokers=3, workers=60, jobs=2_000, services=4, run_time=0.2)


def every_job_has_one_outcome(report: Report) -> None:
    jobs = report.size.jobs
    assert (report.submitted, report.done) == (jobs, jobs), text(report)
    assert (report.lost, report.doubled, report.wrong, report.left_over) == (0, 0, 0, 0), text(report)
    assert 0.2 < report.hop_share < 0.95, text(report)


def test_every_job_has_one_outcome() -> None:
    report = simulate(SMALL)
    every_job_has_one_outcome(report)
    assert report.ran_twice == 0
    assert report.local_waits.jobs + report.hop_waits.jobs == SMALL.jobs
    assert report.busy == report.gives - report.hop_waits.jobs


def test_every_job_has_one_outcome_when_nats_loses_messages() -> None:
    report = simulate(Size(brokers=3, workers=60, jobs=1_000, services=4, run_time=0.2, loss=0.02, seed=1))
    every_job_has_one_outcome(report)
    assert report.ran_twice == 0
    assert report.lost_messages > 10


def test_messages_do_not_grow_with_workers_or_heartbeats() -> None:
    """C10. The same jobs a second on ten times as many workers, which send heartbeats ten times as often. With more
    idle workers, fewer jobs wait and are answered busy, so there are rather fewer messages."""
    few = simulate(Size(brokers=3, workers=60, jobs=1_000, services=4, run_time=0.2, heartbeat=5.0))
    many = simulate(Size(brokers=3, workers=600, jobs=1_000, services=4, run_time=0.2, heartbeat=0.5, load=0.07))
    every_job_has_one_outcome(many)
    assert many.idle_gossip.published == few.idle_gossip.published
    assert many.idle_links.published == few.idle_links.published == 0
    assert many.messages_per_job < 1.1 * few.messages_per_job


receive = Link.receive


def receive_again(link: Link, packet: Packet, now: float) -> list[AnyRecord]:
    """A planted bug: a link that does not drop packets which it has had."""
    return receive(link, packet, now) or (read_records(packet.body) if packet.number else [])


def test_a_planted_bug_is_found_messages_that_are_processed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Cluster.publish

    def twice(self: Cluster, sender: Member, subject: bytes, payload: bytes) -> None:
        publish(self, sender, subject, payload)
        publish(self, sender, subject, payload)

    monkeypatch.setattr(Cluster, "publish", twice)
    right = simulate(SMALL)
    every_job_has_one_outcome(right)
    assert right.ran_twice == 0
    monkeypatch.setattr(Link, "receive", receive_again)
    assert simulate(SMALL).ran_twice > 0
