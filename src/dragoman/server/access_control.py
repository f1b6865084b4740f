"""Access control: reads the access folder and the broker's keys, and applies them at the start and at every reload.

A reload is all or nothing: everything is read and checked first, and then replaced at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from dragoman.access.keys import BROKER, OLD_BROKER, KeyPair, broker_key_folder, key_file, read_key_file
from dragoman.access.location import AccessPlaces, open_table
from dragoman.access.old_key import OldKeyUsers, read_old_key_users, write_old_key_users
from dragoman.access.problems import AccessError, access_error
from dragoman.access.reload_report import ReloadReport, write_report
from dragoman.core.broker import Broker
from dragoman.core.rights import WORK, AccessChanges
from dragoman.operations.schemas import AccessView, OperationError
from dragoman.server import clock
from dragoman.server.authentication import Authentication
from dragoman.server.connections import Connections
from dragoman.server.input_taps import NO_TAPS, RIGHTS, InputTaps
from dragoman.streams.tls_context import ListenerTls, TlsFileError

CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"  # set by systemd for LoadCredential=
LONGEST_WAIT: Final = 60.0
OLD_KEY_DELAY: Final = 1.0  # seconds until uses of the old key are written
REVOKED: Final = "its access was revoked"


@dataclass(frozen=True, slots=True)
class AccessReport:
    """Result of a reload."""

    folder: str  # empty: there is no access table
    changes: AccessChanges
    disconnected: int  # connections that were closed because their access was revoked


class AccessControl:
    """Holds the access table of a running broker up to date."""

    def __init__(
        self,
        broker: Broker,
        connections: Connections,
        authentication: Authentication,
        places: AccessPlaces,
        log: Any,
        certificates: Callable[[], Iterable[ListenerTls]],
        *,
        no_access: bool = False,
        taps: InputTaps = NO_TAPS,
    ) -> None:
        """Read the folder for the first time. Raises AccessError if it cannot be used completely.

        `certificates` returns those of all listeners.
        """
        self.authentication: Final = authentication
        self._broker = broker
        self._connections = connections
        self._taps = taps
        self._places = places
        self._log = log
        self._certificates = certificates
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: list[Callable[[], int]] = []
        self.when_reloaded: Callable[[], None] = lambda: None  # a key may have been read for the first time
        table = open_table(places, os.geteuid(), no_access=no_access)
        authentication.apply(table, self._read_keys())
        self._old_key_timer: asyncio.TimerHandle | None = None
        self._load_old_key_users()
        authentication.when_old_key_used = self._old_key_used
        self._note_table()
        self._reloads = 0
        self._digested: object = None  # the accounts of the table whose digest is kept
        self._digest = ""
        self._answer([])

    def _note_table(self) -> None:
        if self.authentication.table is not None:
            self._taps.access(self.authentication.accounts)

    def digest(self) -> str:
        """Return a digest of the table in force, equal for equal tables; empty: there is none."""
        if self.authentication.table is None:
            return ""
        accounts = self.authentication.accounts
        if accounts is not self._digested:
            facts = [(name, str(rights), str(limits)) for name, (rights, limits) in sorted(accounts.items())]
            self._digested = accounts
            self._digest = blake2b(repr(facts).encode(), digest_size=8).hexdigest()
        return self._digest

    def watch(self, call: Callable[[], int]) -> None:
        """Call this after each change. It ends what belongs to principals without access, and returns the number."""
        self._watchers.append(call)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remove principals as they expire, from now on."""
        self._loop = loop
        self._watch_expiry()

    def expiries(self) -> list[tuple[str, float]]:
        """Return the listeners with TLS, and the Unix time at which the certificate of each expires."""
        return [(each.listener, each.certificate.not_after.timestamp()) for each in self._certificates()]

    def close(self) -> None:
        for timer in (self._timer, self._old_key_timer):
            if timer is not None:
                timer.cancel()
        if self._old_key_timer is not None:
            self._save_old_key_users()
        self._timer = None

    def hangup(self) -> None:
        """Handle SIGHUP: reload (R111). Other settings stay."""
        with suppress(AccessError):  # it is logged
            self.reload()

    def reload_on_request(self) -> AccessView:
        """Reload, for an operation. Raises OperationError."""
        try:
            report = self.reload()
        except AccessError as error:
            raise OperationError("invalid", "; ".join(str(each) for each in error.problems)) from None
        changes = report.changes
        return AccessView(list(changes.added), list(changes.removed), list(changes.changed), report.disconnected)

    def reload(self) -> AccessReport:
        """Read the folder, the keys and the certificates again. Raises AccessError; then nothing has changed."""
        try:
            report = self._reload()
        except AccessError as error:
            problems = [str(each) for each in error.problems]
            self._log.error("access not reloaded", problems=problems, note="nothing has changed")
            self._answer(problems)
            self._broker.counters.access_reloaded("failed")
            raise
        self.when_reloaded()  # before the answer: new keys are protected when the command hears that they are in force
        self._log_report("access reloaded", report)
        self._answer([], report)
        self._broker.counters.access_reloaded("done")
        self._watch_expiry()
        return report

    def _reload(self) -> AccessReport:
        folder = self._places.find()
        table = open_table(self._places, os.geteuid())
        if table is None and self.authentication.table is not None:
            raise access_error("access", "there is no access folder any more; restore it, or restart with --no-access")
        keys = self._read_keys()
        if not keys and self.authentication.has_curve_key:
            raise access_error(
                "keys", "the broker's key is missing; restore it, or make one: dragoman keys new --broker"
            )
        try:
            replacements = [each.prepare_reload() for each in self._certificates()]
        except TlsFileError as error:
            raise access_error("TLS", str(error)) from None
        for use in replacements:
            use()
        old_key = self.authentication.old_key
        changes = self.authentication.apply(table, keys)
        if self.authentication.old_key != old_key:
            self._save_old_key_users()
        self._note_table()
        return AccessReport(str(folder or ""), changes, self._disconnect())

    def _answer(self, problems: list[str], report: AccessReport | None = None) -> None:
        """Write the result for a command that has sent the signal."""
        if self._places.data is None:
            return
        changes = report.changes if report is not None else AccessChanges()
        answer = ReloadReport(
            os.getpid(),
            self._reloads,
            problems,
            list(changes.added),
            list(changes.removed),
            list(changes.changed),
            report.disconnected if report is not None else 0,
        )
        self._reloads += 1
        with suppress(OSError):
            write_report(self._places.data, answer)

    def _watch_expiry(self) -> None:
        """Set the timer for the next principal that expires. The wall clock may be set, so it is at most a minute."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = self.authentication.next_expiry
        if seconds is not None and self._loop is not None:
            self._timer = self._loop.call_later(min(seconds + 0.001, LONGEST_WAIT), self._expire)

    def _expire(self) -> None:
        changes = self.authentication.refresh()
        self._note_table()
        if changes != AccessChanges():
            self._log_report("access expired", AccessReport("", changes, self._disconnect()))
        self._watch_expiry()

    def _log_report(self, event: str, report: AccessReport) -> None:
        changes = report.changes
        self._log.info(
            event,
            added=list(changes.added),
            removed=list(changes.removed),
            changed=list(changes.changed),
            disconnected=report.disconnected,
        )

    def _read_keys(self) -> tuple[tuple[bytes, bytes], ...]:
        """The broker's CURVE keys, the newest first. Raises AccessError."""
        found: list[KeyPair] = []
        uid = os.geteuid()
        credentials = os.environ.get(CREDENTIALS_VARIABLE, "")
        folders = [(Path(credentials), True)] if os.path.isabs(credentials) else []
        folders += [(broker_key_folder(self._places.data), False)] if self._places.data is not None else []
        for name in (BROKER, OLD_BROKER):
            for folder, is_credential in folders:
                path = key_file(folder, name)
                if os.path.lexists(path):
                    found.append(read_key_file(path, uid, is_credential=is_credential))
                    break
        return tuple((each.public, each.secret.reveal()) for each in found)

    # ---------------------------------------------------------------- the old key of the broker

    def _load_old_key_users(self) -> None:
        if self._places.data is not None:
            users = read_old_key_users(self._places.data)
            if users.key == self.authentication.old_key.hex():
                self.authentication.old_key_users.update(users.principals)

    def _old_key_used(self) -> None:
        """Write soon which principals use the old key. Many may connect at once."""
        if self._loop is not None and self._old_key_timer is None:
            self._old_key_timer = self._loop.call_later(OLD_KEY_DELAY, self._save_old_key_users)

    def _save_old_key_users(self) -> None:
        self._old_key_timer = None
        if self._places.data is not None:
            users = OldKeyUsers(self.authentication.old_key.hex(), self.authentication.old_key_users)
            with suppress(OSError):
                write_old_key_users(self._places.data, users)

    # ---------------------------------------------------------------- peers of principals that have changed

    def _disconnect(self) -> int:
        """Close connections whose identity is gone, and take services from workers that may not work for them."""
        closed, now = 0, clock.now()
        built_in = (self._broker.principals.local, self._broker.principals.anyone)
        for peer in list(self._connections.peers):
            admitted, principal = peer.admitted, peer.owner.principal
            is_known = principal.is_listed or principal in built_in
            if not is_known or (admitted is not None and not self.authentication.is_current(admitted)):
                self._taps.closed(peer, REVOKED)
                self._connections.close(peer, REVOKED)
                closed += 1
        closed += sum(call() for call in self._watchers)
        self._taps.note(RIGHTS, now)
        apply_rights(self._broker, self._connections, now)
        self._connections.request_iteration()
        return closed


def apply_rights(broker: Broker, connections: Connections, now: float) -> None:
    """Apply changed rights and limits: take services from workers that may not work for them any more."""
    local, anyone = broker.principals.local, broker.principals.anyone
    closing = [peer.owner for peer in connections.peers if peer.closing == REVOKED]
    revoked = {id(owner) for owner in closing if owner.principal is anyone}
    for worker in list(broker.worker_registry.workers.values()):
        principal = worker.owner.principal
        if id(worker.owner) in revoked or not (principal.is_listed or principal in (local, anyone)):
            continue  # it leaves with its connection
        offered = [each.name for each in worker.services]
        allowed = [each for each in offered if principal.may(WORK, each)]
        if offered and not allowed:
            broker.availability.drain(worker, now)
        elif len(allowed) < len(offered):
            broker.availability.offer(worker, allowed, now)
    broker.operator.limits_changed(now)
