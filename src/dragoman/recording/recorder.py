"""The recorder: writes all inputs of a broker to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from json import loads
from pathlib import Path
from typing import Any, TypeVar

from dragoman.carriers.carrier import Frame
from dragoman.core.entropy import Entropy
from dragoman.core.events import Event
from dragoman.core.model import JobId, Token
from dragoman.core.rights import PrincipalLimits, Rights
from dragoman.dialects.hidden_fields import hide_json
from dragoman.operations.schemas import OperationError
from dragoman.recording import items
from dragoman.recording.file import DEFAULT_SIZE, STOPPED, RecordingWriter
from dragoman.recording.hidden_payloads import HiddenPayloads
from dragoman.recording.journal import KINDS, entry_of
from dragoman.recording.recorded_store import RecordedStore
from dragoman.recording.recorded_streams import RecordedConnections, RecordedStream
from dragoman.server.admission import AdmissionLimits
from dragoman.server.config import Config
from dragoman.server.connection import StreamConnection
from dragoman.server.input_taps import InputTaps
from dragoman.server.runner import Runner

T = TypeVar("T")


class Recorder(InputTaps):
    """Records a broker from its start. A broker that cannot record any more continues without."""

    def __init__(self, path: Path, max_size: int = DEFAULT_SIZE, *, payloads: bool = False) -> None:
        """Create the file. Raises OSError. `payloads`: record payloads and results as they are."""
        self._writer = RecordingWriter(path, max_size)
        self.hide = HiddenPayloads(None if payloads else os.urandom(32), self._found)
        self.hides_tokens = False
        self._path = path
        self._log: Any = None
        self._runner: Runner | None = None
        self._store: Any = None
        self._connections = 0
        self._callbacks = 0
        self._dialling: dict[StreamConnection, int] = {}
        self._behind: dict[RecordedStream, None] = {}

    # ---------------------------------------------------------------- for the parts

    def add(self, kind: str, *facts: Any) -> None:
        self._writer.add((kind, *facts))

    def new_number(self) -> int:
        self._connections += 1
        return self._connections

    def side_number(self, side: Any) -> int:
        assert self._runner is not None
        return next(index for index, each in enumerate(self._runner.sessions) if each is side)

    def is_behind(self, stream: RecordedStream) -> None:
        self._behind[stream] = None

    def _found(self, recorded: bytes, hidden: bytes) -> None:
        self.add(items.DIGEST, recorded, hidden)

    # ---------------------------------------------------------------- parts of the broker

    def begin(self, config: Config, limits: AdmissionLimits, first_worker: int, release: str, log: Any) -> None:
        self._log = log
        facts = {
            "release": release,
            "policy": asdict(config.policy),
            "limits": asdict(limits),
            "strict": config.strict,
            "first_worker": first_worker,
            "has_payloads": self.hide.is_off,
        }
        self.add(items.BEGIN, facts)
        log.warning("recording started", file=str(self._path), payloads=self.hide.is_off)

    def clock(self, clock: Callable[[], float]) -> Callable[[], float]:
        return self._value(items.CLOCK, clock)

    def offset(self, offset: Callable[[], float]) -> Callable[[], float]:
        return self._value(items.OFFSET, offset)

    def _value(self, kind: str, read: Callable[[], float]) -> Callable[[], float]:
        def value() -> float:
            found = read()
            self._writer.add((kind, found))
            return found

        return value

    def entropy(self, entropy: Entropy) -> Entropy:
        return RecordedEntropy(self, entropy)

    def store(self, store: T) -> T:
        if self._store is None:
            self._store = RecordedStore(self, store)
        tapped: T = self._store
        return tapped

    def watch(self, runner: Runner) -> None:
        self._runner = runner
        runner.broker.events.subscribe(KINDS, self._publish)

    def _publish(self, event: Event, now: float) -> None:
        self.add(items.JOURNAL, *entry_of(event))

    # ---------------------------------------------------------------- the host of the runner

    def run_once(self, run_once: Callable[[], float]) -> Callable[[], float]:
        def iteration() -> float:
            for stream in list(self._behind):
                sent, backlog = stream.sent, stream.backlog
                stream.update()
                if (stream.sent, stream.backlog) != (sent, backlog):
                    self.add(items.SENT, stream.number, stream.sent, stream.backlog, stream.closed_in_order)
                if not stream.backlog:
                    del self._behind[stream]
            self.add(items.ITERATION)
            try:
                return run_once()
            finally:
                self._flush()

        return iteration

    def _flush(self) -> None:
        writer = self._writer
        was_ended = writer.problem is not None
        writer.flush()
        if writer.problem is not None and not was_ended:
            self._log.error("recording stopped", file=str(self._path), reason=writer.problem)

    def connections(self, connections: T) -> T:
        tapped: Any = RecordedConnections(self, connections)  # type: ignore[arg-type]
        return tapped  # type: ignore[no-any-return]

    def dialler(self, dialler: T) -> T:
        def dial(peer: StreamConnection, place: object) -> None:
            self._dialling[peer] = number = self.new_number()
            self.add(items.DIAL, number)
            dialler(peer, place)  # type: ignore[operator]

        return dial  # type: ignore[return-value]

    def dialled(self, dialled: T) -> T:
        def tapped(peer: StreamConnection, stream: Any, problem: str = "", address: str = "", process: int = 0) -> None:
            number = self._dialling.pop(peer)
            recorded = None
            state: tuple[Any, ...] = ((), [])
            if stream is not None:
                recorded = RecordedStream(self, number, stream, peer.session, peer.socket_name, peer.carrier)
                state = recorded.state()
            self.add(items.DIALLED, number, stream is not None, problem, address, process, *state)
            dialled(peer, recorded, problem, address, process)  # type: ignore[operator]

        return tapped  # type: ignore[return-value]

    def later(self, later: T) -> T:
        def tapped(seconds: float, call: Callable[[], None]) -> object:
            return later(seconds, self._callback(items.LATER, call))  # type: ignore[operator]

        return tapped  # type: ignore[return-value]

    def process_watch(self, watch: T) -> T:
        def tapped(process: int, call: Callable[[], None]) -> Any:
            stop = watch(process, self._callback(items.PROCESS_ENDED, call))  # type: ignore[operator]
            self.add(items.WATCH, stop is not None)
            return stop

        return tapped  # type: ignore[return-value]

    def _callback(self, kind: str, call: Callable[[], None]) -> Callable[[], None]:
        """Return a call that is recorded under the number of this request."""
        self._callbacks += 1
        number = self._callbacks

        def called() -> None:
            self.add(kind, number)
            call()

        return called

    def handle_pause(self, handle_pause: T) -> T:
        def tapped(broker: object, gap: float) -> float:
            self.add(items.PAUSED, gap)
            return handle_pause(broker, gap)  # type: ignore[operator, no-any-return]

        return tapped  # type: ignore[return-value]

    # ---------------------------------------------------------------- listeners

    def listen(self, url: str) -> None:
        self.add(items.LISTEN, url)

    def not_opened(self, sessions: int) -> None:
        self.add(items.NOT_OPENED, sessions)

    def reach(self, reach: T) -> T:
        def tapped(*arguments: object) -> tuple[object, str]:
            place, problem = reach(*arguments)  # type: ignore[operator]
            self.add(items.REACH, None if place is None else str(place), problem)
            return place, problem

        return tapped  # type: ignore[return-value]

    def http(self, side: T) -> T:
        from dragoman.recording.recorded_requests import RecordedHttpSide

        return RecordedHttpSide(self, side)  # type: ignore[arg-type, return-value]

    def operations(self, operations: T) -> T:
        from dragoman.recording.recorded_requests import RecordedOperations

        return RecordedOperations(self, operations)  # type: ignore[arg-type, return-value]

    # ---------------------------------------------------------------- the server

    def slices(self, step_of: T) -> T:
        def tapped(work: object, now: float) -> object:
            view = step_of(work, now)  # type: ignore[operator]
            self.add(items.SLICE, view is not None)
            return view

        return tapped  # type: ignore[return-value]

    def text_fact(self, fact: T) -> T:
        self.add(items.TEXT, fact)
        return fact

    def restored(self, last_number: int, notes: Mapping[str, str], now: float, wall: float) -> None:
        hidden = {key: self._hide_note(value) for key, value in notes.items()}
        self.add(items.RESTORED, last_number, hidden, now, wall)

    def _hide_note(self, value: str) -> str:
        """Replace the payload in a stored schedule. Other values are names."""
        try:
            is_object = isinstance(loads(value), dict)
        except (ValueError, RecursionError):
            is_object = False
        if self.hide.is_off or not is_object:
            return value
        hidden: Frame = hide_json(value.encode(), self.hide)
        return hidden.decode()

    def access(self, accounts: Mapping[str, tuple[Rights, PrincipalLimits]]) -> None:
        facts = {
            name: ((rights.call, rights.work, rights.see, rights.administer), asdict(limits))
            for name, (rights, limits) in accounts.items()
        }
        self.add(items.ACCESS, facts)

    def closed(self, peer: StreamConnection, reason: str) -> None:
        stream = peer.stream
        number = stream.number if isinstance(stream, RecordedStream) else self._dialling[peer]
        self.add(items.CLOSED, number, reason)

    def reload(self, reload: T) -> T:
        def tapped() -> Any:
            self.add(items.RELOAD)
            problem = "the access folder was not reloaded"
            try:
                view = reload()  # type: ignore[operator]
                problem = ""
            except OperationError as error:
                problem = error.problem.detail
                raise
            finally:
                self.add(items.RELOADED, problem)
            return view

        return tapped  # type: ignore[return-value]

    def note(self, act: str, now: float) -> None:
        self.add(items.ACT, act, now)

    def close(self) -> None:
        if self._writer.problem is None:
            self._writer.close()
            if self._writer.problem != STOPPED:
                self._log.error("recording stopped", file=str(self._path), reason=self._writer.problem)


class RecordedEntropy(Entropy):
    """Records what it draws."""

    def __init__(self, recorder: Recorder, inner: Entropy) -> None:
        self._recorder = recorder
        self._inner = inner

    def job_id(self) -> JobId:
        drawn = self._inner.job_id()
        self._recorder.add(items.JOB_ID, drawn)
        return drawn

    def token(self) -> Token:
        drawn = self._inner.token()
        self._recorder.add(items.TOKEN, bytes(len(drawn)) if self._recorder.hides_tokens else drawn)
        return drawn

    def jitter(self) -> float:
        drawn = self._inner.jitter()
        self._recorder.add(items.JITTER, drawn)
        return drawn
