"""The short form of `make chaos`: a few hundred jobs of a cluster while brokers and NATS servers are killed and cut."""

from __future__ import annotations

from pathlib import Path

from chaos.campaign import Campaign, Plan


def test_a_cluster_keeps_its_promises_while_processes_are_killed_frozen_and_cut(tmp_path: Path) -> None:
    """This seed kills a broker and a server, and cuts the routes between servers."""
    plan = Plan(jobs=240, seconds=5.0, seed=21, every=(0.5, 2.0), lasts=(1.0, 3.5), workers=1, faults=3, shards=3)
    campaign = Campaign(plan, tmp_path)
    campaign.run()
    table = "\n".join(f"{name}: {value}" for name, value in campaign.lines)
    assert not campaign.record.violations, (campaign.record.violations, table, campaign.story)
    assert campaign.record.counts["jobs with a key"] > 50, table
    assert campaign.record.counts["jobs without a key"] > 20, table
