"""Calls of broker sides that are not about messages: dials, ends of processes, bad messages and log lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from mypy_extensions import mypyc_attr

from dragoman.carriers.carrier import Carrier
from dragoman.core.owners import Owner
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import DEFAULT_LIMITS
from dragoman.server.connection_registry import ConnectionRegistry
from dragoman.server.host_access import HostAccess
from dragoman.server.reports import Reports


@mypyc_attr(allow_interpreted_subclasses=True)
class SideCalls(BrokerIO):
    """Passes these calls on to the parts that execute them. Every connection of a broker side is a StreamConnection."""

    registry: ConnectionRegistry
    host_access: HostAccess
    _reports: Reports

    def dial(
        self, session: BrokerSide, place: object, socket_name: str, carrier: Carrier, owner: Owner, limits: Any = None
    ) -> StreamConnection:
        return self.host_access.dial(session, place, socket_name, carrier, owner, limits or DEFAULT_LIMITS)

    def when_settled(self, whose: Connection, call: Callable[[float], object]) -> None:
        self.host_access.when_settled(cast(StreamConnection, whose), call)

    def when_process_ends(self, whose: Connection, call: Callable[[float], None]) -> Callable[[], None] | None:
        return self.host_access.when_process_ends(cast(StreamConnection, whose), call)

    def bad_message(self, sender: Connection, reason: str, detail: str = "") -> None:
        self.registry.bad_message(cast(StreamConnection, sender), reason, detail)

    def remark(self, event: str, /, *, level: str = "info", peer: Connection | None = None, **fields: object) -> None:
        self._reports.remark(event, level=level, peer=peer, **fields)

    def remark_limited(self, event: str, /, *, peer: Connection, level: str = "info", **fields: object) -> None:
        self._reports.remark_limited(event, level=level, peer=peer, **fields)

    def log_limited(self, event: str, /, *, peer: Connection | None = None, **fields: object) -> None:
        self._reports.log_limited(event, peer=peer, **fields)
