"""Pauses and limits of services, which hold at every broker: the owner of shard 0 has them, and gossip carries them.

The owner sends all of them, so that a broker which was away has the present ones a second after it is back. While the
owner is not heard, the last ones hold.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.cluster.gossip import DeclaredLimits, Gossip, ServiceSetting, Settings
from dragoman.core.broker import Broker
from dragoman.core.limit_values import NOTHING_GIVEN, LimitValues, combine, read_rate
from dragoman.core.model import Service


def settings_of(broker: Broker) -> Settings:
    """Return the services that are paused or limited by an operator. Without times: equal while nothing is set."""
    found = {name: _setting(each) for name, each in broker.worker_registry.services.items()}
    return {name: each for name, each in found.items() if each is not None}


def with_times(settings: Settings, broker: Broker, now: float) -> Settings:
    """Return the settings with the seconds since each pause."""
    services = broker.worker_registry.services
    timed: Settings = {}
    for name, each in settings.items():
        at = services[name].paused_at if name in services else None
        if each.is_paused and at is not None:
            each = replace(each, paused_for=max(0, round(now - at)))
        timed[name] = each
    return timed


def _setting(service: Service) -> ServiceSetting | None:
    limits = service.limits
    values = NOTHING_GIVEN if limits is None else limits.by_operator
    if not service.paused and values.is_empty:
        return None
    return ServiceSetting(
        service.paused,
        service.paused_by,
        -1,
        "" if limits is None else limits.operator,
        values.max_running,
        values.max_running_per_tenant,
        None if values.rate is None else str(values.rate),
    )


def declared_here(broker: Broker) -> dict[str, DeclaredLimits]:
    """Return the lowest limits that workers of this broker have declared, by service."""
    declared: dict[str, DeclaredLimits] = {}
    for name, service in broker.limiter.limited.items():
        if service.limits is not None and service.limits.declared:
            lowest, _ = combine(NOTHING_GIVEN, "", service.limits.declared.values())
            rate = None if lowest.rate is None else str(lowest.rate)
            declared[name] = DeclaredLimits(lowest.max_running, lowest.max_running_per_tenant, rate)
    return declared


def declared_by(gossip: Gossip) -> dict[str, LimitValues]:
    """Return the limits that workers of another broker have declared."""
    found: dict[str, LimitValues] = {}
    for name, each in gossip.limits.items():
        try:
            rate = None if each.rate is None else read_rate(each.rate)
        except ValueError:
            continue  # of a later release
        found[name] = LimitValues(each.max_running, each.max_running_per_tenant, rate)
    return found


def apply_settings(broker: Broker, settings: Settings, now: float) -> None:
    """Pause and limit the services of this broker as the owner of shard 0 says. All others are resumed."""
    for name, service in list(broker.worker_registry.services.items()):
        if name not in settings:
            if service.paused:
                broker.operator.resume(name, now)
            if service.limits is not None and not service.limits.by_operator.is_empty:
                broker.limiter.set_by_operator(name, NOTHING_GIVEN, "", now)
    for name, setting in settings.items():
        _apply(broker, name, setting, now)


def _apply(broker: Broker, name: str, setting: ServiceSetting, now: float) -> None:
    known = broker.worker_registry.services.get(name)
    is_paused = known is not None and known.paused
    if setting.is_paused and not (is_paused and known is not None and known.paused_by == setting.paused_by):
        at = now - setting.paused_for if setting.paused_for >= 0 else None
        broker.operator.pause(name, setting.paused_by, at)
    elif is_paused and not setting.is_paused:
        broker.operator.resume(name, now)
    try:
        rate = None if setting.rate is None else read_rate(setting.rate)
    except ValueError:
        return  # of a later release
    values = LimitValues(setting.max_running, setting.max_running_per_tenant, rate)
    limits = known.limits if known is not None else None
    before = NOTHING_GIVEN if limits is None else limits.by_operator
    if values != before:
        broker.limiter.set_by_operator(name, values, setting.limited_by, now)
