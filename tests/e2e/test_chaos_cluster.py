"""The short form of `make chaos`: a few hundred jobs of a cluster while brokers and NATS servers are killed and cut."""

from __future__ import annotations

from pathlib import Path

from chaos.campaign import Campaign, Plan


def test_a_cluster_keeps_its_promises_while_processes_are_killed_frozen_and_cut(tmp_path: Path) -> None:
    plan = Plan(jobs=300, seconds=8.0, seed=7, every=(1.0, 3.0), lasts=(1.0, 5.0), workers=1, least_faults=3, shards=3)
    campaign = Campaign(plan, tmp_path)
    campaign.run()
    table = "\n".join(f"{name}: {value}" for name, value in campaign.lines)
    assert not campaign.record.violations, (campaign.record.violations, table, campaign.story)
    assert campaign.record.counts["jobs with a key"] > 50, table
    assert campaign.record.counts["jobs without a key"] > 20, table
