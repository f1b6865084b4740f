"""The broker process: start, listen, drain on a signal, stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from dragoman.access.location import AccessPlaces
from dragoman.core.admission import BROKER_STOPS
from dragoman.core.broker import Broker
from dragoman.core.errors import InvariantBroken
from dragoman.http.all_bodies import AllBodies
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import HealthView
from dragoman.sdk.address import AddressError, TcpAddress
from dragoman.server import clock
from dragoman.server.access_control import AccessControl
from dragoman.server.asyncio_host import AsyncioHost
from dragoman.server.authentication import Authentication
from dragoman.server.certificate_watch import CertificateWatch
from dragoman.server.config import Config, default_data_dir
from dragoman.server.configured_limits import admission_limits
from dragoman.server.dashboard_source import make_dashboard
from dragoman.server.datadir import DataFolder, first_id_without_folder
from dragoman.server.event_log import EventLog, log_operations
from dragoman.server.event_loop import loop_factory
from dragoman.server.input_taps import ABORT, DRAIN, LOAD, NO_TAPS, OPERATIONS, STOP, InputTaps
from dragoman.server.log import make_log
from dragoman.server.open_store import open_shard_store, open_store, store_problems
from dragoman.server.recent_faults import RecentFaults
from dragoman.server.restore import Restore, prepare_restore
from dragoman.server.runner import Runner
from dragoman.server.sd_notify import SdNotifier
from dragoman.server.server_facts import BrokerFacts
from dragoman.server.state_dump import dump
from dragoman.server.tuning import protect_secrets, tune_process
from dragoman.server.wiring import Listener, ServerContext, default_listeners, optional_listeners, prepare
from dragoman.store.null import NullStore
from dragoman.store.schema import make_store
from dragoman.store.sealing import Progress
from dragoman.store.sqlite import SqliteStore
from dragoman.streams.tls_context import ListenerTls

if TYPE_CHECKING:
    from dragoman.cluster.store import ShardStore
    from dragoman.http.broker_side import HttpBrokerSide
    from dragoman.http.server import HttpServer
    from dragoman.server.cluster_member import ClusterMember

EXIT_BROKEN_INVARIANT = 70
EXIT_DISK = 74
MANY_FAULTS = 10  # internal errors a minute (R27)
SHUTDOWN_GRACE = 2.0  # seconds to store and send the last decisions


Opened = list[tuple[Listener, list[tuple[str, str]]]]  # every listener, with (role, address) of its sockets


class Server:
    """One broker on one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        first_worker: int,
        log: Any,
        now: Callable[[], float] = clock.now,
        *,
        folder: Path | None = None,
        release: str = "",
        progress: Progress | None = None,
        access: AccessPlaces | None = None,
        no_access: bool = False,
        taps: InputTaps = NO_TAPS,
    ) -> None:
        """`folder`: the data folder; None: nothing is stored. `release`: the version that the store is signed with.
        `progress` is called while the store is upgraded; without it, the log has a line each second. `access`: places
        of the access folder; `no_access` confirms that there is none any more. `taps` may record all inputs. Raises
        AccessError."""
        self._loop = loop
        self._release = release
        self._now = now
        self._config = config
        self._log = log
        self._taps = taps
        limits = admission_limits(config)
        taps.begin(config, limits, first_worker, release, log)
        entropy = clock.ClusterEntropy() if config.cluster else clock.SystemEntropy()
        self.broker = Broker(config.policy, taps.entropy(entropy), first_worker=first_worker)
        if config.ladders:
            self.broker.job_registry.conversations.start()
        self.stopped: asyncio.Future[int] = loop.create_future()
        self.store: SqliteStore | NullStore | ShardStore = NullStore()
        if config.cluster:
            self.store = open_shard_store(loop, folder, config, release, log, now)
        elif folder is not None:
            self.store = open_store(loop, folder, config, release, log, progress, self._store_failed)
        store, tapped_now = taps.store(self.store), taps.clock(now)
        self.runner = Runner(self.broker, store, tapped_now, self._write_log, limits, strict=config.strict)
        self._run_once = taps.run_once(self.runner.run_once)
        ahead = time.time() - now()  # with a virtual clock, the wall clock follows it
        self._offset = offset = clock.wall_offset if now is clock.now else lambda: ahead
        self.operations = OperationHandlers(
            self.broker, self.runner.store_access, store, taps.offset(offset), self.health
        )
        self.operations.slices.step_of = taps.slices(self.operations.slices.step_of)
        self.operations.read_match = self.broker.job_registry.kept.quarantine.read_group = taps.text_fact
        self.dashboard = make_dashboard(self.runner, self.operations, self.health, offset, now, limits.max_connections)
        taps.watch(self.runner)
        EventLog(self.broker.events, self._write_log, config.drain_timeout, self.runner.reports.lines)
        self.authentication = Authentication(self.broker.principals)
        self.access_control = AccessControl(
            self.broker,
            self.runner.connections,
            self.authentication,
            access or AccessPlaces(data=folder),
            log,
            self._certificates,
            no_access=no_access,
            taps=taps,
        )
        self.operations.reload_table = taps.reload(self.access_control.reload_on_request)
        self.facts = BrokerFacts(self.runner, config, self.store, release, self.dashboard.instance, now(), offset)
        self.operations.server_facts = self.facts
        self.host = AsyncioHost(loop, self.runner, now, self.authentication, taps)
        self._restoring: Restore | None = None
        if isinstance(self.store, SqliteStore):
            self.operations.durability = lambda: "disk"
            kept, began = taps.store(self.store), now()
            taps.restored(self.store.last_number, self.store.notes(), began, began + offset())
            self._restoring = Restore(kept, self.runner, tapped_now, self._loaded)
            prepare_restore(self._restoring, self.operations.scheduler, offset(), began, log)
        log_operations(self.operations, self.runner.reports.lines, now)
        self._http: list[tuple[HttpServer, HttpBrokerSide]] = []
        self._certificate_watch = CertificateWatch(log, self.access_control.expiries)
        self._faults = RecentFaults(self.broker.counters, now)
        self._listeners: list[Listener] = []
        self._member: ClusterMember | None = None
        self._is_open = self._is_draining = self._is_stopping = False

    def listen(self) -> Opened:
        """Open every listener. Returns them with (role, address) of their sockets."""
        bodies = AllBodies(self.broker.job_registry.memory)
        context = ServerContext(
            *(self._loop, self.operations, self._now, self.health, self._http, self.access_control, bodies),
            dashboard=self.dashboard,
            taps=self._taps,
        )
        urls = self._config.listen or default_listeners(os.environ)
        optional = () if self._config.listen else optional_listeners(os.environ)
        needed = [prepare(url, self.broker, self.runner, context) for url in urls if url not in optional]
        self.runner.sessions.append(self.operations)
        self._taps.note(OPERATIONS, self._now())
        opened = [(listener, self._open(listener)) for listener in needed]
        for url in optional:
            sessions = len(self.runner.sessions)
            try:
                listener = prepare(url, self.broker, self.runner, context)
                opened.append((listener, self._open(listener)))
            except (OSError, AddressError) as error:
                del self.runner.sessions[sessions:]
                self._taps.not_opened(sessions)
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                self._log.warning("listener not opened", url=url, reason=reason, note="all others are open")
        self._listeners = [listener for listener, _ in opened]
        self.facts.opened = opened
        self.operations.listeners.update(self.facts.urls())
        if self._config.cluster:
            self._member = self._join_cluster(context)
        self._is_open = True
        self.host.start()
        self.access_control.start(self._loop)
        self._certificate_watch.start(self._loop)
        self.dashboard.start(self._loop)
        self._loop.set_exception_handler(self._unhandled_exception)
        if self._restoring is not None:
            self._taps.note(LOAD, self._now())
            self._restoring.start()
        return opened

    def _join_cluster(self, context: ServerContext) -> ClusterMember:
        from dragoman.server.cluster_member import ClusterMember

        facts: Any = (self.store, self._now, self._release, self.access_control.digest)
        member = ClusterMember(self._config, self.runner, *facts)
        member.serve(context, self._offset)
        member.show(self.dashboard)
        return member

    def _open(self, listener: Listener) -> list[tuple[str, str]]:
        """Open a listener. Returns (role, address) of its sockets. If one fails, the others are closed again."""
        places = []
        listener.before_open()
        try:
            for who, listener_socket in listener.sockets:
                place = self.host.listen(listener_socket, listener.access)
                transport = listener.address.transport
                scheme = transport if transport in ("http", "https", "tls") else "tcp"
                places.append((who, f"{scheme if isinstance(place, TcpAddress) else 'ipc'}://{place}"))
                if listener.is_open_at(place):
                    self._log.warning("listening without authentication", place=str(place), url=listener.address.url)
            listener.when_open()
        except OSError:
            for _, listener_socket in listener.sockets:
                self.host.close_listener(listener_socket.place)
            raise
        return places

    def protect_secrets(self) -> None:
        """Protect the memory of this process, if secret keys are in it."""
        if self.authentication.has_curve_key or self._certificates():
            protect_secrets()

    def _certificates(self) -> list[ListenerTls]:
        return [listener.tls for listener in self._listeners if listener.tls is not None]

    @property
    def is_loading(self) -> bool:
        """True if jobs of an earlier run are still being restored: until then, not every job is known."""
        return self.broker.job_registry.is_loading

    def health(self) -> HealthView:
        """True if new jobs are accepted now, with the problems if not."""
        side = self._member.side if self._member is not None else None
        problems, degraded = store_problems(self.store, side, self._now())
        if not self._is_open:
            problems.append("not every listener is open")
        if self._is_draining:
            problems.append("the broker is about to stop")
        problems += self._certificate_watch.problems()
        if (faults := self._faults.count()) >= MANY_FAULTS:
            problems.append(f"{faults} internal errors within a minute")
        return HealthView(
            ready=not problems,
            problems=problems,
            version=self._release,
            jobs=self.broker.job_registry.present,
            workers=len(self.broker.worker_registry.workers),
            peers=len(self.runner.connections.peers) + sum(server.connections for server, _ in self._http),
            draining=self._is_draining,
            loading=self.is_loading,
            degraded=degraded,
            replicas=self._member.lack if self._member is not None and not problems else "",
        )

    def close(self) -> bool:
        """End every connection, then let the store write what is pending. False: not everything was written."""
        self.access_control.close()
        self._certificate_watch.close()
        self.dashboard.close()
        for server, _ in self._http:
            server.abort()
        self.host.close()
        self.runner.drops.close()
        self.runner.reports.lines.flush()
        problem = self.store.close()
        self._taps.close()
        if problem is not None:  # R101: some delivered outcomes are not on disk, so their jobs run again
            self._log.error("store write failed", problem=problem)
        return problem is None

    def status(self) -> str:
        """Return a short status for the supervisor."""
        workers, peers = len(self.broker.worker_registry.workers), len(self.runner.connections.peers)
        return f"serving: {self.broker.job_registry.present} jobs, {workers} workers, {peers} peers"

    def drain(self) -> None:
        """First signal: refuse new jobs and let running ones finish. Second: stop at once."""
        if self._is_stopping:
            self._set_stopped()
            return
        if self._is_draining:
            self._stop("second signal")
            return
        self._is_draining = True
        self._taps.note(DRAIN, now := self._now())
        self.broker.operator.close(now)
        if self._member is not None:
            self._member.drain(now)
        for _, session in self._http:
            session.close()
        self._run_once()
        self._stop_when_drained(self._now() + self._config.drain_timeout)

    def _stop_when_drained(self, until: float) -> None:
        is_writing = self.runner.connections.registry.is_writing
        if not (self._running() or is_writing or self._is_saving()):
            self._stop("drained")
        elif self._now() >= until:
            self._stop("drain_timeout passed")
        else:
            self._loop.call_later(0.02, self._stop_when_drained, until)

    def _is_saving(self) -> bool:
        """True if a decision is not committed yet, or background jobs of a cluster are still being handed over."""
        is_drained = self._member is None or self._member.is_drained
        return self.broker.job_registry.pending_commits.is_holding or not is_drained

    def _running(self) -> int:
        return sum(len(worker.running) for worker in self.broker.worker_registry.workers.values())

    def _stop(self, reason: str) -> None:
        if self._is_stopping or self.stopped.done():
            return
        self._is_stopping = True
        self._log.info("stopping", reason=reason, running=self._running())
        self.host.stop_listening()  # clients that reconnect must not connect to this broker again
        self._taps.note(ABORT, now := self._now())
        if self._member is not None:
            self._member.give_up(now)
        self.broker.operator.abort(now)
        self._run_once()
        self._stop_when_saved(self._now() + SHUTDOWN_GRACE)

    def _stop_when_saved(self, until: float) -> None:
        """Stop after the last commits: outcomes of background jobs are delivered after they are stored."""
        if self._is_saving() and self._now() < until:
            self._loop.call_later(0.005, self._stop_when_saved, until)
        else:
            self._taps.note(STOP, now := self._now())
            self.operations.close(now)
            for listener in self._listeners:
                listener.say_goodbye(BROKER_STOPS)
            if self._member is not None:
                self._member.close()
            self._run_once()
            self._loop.create_task(self._end())

    async def _end(self) -> None:
        await self.close_http(SHUTDOWN_GRACE)
        self._set_stopped()

    async def close_http(self, timeout: float) -> None:
        """Close HTTP servers. Clients have `timeout` seconds to read their last response."""
        await asyncio.gather(*(server.close_gently(timeout) for server, _ in self._http))

    def _set_stopped(self, code: int = 0) -> None:
        if not self.stopped.done():
            self.stopped.set_result(code)

    def _store_failed(self, message: str) -> None:
        """Stop after a failure of the disk (R104). The next start reads what is really stored."""
        self._log.error("store failed", problem=message)
        self._set_stopped(EXIT_DISK)

    def _loaded(self, jobs: int, seconds: float) -> None:
        self._log.info("jobs restored", jobs=jobs, seconds=round(seconds, 3))
        for problem in self.broker.job_registry.groups.problems:
            self._log.warning("group invalid", problem=problem)

    def _write_log(self, level: str, event: str, **fields: object) -> None:
        getattr(self._log, level)(event, **fields)

    def _unhandled_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an uncaught exception. A broken invariant stops the process; its state goes to standard error."""
        error = context.get("exception")
        if isinstance(error, InvariantBroken):
            self._log.error("invariant broken", problem=str(error), exception=error)
            print(json.dumps(dump(self.broker)), file=sys.stderr)
            self._set_stopped(EXIT_BROKEN_INVARIANT)
            return
        self.broker.counters.internal_errors += 1
        self._log.error("internal error", problem=str(context.get("message")), exception=error)


def run(
    config: Config,
    environment: Mapping[str, str],
    announce: Callable[[Opened, Path | None], None],
    release: str = "",
    progress: Progress | None = None,
    settings_file: Path | None = None,
    no_access: bool = False,
    taps: InputTaps = NO_TAPS,
) -> int:
    """Run a broker until it is stopped. Returns the exit code; raises an error if it cannot start.

    `settings_file`: the access folder may be beside it. `no_access`: there is no access folder any more. `taps` may
    record all inputs.
    """
    log = make_log(config.log, config.log_level)
    folder: DataFolder | None = None
    if config.data == "memory":
        first_worker = first_id_without_folder()
    else:
        path = Path(config.data).expanduser() if config.data else default_data_dir(environment)
        folder = DataFolder(path, partial(make_store, author=release))
        first_worker = folder.first_id
    if config.cluster:
        first_worker = resolve_name("dragoman.server.cluster_member:first_worker_of")(config, first_worker)
    try:
        with asyncio.Runner(loop_factory=loop_factory(config.loop)) as runner:
            server = partial(
                Server,
                config=config,
                first_worker=first_worker,
                log=log,
                release=release,
                progress=progress,
                access=AccessPlaces(config.access, settings_file, folder.path if folder is not None else None),
                no_access=no_access,
                taps=taps,
            )
            return runner.run(_serve(server, config, folder.path if folder is not None else None, announce))
    finally:
        if folder is not None:
            folder.close()


async def _serve(
    make_server: Callable[..., Server],
    config: Config,
    folder: Path | None,
    announce: Callable[[Opened, Path | None], None],
) -> int:
    loop = asyncio.get_running_loop()
    if config.cluster:
        from dragoman.server.cluster_init import check_initialised

        await check_initialised(config)
    server = make_server(loop, folder=folder)
    notifier = SdNotifier(os.environ)

    def stop_requested() -> None:
        notifier.stopping()
        server.drain()

    try:
        opened = server.listen()
        tune_process()
        server.access_control.when_reloaded = server.protect_secrets
        server.protect_secrets()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stop_requested)
        loop.add_signal_handler(signal.SIGHUP, server.access_control.hangup)
        announce(opened, folder)  # a process that reads it may send a signal
        notifier.ready(loop, server.status)
        code = await server.stopped
    finally:
        is_whole = server.close()
        notifier.close()
    return code if is_whole else code or EXIT_DISK
