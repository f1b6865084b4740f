"""Local peers: the users of this machine that may connect to a listener on loopback or on a Unix socket (T22).

`judge` decides. `LocalPeers` finds the user of a connection, before a byte of it is read.
"""

from __future__ import annotations

import errno
import grp
import os
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from dragoman.core.counters import Counters
from dragoman.sdk.address import SocketAddress, UnixAddress, is_loopback
from dragoman.server.authentication import LOCAL_USER, Admitted, Authentication
from dragoman.server.dial_policy import OwnSockets
from dragoman.server.rate_limit import RateLimit
from dragoman.server.reports import Reports
from dragoman.streams.socket_owner import PeerGone, SocketOwners, overflow_uid
from dragoman.streams.sockets import is_local, unix_gids, unix_uid

ROOT = 0
PRIVATE = 0o600
LOG_INTERVAL = 60.0  # seconds between two log lines with the same reason: a rejected worker reconnects again and again
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # temporary, so no reason to admit everybody
OWN_CONNECTION = "this broker dialled itself; a worker has named an address that leads back here"
OPEN_TO_ALL = "write loopback=anyone in the listener's URL to admit every user of this machine"


class LoopbackRule(Enum):
    """Local users that may connect."""

    OWNER = "owner"  # the broker's own user, root, and users in the access table
    ANYONE = "anyone"
    TABLE = "table"  # users in the access table only


@dataclass(frozen=True, slots=True)
class LoopbackOptions:
    """Options of listeners that may be on loopback."""

    loopback: LoopbackRule = LoopbackRule.OWNER


@dataclass(frozen=True, slots=True)
class UnixOptions:
    """Options of listeners that may be on a Unix socket."""

    mode: str = "0600"  # of its file, octal
    group: str = ""  # of its file, name or number; empty: that of the broker

    def file_mode(self) -> int:
        """Return the mode. Raises ValueError."""
        if not re.fullmatch("0?[0-7]{3}", self.mode):
            raise ValueError(f"mode={self.mode} must be three octal digits; write mode=0660 to admit a group")
        mode = int(self.mode, 8)
        if self.group and not mode & 0o060:
            raise ValueError(f"group={self.group} has no effect with mode={self.mode}; write mode=0660 to admit it")
        return mode

    def group_id(self) -> int | None:
        """Return the number of the group. Raises ValueError."""
        if not self.group or re.fullmatch("[0-9]{1,9}", self.group):
            return int(self.group) if self.group else None
        try:
            return grp.getgrnam(self.group).gr_gid
        except KeyError:
            raise ValueError(f"group={self.group}: this system has no such group; create it, or name another") from None


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """Access of local users to the sockets of a listener."""

    rule: LoopbackRule = LoopbackRule.OWNER
    is_default: bool = True  # `anyone` takes its place where the kernel does not report users
    mode: int = PRIVATE  # of the file of a Unix socket
    group: int | None = None


DEFAULT_ACCESS = LocalAccess()


def judge(
    rule: LoopbackRule,
    uid: int | None,
    own_uid: int,
    overflow: int,
    authentication: Authentication,
    gids: Sequence[int] = (),
) -> Admitted | str:
    """Decide about a user id; None: it is not known. `overflow` is the overflow user id. Returns the principal, or the
    reason to reject the connection."""
    if uid is not None and uid != overflow:
        if rule is not LoopbackRule.TABLE and uid in (own_uid, ROOT):
            return authentication.local
        found = authentication.by_user(uid, gids)
        if found is not None:
            return found
    if rule is LoopbackRule.ANYONE:
        return authentication.anyone
    if uid is None:
        return f"the kernel does not report the user of this connection; {OPEN_TO_ALL}"
    if uid == overflow:
        return (
            f"uid {uid} stands for all users that the kernel cannot name, and proves nothing; "
            f"run the program as a user of its own, or {OPEN_TO_ALL}"
        )
    allowed = f"the broker's user (uid {own_uid}), nor root, nor " if rule is LoopbackRule.OWNER else ""
    return (
        f"uid {uid} is not {allowed}in the access table; "
        f"run `dragoman access allow NAME --uid {uid} --call '*'`, or {OPEN_TO_ALL}"
    )


class LocalPeers:
    """Finds the user of each local connection, and rejects those that may not connect."""

    def __init__(
        self,
        reports: Reports,
        counters: Counters,
        now: Callable[[], float],
        authentication: Authentication,
        own_sockets: OwnSockets,
    ) -> None:
        self._own_sockets = own_sockets
        self._reports = reports
        self._counters = counters
        self._now = now
        self._authentication = authentication
        self._own_uid = os.geteuid()
        self._overflow = overflow_uid()
        self._owners: SocketOwners | None = None
        self._is_closed = False
        self._lines = RateLimit(1, LOG_INTERVAL)  # by reason

    def rule_of(self, listening: socket.socket, place: SocketAddress, access: LocalAccess) -> LoopbackRule:
        """Return the rule of a new listening socket. OSError: the rule that was written cannot be applied."""
        rule = access.rule if is_loopback(place) else LoopbackRule.ANYONE
        if rule is LoopbackRule.TABLE and self._authentication.table is None:
            problem = "there is no access table; write loopback=owner or loopback=anyone"
            raise OSError(0, f"loopback=table at {place}: {problem}")
        if rule is LoopbackRule.OWNER and self._own_uid == self._overflow:
            raise OSError(
                0,
                f"loopback=owner at {place}: the broker runs as uid {self._own_uid}, which stands for all users that "
                f"the kernel cannot name; run it as a user of its own, or {OPEN_TO_ALL}",
            )
        if rule is not LoopbackRule.ANYONE and not isinstance(place, UnixAddress):
            try:
                self._test(listening.getsockname()[0])
            except OSError as error:
                is_temporary = error.errno in SHORTAGES or isinstance(error, TimeoutError)
                # With a table, its users would be admitted as nobody they are, and the broker's own user as well.
                if is_temporary or not access.is_default or self._authentication.table is not None:
                    problem = f"the kernel does not report the users of connections: {error.strerror or error}"
                    raise OSError(0, f"loopback={rule.value} at {place}: {problem}; {OPEN_TO_ALL}") from error
                rule = LoopbackRule.ANYONE
                self._reports.remark(
                    "users of connections unknown",
                    level="warning",
                    place=str(place),
                    problem=error.strerror or str(error),
                    note="every user of this machine may connect; write loopback=anyone to confirm",
                )
        elif self._authentication.table is not None and not isinstance(place, UnixAddress):
            with suppress(OSError):  # then all its users are `anyone`
                self._test("127.0.0.1")
        return rule

    def _test(self, host: str) -> None:
        if self._owners is None:
            self._owners = SocketOwners()
        self._owners.test(host)

    def judge(self, connected: socket.socket, rule: LoopbackRule) -> Admitted | str:
        """Decide about a connection of which nothing has been read: its principal, or the reason to reject it. Raises
        PeerGone if it has ended."""
        if self._own_sockets.has_dialled(connected):
            return OWN_CONNECTION
        if rule is LoopbackRule.ANYONE and (self._authentication.table is None or not is_local(connected)):
            return self._authentication.anyone
        try:
            uid = self.uid(connected)
        except PeerGone:
            if rule is not LoopbackRule.ANYONE:
                raise
            uid = None
        gids = unix_gids(connected) if connected.family == socket.AF_UNIX else ()
        return judge(rule, uid, self._own_uid, self._overflow, self._authentication, gids)

    def uid(self, connected: socket.socket) -> int | None:
        """Return the user of a connection on this machine of which nothing has been read, None if the kernel does not
        name it. Raises PeerGone if it has ended."""
        if connected.family == socket.AF_UNIX:
            return unix_uid(connected)
        if self._is_closed:
            raise PeerGone(errno.ESHUTDOWN, "the broker has stopped listening")
        try:
            if self._owners is None:  # all listeners admit everybody, but the access table names users
                self._owners = SocketOwners()
            return self._owners.uid_of_peer(connected)
        except PeerGone:
            raise
        except OSError:  # the kernel is short of memory, or a sandbox has closed in
            return None

    def admit(self, connected: socket.socket, rule: LoopbackRule, label: str) -> Admitted | None:
        """Decide about a connection of which nothing has been read. One that is rejected is counted and logged."""
        try:
            found = self.judge(connected, rule)
        except PeerGone:
            return None
        if isinstance(found, Admitted):
            return found
        self._counters.connections_rejected += 1
        self._counters.refuse_peer(LOCAL_USER, "unknown user")
        self.log(found, label)
        return None

    def log(self, reason: str, label: str) -> None:
        """Log a rejected connection, once in a while for each reason."""
        if self._lines.take(reason, self._now()) == 1:
            note = f"not logged again for {LOG_INTERVAL:g} seconds"
            self._reports.remark("connection rejected", level="warning", address=label, reason=reason, note=note)

    def close(self) -> None:
        self._is_closed = True
        if self._owners is not None:
            self._owners.close()
            self._owners = None
