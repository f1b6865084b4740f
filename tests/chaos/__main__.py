"""Run a chaos campaign: `make chaos`, or `python -m chaos --jobs 2000 --seconds 60 --seed 1` in the folder `tests`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from chaos.campaign import Campaign, Plan
from chaos.disks import NoDisks, check_disks


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description="Three brokers on three NATS servers, and faults."
    )
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs and calls [default: 20000]")
    parser.add_argument("--seconds", type=float, default=600.0, help="time in which they are submitted [default: 600]")
    parser.add_argument("--seed", type=int, default=1, help="of jobs and faults [default: 1]")
    parser.add_argument("--workers", type=int, default=2, help="of each dialect [default: 2]")
    parser.add_argument("--strict", action="store_true", help="brokers check every invariant after every step; slow")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the output of all processes")
    parser.add_argument(
        "--power",
        choices=("synced", "unsynced"),
        default="",
        help="cut the power of all NATS servers, and break nothing else: again and again with sync_interval always; or "
        "once without it, which shows what is lost then; needs root",
    )
    given = parser.parse_args()
    if given.power:
        try:
            check_disks()
        except NoDisks as problem:
            parser.error(str(problem))
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    flags = ("--strict",) if given.strict else ()
    plan = Plan(given.jobs, given.seconds, given.seed, workers=given.workers, flags=flags, power=given.power)
    if given.power:  # after a cut, the servers elect leaders for some seconds
        plan = replace(plan, every=(14.0, 20.0), lasts=(0.5, 2.0), faults=1 if given.power == "unsynced" else None)
    campaign = Campaign(plan, folder)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        campaign.run()
    finally:
        print("\n".join(campaign.story))
        if given.keep:
            print(f"output of all processes: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    width = max(len(name) for name, _ in campaign.lines)
    for name, value in campaign.lines:
        print(f"{name:<{width}}  {value}")
    for kind, examples in campaign.record.violations.items():
        print(f"\n{kind}: {len(examples)}, such as", *examples[:5], sep="\n  ", file=sys.stderr)
    return 1 if campaign.record.violations else 0


if __name__ == "__main__":
    sys.exit(main())
