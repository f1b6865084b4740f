"""Metrics of the other brokers of a cluster: an interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dragoman.core.model import Payload
from dragoman.core.owners import Owner

# Texts by broker; None: the broker has not answered in time.
ReceiveMetrics = Callable[[dict[str, Payload | None]], None]


class MetricSources(Protocol):
    """The other brokers of the cluster. `name`: of this one."""

    @property
    def name(self) -> str: ...

    def gather(self, owner: Owner, is_openmetrics: bool, done: ReceiveMetrics) -> None:
        """Ask the other brokers for their metrics, each with the label `broker`. `done` is called once."""
