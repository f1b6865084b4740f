"""Rows of the table of operations that return the dashboard's data."""

from __future__ import annotations

from typing import Final

from dragoman.operations.dashboard_schemas import OverviewRequest, OverviewView, SeriesView, ServiceSeriesRequest
from dragoman.operations.operation import Operation

OVERVIEW: Final = Operation(
    name="overview",
    request=OverviewRequest,
    view=OverviewView,
    summary="Show the state and the history of the broker, in a cluster those of all brokers. The view has totals, "
    "services, findings that need attention, changes, and the series of a range. Without `see` over all services, only "
    "visible services are shown.",
    right="see",
    target="list",
    method="GET",
    path="/v1/overview",
    answered_by="all",
    errors=("conflict",),
)
SERVICE_SERIES: Final = Operation(
    name="service series",
    request=ServiceSeriesRequest,
    view=SeriesView,
    summary="Show the history of one service: rates, waiting and running jobs, quantiles of wait and run times. The "
    "history is in memory and begins with the start of the broker. In a cluster, those of all brokers are added up; a "
    "quantile is the highest of them.",
    right="see",
    target="service",
    method="GET",
    path="/v1/services/{name}/series",
    answered_by="all",
    errors=("not found", "conflict"),
    command="show-history",
    subject="service",
)
