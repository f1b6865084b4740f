"""Merges the views of one service at several brokers of a cluster: numbers are added, a quantile is the highest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from dragoman.operations.schemas import ServiceView
from dragoman.operations.service_need import service_need

Parts = Mapping[str, Any]  # views by broker: that of the broker which merges first, then by name


def merge_service(request: Any, parts: Parts, now: float) -> ServiceView:
    views: list[ServiceView] = list(parts.values())
    first = views[0]
    paused = next((each for each in views if each.paused), None)
    waiting, workers = sum(each.waiting for each in views), sum(each.workers for each in views)
    oldest = max(each.oldest for each in views)
    done, undone = _sum(each.done for each in views), _sum(each.undone for each in views)
    limited = [each.limits for each in views if each.limits is not None]
    return replace(
        first,
        paused=paused is not None,
        paused_by=paused.paused_by if paused is not None else "",
        paused_at=earliest(each.paused_at for each in views),
        waiting=waiting,
        delayed=sum(each.delayed for each in views),
        dependent=sum(each.dependent for each in views),
        running=sum(each.running for each in views),
        oldest=oldest,
        workers=workers,
        idle=sum(each.idle for each in views),
        slots=sum(each.slots for each in views),
        ended=added(each.ended for each in views),
        arrived=_sum(each.arrived for each in views),
        done=done,
        undone=undone,
        wait=_slowest(each.wait for each in views),
        run=_slowest(each.run for each in views),
        dialects=sorted({dialect for each in views for dialect in each.dialects}),
        need=service_need(waiting, oldest, workers, paused is not None, done or 0.0, undone or 0.0),
        limits=next((each for each in limited if each.reached is not None), limited[0] if limited else None),
        parameters=next((each.parameters for each in views if each.parameters is not None), None),
        brokers=sorted(name for name, each in parts.items() if _has_part(each)),
    )


def _has_part(view: ServiceView) -> bool:
    return bool(view.workers or view.waiting or view.delayed or view.dependent or view.running)


def _sum(numbers: Iterable[float | None]) -> float | None:
    known = [each for each in numbers if each is not None]
    return round(sum(known), 3) if known else None


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def earliest(moments: Iterable[datetime | None]) -> datetime | None:
    return min((each for each in moments if each is not None), default=None)


def _slowest(quantiles: Iterable[list[float | None]]) -> list[float | None]:
    """Return the highest p50, p95 and p99 of all brokers: those of all jobs together cannot be known from them."""
    return [max((each for each in column if each is not None), default=None) for column in zip(*quantiles, strict=True)]
