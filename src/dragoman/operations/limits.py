"""Limits of services: the view, and the values of operators in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from dragoman.core.broker import Broker
from dragoman.core.limit_values import LimitValues, Rate, read_rate
from dragoman.core.model import Service
from dragoman.core.reached_limits import limit_of_queue
from dragoman.operations.schemas import LimitsView

LIMITS = "limits/"  # prefix of the keys whose value is a JSON object


class StoredLimits(msgspec.Struct, omit_defaults=True):
    """The limits that an operator has set for one service. 0 and `none`: no limit."""

    by: str
    max_running: int | None = None
    max_running_per_tenant: int | None = None
    rate: str | None = None


def limits_view(service: Service, now: float) -> LimitsView | None:
    """Return the limits that hold; None if there are none."""
    limits = service.limits
    if limits is None or limits.setting.is_empty:
        return None
    setting = limits.setting
    authors = {
        "max_running": setting.max_running_by,
        "max_running_per_tenant": setting.max_running_per_tenant_by,
        "rate": setting.rate_by,
    }
    return LimitsView(
        max_running=setting.max_running,
        max_running_per_tenant=setting.max_running_per_tenant,
        rate=None if setting.rate is None else str(setting.rate),
        authors={name: author for name, author in authors.items() if author},
        reached=limit_of_queue(service, now),
    )


def store_limits(service: Service, note: Callable[[str, str | None], None]) -> None:
    """Store the limits that an operator has set."""
    limits = service.limits
    if limits is None or limits.by_operator.is_empty:
        note(LIMITS + service.name, None)
        return
    values = limits.by_operator
    rate = None if values.rate is None else str(values.rate)
    stored = StoredLimits(limits.operator, values.max_running, values.max_running_per_tenant, rate)
    note(LIMITS + service.name, msgspec.json.encode(stored).decode())


def restore_limits(broker: Broker, notes: Mapping[str, str], now: float) -> list[str]:
    """Limit the services that an operator had limited in an earlier run. Returns the names of those whose values cannot
    be read: they come from a later release."""
    unread = []
    for key, text in notes.items():
        if key.startswith(LIMITS):
            name = key.removeprefix(LIMITS)
            try:
                stored = msgspec.json.decode(text, type=StoredLimits)
                values = LimitValues(stored.max_running, stored.max_running_per_tenant, _rate(stored.rate))
            except (msgspec.MsgspecError, ValueError):
                unread.append(name)
            else:
                broker.limiter.set_by_operator(name, values, stored.by, now)
    return unread


def _rate(text: str | None) -> Rate | None:
    return None if text is None else read_rate(text)
