"""Taps: the inputs of a broker pass through them, so that they can be recorded and replayed.

The core, the runner, the connections and the broker sides read no clock, draw no random number and own no socket. All
that they receive comes through what this class returns. Here it passes unchanged, at no cost. `recording/recorder.py`
writes it to a file, and `recording/replay.py` reads it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dragoman.core.entropy import Entropy
from dragoman.core.rights import PrincipalLimits, Rights
from dragoman.server.admission import AdmissionLimits
from dragoman.server.config import Config
from dragoman.server.connection import StreamConnection
from dragoman.server.runner import Runner

T = TypeVar("T")


class InputTaps:
    """Passes everything unchanged."""

    # ---------------------------------------------------------------- parts of the broker

    def begin(self, config: Config, limits: AdmissionLimits, first_worker: int, release: str, log: Any) -> None:
        """The broker starts with these settings."""

    def clock(self, clock: Callable[[], float]) -> Callable[[], float]:
        return clock

    def offset(self, offset: Callable[[], float]) -> Callable[[], float]:
        """The difference between the wall clock and the broker's clock."""
        return offset

    def entropy(self, entropy: Entropy) -> Entropy:
        return entropy

    def store(self, store: T) -> T:
        return store

    def watch(self, runner: Runner) -> None:
        """The runner and its broker are ready."""

    # ---------------------------------------------------------------- the host of the runner

    def run_once(self, run_once: Callable[[], float]) -> Callable[[], float]:
        return run_once

    def connections(self, connections: T) -> T:
        """The connections, for the acceptor."""
        return connections

    def dialler(self, dialler: T) -> T:
        return dialler

    def dialled(self, dialled: T) -> T:
        """The end of a dial, as in HostAccess."""
        return dialled

    def later(self, later: T) -> T:
        return later

    def process_watch(self, watch: T) -> T:
        return watch

    def handle_pause(self, handle_pause: T) -> T:
        return handle_pause

    # ---------------------------------------------------------------- listeners

    def listen(self, url: str) -> None:
        """The listener of this URL is created next."""

    def not_opened(self, sessions: int) -> None:
        """The last listener was not opened. Only this number of broker sides stays."""

    def reach(self, reach: T) -> T:
        """The rule about addresses that workers make the broker dial."""
        return reach

    def http(self, side: T) -> T:
        """The broker side of HTTP, for request handlers."""
        return side

    def operations(self, operations: T) -> T:
        """The operations, for request handlers of HTTP."""
        return operations

    # ---------------------------------------------------------------- the server

    def slices(self, step_of: T) -> T:
        """One slice of a long operation: its length depends on the machine."""
        return step_of

    def text_fact(self, fact: T) -> T:
        """A fact about texts that a recording hides: whether a reason matches a filter, or the id of its group."""
        return fact

    def restored(self, last_number: int, notes: Mapping[str, str], now: float, wall: float) -> None:
        """The store has these values of an earlier run."""

    def access(self, accounts: Mapping[str, tuple[Rights, PrincipalLimits]]) -> None:
        """These rights and limits apply from now on."""

    def closed(self, peer: StreamConnection, reason: str) -> None:
        """The server closes this connection."""

    def reload(self, reload: T) -> T:
        """The operation that reloads the access folder."""
        return reload

    def note(self, act: str, now: float) -> None:
        """The server calls the broker: one of ACTS."""

    def close(self) -> None:
        """The broker has stopped."""


OPERATIONS = "operations"  # the operations have been added to the broker sides
LOAD = "load"  # the jobs of an earlier run are loaded from now on
DRAIN = "drain"  # no new job is accepted from now on
ABORT = "abort"  # all jobs end now
STOP = "stop"  # requests that wait are answered, and clients are notified that the broker stops
RIGHTS = "rights"  # workers lose the services for which they have no right any more
ACTS = (OPERATIONS, LOAD, DRAIN, ABORT, STOP, RIGHTS)
NO_TAPS = InputTaps()
