"""Facts about the listeners and about the broker itself, for the operations `listeners` and `broker`."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dragoman.core.broker import Broker
from dragoman.core.recipients import Recipient
from dragoman.dialects.catalogue import DIALECTS
from dragoman.operations.list_schemas import BrokerView, LimitView, ListenersView, ListenerView
from dragoman.operations.views import moment
from dragoman.server.config import Config, changed_settings
from dragoman.server.listener_socket import ListenerSocket
from dragoman.server.runner import Runner
from dragoman.server.wiring import Listener
from dragoman.store.sqlite import SqliteStore

Role = Literal["worker", "caller"]
ROLES: Final[dict[str, list[Role]]] = {"workers": ["worker"], "callers": ["caller"], "both": ["worker", "caller"]}
STORE_FILES: Final = ("", "-wal", "-shm")  # ends of their names
OpenListener = tuple[Listener, list[tuple[str, str]]]  # a listener, with (role, address) of its sockets


@dataclass(slots=True)
class Traffic:
    """Connections of one listener, and the bytes of all that it has had."""

    peers: int = 0
    received: int = 0
    sent: int = 0


class BrokerFacts:
    """Reads the facts when an operation needs them. `opened` is set when the listeners are open."""

    def __init__(
        self,
        runner: Runner,
        config: Config,
        store: object,
        release: str,
        instance: str,
        started: float,
        offset: Callable[[], float],
    ) -> None:
        """`started`: time of the start. `offset`: seconds that the wall clock is ahead, now: so the view has the time
        of the start by the wall clock as it is set now, and the time since then is right."""
        self._broker = runner.broker
        self._registry = runner.connections.registry
        self._config = config
        self._release = release
        self._instance = instance
        self._started = started
        self._offset = offset
        self._max_connections = runner.connections.limits.max_connections
        self._store = store.path if isinstance(store, SqliteStore) else None
        self.opened: Sequence[OpenListener] = ()

    # ---------------------------------------------------------------- listeners

    def listeners(self) -> ListenersView:
        traffic = self._traffic()
        return ListenersView(listeners=[self._listener(each, traffic) for each in self.opened])

    def _traffic(self) -> dict[Recipient, Traffic]:
        """Return the traffic of each broker side."""
        found = {session: Traffic(0, *counts) for session, counts in self._registry.traffic.items()}
        for peer in self._registry.peers:
            traffic = found.setdefault(peer.session, Traffic())
            traffic.peers += 1
            if peer.stream is not None:
                traffic.received += peer.stream.wire_received
                traffic.sent += peer.stream.wire_sent
        for listener, _ in self.opened:
            for server, session in listener.http:
                bytes_of = server.traffic
                found[session] = Traffic(server.connections, bytes_of.received, bytes_of.sent)
        return found

    def urls(self) -> dict[Recipient, str]:
        """Return the URL of each listener by its broker side, with the port that it has."""
        found = ((_session_of(listener), _addresses(listener, places)) for listener, places in self.opened)
        return {session: _first_of(addresses) for session, addresses in found if session is not None and addresses}

    def _listener(self, opened: OpenListener, traffics: dict[Recipient, Traffic]) -> ListenerView:
        listener, places = opened
        dialect = listener.address.dialect
        addresses = _addresses(listener, places)
        session = _session_of(listener)
        traffic = traffics.get(session, Traffic()) if session is not None else Traffic()
        bad = dict(self._registry.bad_messages.get(session, {})) if session is not None else {}
        return ListenerView(
            url=_first_of(addresses) if addresses else listener.address.url,
            dialect=dialect,
            edition=listener.edition,
            frontend=addresses.get("callers"),
            roles=[each for role in addresses for each in ROLES[role]],
            peers=traffic.peers,
            received=traffic.received,
            sent=traffic.sent,
            bad=sum(bad.values()),
            bad_reasons=bad,
            insecure=any(listener.is_open_at(each.place) for _, each in listener.sockets),
        )

    # ---------------------------------------------------------------- the broker

    def broker(self) -> BrokerView:
        module = sys.modules[Broker.__module__]
        return BrokerView(
            version=self._release,
            compiled=(module.__file__ or "").endswith(".so"),
            python=platform.python_version(),
            started=moment(self._started + self._offset()),
            name=platform.node(),
            instance=self._instance,
            limits=self.limits(),
            settings={name: _text(each) for name, each in changed_settings(self._config).items()},
            store_size=self._store_size(),
        )

    def limits(self) -> list[LimitView]:
        """Return the limits of the whole broker, with what is used of each."""
        policy, registry = self._broker.policy, self._broker.job_registry
        connections = len(self._registry.peers)
        connections += sum(server.connections for listener, _ in self.opened for server, _ in listener.http)
        found = [
            ("max_jobs", registry.present, policy.max_jobs),
            ("max_memory", registry.memory.payloads + registry.memory.in_transit, policy.max_memory),
            ("max_services", len(self._broker.worker_registry.services), policy.max_services),
            ("max_outcome_bytes", registry.kept.archive.bytes, policy.max_outcome_bytes),
            ("max_kept_forever", registry.kept.forever, policy.max_kept_forever),
            ("max_connections", connections, self._max_connections),
        ]
        if (size := self._store_size()) is not None:
            found.append(("max_store_size", size, self._config.max_store_size))
        return [LimitView(name=name, used=used, of=most) for name, used, most in found]

    def _store_size(self) -> int | None:
        return None if self._store is None else sum(_size(f"{self._store}{end}") for end in STORE_FILES)


def _url(dialect: str, address: str) -> str:
    """Return a URL for workers or callers: the dialect is named where the scheme does not imply it."""
    scheme = address.partition("://")[0]
    return address if scheme in DIALECTS[dialect].schemes else f"{dialect}+{address}"


def _addresses(listener: Listener, places: list[tuple[str, str]]) -> dict[str, str]:
    """Return the URLs of a listener by role."""
    return {role: _url(listener.address.dialect, address) for role, address in places}


def _first_of(addresses: dict[str, str]) -> str:
    """Return the URL for workers, or that for both roles."""
    return addresses.get("workers") or addresses.get("both") or next(iter(addresses.values()))


def _session_of(listener: Listener) -> Recipient | None:
    """Return the broker side of a listener: that of HTTP exists once it is open."""
    for _, session in listener.http:
        return session
    for _, each in listener.sockets:
        if isinstance(each, ListenerSocket):
            return each.session
    return None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # there is no such file now
        return 0


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
