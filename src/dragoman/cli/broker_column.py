"""Brokers of a cluster in tables: a column with the broker that has a row, a line about brokers without an answer."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec import UNSET, UnsetType

from dragoman.cli.tables import plain
from dragoman.sdk.operation_steps import Page

Names = str | list[str] | UnsetType


def with_brokers(
    titles: Sequence[str], rows: Sequence[Sequence[object]], brokers: Sequence[Names]
) -> tuple[list[str], list[list[object]]]:
    """Return titles and rows with a column of brokers before the last one, if the broker is in a cluster."""
    if not any(each is not UNSET for each in brokers):
        return list(titles), [list(row) for row in rows]
    title = "BROKERS" if any(isinstance(each, list) for each in brokers) else "BROKER"
    shown = [
        [*row[:-1], ", ".join(each) if isinstance(each, list) else "" if each is UNSET else each, row[-1]]
        for row, each in zip(rows, brokers, strict=True)
    ]
    return [*titles[:-1], title, titles[-1]], shown


def noted(page: Page) -> Page:
    """Return the page. Brokers whose part is missing are named on standard error."""
    note_unanswered(page.unanswered, page.unanswered_shards)
    return page


def note_unanswered(brokers: list[str] | UnsetType, shards: list[int] | UnsetType = UNSET) -> None:
    if brokers is not UNSET and brokers:
        which = "Broker" if len(brokers) == 1 else "Brokers"
        names = plain(", ".join(brokers))
        verb = "has" if len(brokers) == 1 else "have"
        click.echo(f"{which} {names} {verb} not answered: this is the rest of the cluster.", err=True)
    if shards is not UNSET and shards:
        which = "Shard" if len(shards) == 1 else "Shards"
        verb = "has" if len(shards) == 1 else "have"
        numbers = ", ".join(map(str, shards))
        click.echo(f"{which} {numbers} {verb} no broker that answers: what is in them is missing here.", err=True)
