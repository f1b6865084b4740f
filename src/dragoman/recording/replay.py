"""The replay: runs a recording through the same runner, connections, broker sides and core.

The clock, random numbers, the store and the kernel answer as they did. The replay ends with an error at the first place
where the broker decides something else than it did in the recording.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dragoman.core.admission import BROKER_STOPS
from dragoman.core.broker import Broker
from dragoman.core.conversation import Conversation
from dragoman.core.entropy import Entropy
from dragoman.core.errors import InvariantBroken
from dragoman.core.events import JOB_ENDED, Event, JobEvent
from dragoman.core.infinity import inf
from dragoman.core.model import JobId, Token
from dragoman.core.policy import Policy
from dragoman.core.rights import PrincipalLimits, Rights
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import AccessView, HealthView, OperationError, View
from dragoman.operations.slices import SlicedWork
from dragoman.recording import items
from dragoman.recording.file import Recording, RecordingError
from dragoman.recording.item_reader import Diverged, Finished, ItemReader, check_begin
from dragoman.recording.items import Item
from dragoman.recording.journal import KINDS, entry_of
from dragoman.recording.replayed_listeners import plain_url
from dragoman.recording.replayed_store import ReplayedStore
from dragoman.recording.replayed_streams import ReplayedAuth, ReplayedCarrier, ReplayedStream, admitted_of, messages_of
from dragoman.server.access_control import apply_rights
from dragoman.server.admission import AdmissionLimits
from dragoman.server.authentication import Authentication
from dragoman.server.connection import StreamConnection
from dragoman.server.input_taps import ABORT, DRAIN, LOAD, OPERATIONS, RIGHTS, STOP, InputTaps
from dragoman.server.listener_socket import ListenerSocket
from dragoman.server.restore import Restore
from dragoman.server.runner import Runner
from dragoman.server.wiring import Listener, ServerContext, prepare

HEALTH = HealthView(
    ready=True, problems=[], version="", jobs=0, workers=0, peers=0, draining=False, loading=False
)  # not recorded: it reports the state of the process


class Replay(InputTaps):
    """One replay. `run` reads the whole recording; raises Diverged, RecordingError and InvariantBroken."""

    def __init__(
        self,
        path: Path,
        published: Callable[[Event, float], None] = lambda event, now: None,
        log: Callable[..., None] = lambda level, event, **fields: None,
        *,
        strict: bool = False,
        ladder: JobId | None = None,
    ) -> None:
        """`published` receives the events of the journal, with the seconds since the start. `strict`: check all
        invariants after every step. `ladder`: keep the conversation of this job. Raises OSError and RecordingError."""
        self.recording = Recording(path)
        self.reader = reader = ItemReader(self.recording)
        reader.handle = self._handle
        self._published = published
        self._ladder = ladder
        self._is_laddered = False  # that job has ended: no conversation is recorded any more, so that its own stays
        digests = _digests(self.recording)
        try:
            self.settings = settings = check_begin(reader.next(), items.BEGIN)
        except Finished:
            problem = "the recording is cut off before the settings of its broker: nothing can be replayed"
            raise RecordingError(f"{path}: {problem}; record the run again") from None
        try:
            policy, limits = Policy(**settings["policy"]), AdmissionLimits(**settings["limits"])
            self.broker = Broker(policy, ReplayedEntropy(reader), first_worker=settings["first_worker"])
        except (KeyError, TypeError, ValueError) as error:
            problem = (
                f"the settings of its broker cannot be read ({error!r}): the file is damaged, or of another version"
            )
            raise RecordingError(f"{path}: {problem}; replay it with the version that wrote it") from None
        if ladder is not None:
            self.broker.job_registry.conversations.start()
        self._store = ReplayedStore(reader, digests)
        self.runner = Runner(
            self.broker,
            self._store,
            self._read_clock,
            log,
            limits,
            dialler=self._dial,
            later=self._later,
            strict=strict,
        )
        self._connections = self.runner.connections
        self._connections.host_access.process_watch = self._watch_process
        self._operations = OperationHandlers(
            self.broker, self.runner.store_access, self._store, self._read_offset, lambda: HEALTH
        )
        self._operations.reload_table = self._reload
        self._operations.slices.step_of = self._slice
        self._operations.read_match = self._read_match
        self.broker.job_registry.kept.quarantine.read_group = self._read_group
        self._views: dict[SlicedWork, View] = {}  # of operations that took more slices in the recording
        self.broker.events.subscribe(KINDS, self._compare)
        self._restoring: Restore | None = None
        self._listeners: list[Listener] = []
        self._sockets: dict[tuple[int, str], ListenerSocket] = {}
        self._peers: dict[int, StreamConnection] = {}
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._callback_count = 0
        self._requests: dict[int, Any] = {}  # of HTTP, by the number of the broker side
        self._operation_requests: Any = None
        self._handlers: dict[str, Callable[..., Any]] = {
            items.LISTEN: self._listen,
            items.NOT_OPENED: self._not_opened,
            items.ITERATION: self.runner.run_once,
            items.CONNECTED: self._connected,
            items.ARRIVED: self._arrived,
            items.ENDED: self._ended,
            items.DIALLED: self._dialled,
            items.LATER: self._call_back,
            items.PROCESS_ENDED: self._call_back,
            items.PAUSED: lambda gap: self._connections.registry.handle_pause(self.broker, gap),
            items.SENT: lambda number, *counts: self._stream(number).apply(*counts),
            items.RESTORED: self._restored,
            items.LOADED: self._store.loaded,
            items.ALL_LOADED: lambda: self._store.finished(),
            items.SAVED: self.runner.store_access.saved,
            items.FETCHED: self._store.fetched,
            items.ACT: self._act,
            items.ACCESS: self._access,
            items.CLOSED: lambda number, reason: self._connections.close(self._peers[number], reason),
            items.HTTP: self._http_request,
            items.ASK: lambda *facts: self._http_operations().ask(*facts),
            items.LEAVE: lambda *facts: self._http_operations().leave(*facts),
        }

    def run(self, after_input: Callable[[], None] = lambda: None) -> None:
        """Replay to the end. `after_input` is called after each input, and may raise: the runner does not catch it."""
        try:
            while True:
                if self._ladder is not None:
                    self._record_next()
                self._handle(self.reader.next_input())
                after_input()
        except Finished:
            pass

    def _record_next(self) -> None:
        """Record the next job: it may be the one whose ladder is wanted."""
        self.broker.job_registry.conversations.next_at = inf if self._is_laddered else -inf

    def conversation(self) -> Conversation | None:
        """Return the conversation of the job, if it has occurred."""
        return self.broker.job_registry.conversations.find(self._ladder) if self._ladder is not None else None

    def _handle(self, item: Item) -> None:
        handler = self._handlers.get(item[0])
        if handler is None:
            raise self.reader.diverged(item, ("no more decisions",))
        try:
            handler(*item[1:])
        except InvariantBroken:
            raise
        except Exception as error:  # it refers to something that the replay does not have, or the broker has failed
            raise Diverged(f"{self.reader.place}: “{item[0]}” cannot be repeated: {error!r}") from error

    # ---------------------------------------------------------------- values that the broker reads

    def _read_clock(self) -> float:
        [now] = self.reader.expect(items.CLOCK)
        return float(now)

    def _read_offset(self) -> float:
        [offset] = self.reader.expect(items.OFFSET)
        return float(offset)

    def _read_match(self, found: bool) -> bool:
        [recorded] = self.reader.expect(items.TEXT)
        return bool(recorded)

    def _read_group(self, group: str) -> str:
        [recorded] = self.reader.expect(items.TEXT)
        return str(recorded)

    def clock(self, clock: Callable[[], float]) -> Callable[[], float]:
        return self._read_clock

    def reach(self, reach: Any) -> Any:
        def tapped(*arguments: object) -> tuple[Any, str]:
            place, problem = self.reader.expect(items.REACH)
            return place, problem

        return tapped

    def _compare(self, event: Event, now: float) -> None:
        entry = entry_of(event)
        item = self.reader.next()
        if item != (items.JOURNAL, *entry):
            raise self.reader.diverged(item, (items.JOURNAL, *entry))
        if isinstance(event, JobEvent) and event.id == self._ladder:
            self._is_laddered = event.kind == JOB_ENDED
            job = self.broker.jobs.get(event.id)
            if job is not None:  # a restored job is not recorded by itself
                self.broker.job_registry.conversations.watch_job(job, now)
        self._published(event, now - (self.reader.began or now))

    # ---------------------------------------------------------------- listeners and connections

    def _listen(self, url: str) -> None:
        access: Any = SimpleNamespace(authentication=Authentication(self.broker.principals))
        loop: Any = None
        context = ServerContext(loop, self._operations, self._read_clock, lambda: HEALTH, [], access, taps=self)
        listener = prepare(plain_url(url), self.broker, self.runner, context)
        self._listeners.append(listener)
        for _, each in listener.sockets:
            if isinstance(each, ListenerSocket):
                self._sockets[len(self.runner.sessions) - 1, each.socket_name] = each

    def _not_opened(self, sessions: int) -> None:
        del self.runner.sessions[sessions:]
        self._listeners.pop()

    def _connected(
        self,
        number: int,
        side: int,
        socket_name: str,
        label: str,
        address: str,
        is_local: bool,
        process: int,
        admitted: Any,
        has_auth: bool,
        state: Any,
        outgoing: Any,
    ) -> None:
        socket = self._sockets[side, socket_name]
        carrier = ReplayedCarrier(socket.carrier())
        carrier.apply(state, outgoing)
        principals = self.broker.principals
        self._peers[number] = self._connections.connected(
            socket.session,
            socket_name,
            carrier,
            ReplayedStream(self.reader, number, carrier),
            label,
            address,
            socket.limits,
            is_local,
            process,
            admitted_of(principals, admitted),
            ReplayedAuth(self.reader, principals) if has_auth else None,
        )

    def _arrived(self, number: int, messages: list[Any], state: Any, outgoing: Any) -> None:
        peer = self._peers[number]
        assert isinstance(peer.carrier, ReplayedCarrier)
        peer.carrier.apply(state, outgoing)
        self._connections.arrived(peer, messages_of(messages))

    def _ended(self, number: int, problem: str, closed_in_order: bool) -> None:
        self._stream(number).closed_in_order = closed_in_order
        self._connections.ended(self._peers.pop(number), problem)

    def _stream(self, number: int) -> ReplayedStream:
        stream = self._peers[number].stream
        assert isinstance(stream, ReplayedStream)
        return stream

    def _dial(self, peer: StreamConnection, place: object) -> None:
        [number] = self.reader.expect(items.DIAL)
        peer.carrier = ReplayedCarrier(peer.carrier)
        self._peers[number] = peer

    def _dialled(
        self, number: int, is_connected: bool, problem: str, address: str, process: int, state: Any, outgoing: Any
    ) -> None:
        peer = self._peers[number]
        carrier = peer.carrier
        assert isinstance(carrier, ReplayedCarrier)
        carrier.apply(state, outgoing)
        stream = ReplayedStream(self.reader, number, carrier) if is_connected else None
        self._connections.host_access.dialled(peer, stream, problem, address, process)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._callback_count += 1
        self._callbacks[self._callback_count] = call

    def _watch_process(self, process: int, call: Callable[[], None]) -> Callable[[], None] | None:
        self._later(0.0, call)
        [is_watched] = self.reader.expect(items.WATCH)
        return (lambda: None) if is_watched else None

    def _call_back(self, number: int) -> None:
        self._callbacks.pop(number)()

    # ---------------------------------------------------------------- the server

    def _restored(self, last_number: int, notes: dict[str, str], now: float, wall: float) -> None:
        self._store.last_number, self._store.stored_notes = last_number, notes
        self._restoring = Restore(self._store, self.runner, self._read_clock, lambda jobs, seconds: None)
        self._operations.scheduler.load(self._restoring.prepare(wall - now, now), now, wall)

    def _act(self, act: str, now: float) -> None:
        if act == OPERATIONS:
            self.runner.sessions.append(self._operations)
        elif act == LOAD:
            assert self._restoring is not None
            self._restoring.start()
        elif act == DRAIN:
            self.broker.operator.close(now)
        elif act == ABORT:
            self.broker.operator.abort(now)
        elif act == RIGHTS:
            apply_rights(self.broker, self.runner.connections, now)
        elif act == STOP:
            self._operations.close(now)
            for listener in self._listeners:
                listener.say_goodbye(BROKER_STOPS)

    def _access(self, accounts: dict[str, Any]) -> None:
        table = {name: (Rights(*rights), PrincipalLimits(**limits)) for name, (rights, limits) in accounts.items()}
        self.broker.principals.apply(table)

    def _reload(self) -> AccessView:
        self.reader.expect(items.RELOAD)
        [problem] = self.reader.until(items.RELOADED)
        if problem:
            raise OperationError("invalid", problem)
        return AccessView([], [], [], 0)

    def _slice(self, work: SlicedWork, now: float) -> View | None:
        """Do a slice of a long operation. It ends with the same slice as in the recording."""
        view = self._views.pop(work, None) or work.step(now)
        [is_last] = self.reader.expect(items.SLICE)
        if not is_last:
            if view is not None:
                self._views[work] = view
            return None
        while view is None:
            view = work.step(now)
        return view

    # ---------------------------------------------------------------- HTTP

    def _http_request(self, side: int, method: str, *facts: Any) -> None:
        requests = self._requests.get(side)
        if requests is None:
            from dragoman.http.broker_side import HttpBrokerSide
            from dragoman.recording.replayed_requests import ReplayedRequests

            http = self.runner.sessions[side]
            assert isinstance(http, HttpBrokerSide)
            requests = self._requests[side] = ReplayedRequests(self.broker, http)
        requests.handle(method, *facts)

    def _http_operations(self) -> Any:
        if self._operation_requests is None:
            from dragoman.recording.replayed_requests import ReplayedOperations

            self._operation_requests = ReplayedOperations(self.broker, self._operations)
        return self._operation_requests


def _digests(recording: Recording) -> dict[bytes, bytes]:
    """Return the digests of stored payloads that occur in the recording. They are needed before their places."""
    found = {}
    with suppress(RecordingError):  # the replay finds the same damage later
        for item in recording:
            if item[0] == items.DIGEST:
                found[item[1]] = item[2]
    recording.end = ""
    return found


class ReplayedEntropy(Entropy):
    """Draws what was drawn."""

    def __init__(self, reader: ItemReader) -> None:
        self._reader = reader

    def job_id(self) -> JobId:
        [drawn] = self._reader.expect(items.JOB_ID)
        return JobId(drawn)

    def token(self) -> Token:
        [drawn] = self._reader.expect(items.TOKEN)
        return Token(drawn)

    def jitter(self) -> float:
        [drawn] = self._reader.expect(items.JITTER)
        return float(drawn)
