"""Local users: the rule of a listener, the decision about a user, and the options that set both."""

from __future__ import annotations

import errno
import grp
import os
import socket
from typing import Any

import pytest

from case_tables import check_every_row
from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.principal_file import PrincipalEntry
from dragoman.access.table import AccessTable
from dragoman.core.broker import Broker
from dragoman.core.counters import Counters
from dragoman.core.policy import Policy
from dragoman.core.rights import NO_LIMITS, NO_RIGHTS, Principals
from dragoman.sdk.address import AddressError, SocketAddress, TcpAddress, UnixAddress
from dragoman.sdk.targets import caller_target, worker_target
from dragoman.server import local_peers
from dragoman.server.admission import AdmissionLimits
from dragoman.server.authentication import Admitted, Authentication
from dragoman.server.dial_policy import OwnSockets
from dragoman.server.local_peers import LocalAccess, LocalPeers, LoopbackRule, judge
from dragoman.server.reports import Reports
from dragoman.server.runner import Runner
from dragoman.server.wiring import default_listeners, prepare
from dragoman.store.null import NullStore
from dragoman.streams.socket_owner import PeerGone
from dragoman.testing.entropy import SeededEntropy

OWNER, ANYONE, TABLE = LoopbackRule
US, OTHER, LISTED, NOBODY, ROOT = 1000, 1001, 33, 65_534, 0
TCP = TcpAddress("127.0.0.1", 7400)


# It lists the overflow user, which no file may do.
WEB = PrincipalEntry(
    "web", "web.toml", NO_RIGHTS, NO_LIMITS, tuple(Identity(IdentityKind.UID, uid) for uid in (LISTED, NOBODY))
)


def authentication(*, has_table: bool) -> Authentication:
    made = Authentication(Principals())
    made.apply(AccessTable([WEB]) if has_table else None)
    return made


def decide(rule: LoopbackRule, uid: int | None, own: int = US, *, has_table: bool = False) -> Admitted | str:
    return judge(rule, uid, own, NOBODY, authentication(has_table=has_table))


# -------------------------------------------------------------------- the decision


def test_every_rule_with_every_user() -> None:
    def check(rule: LoopbackRule, uid: int | None, has_table: bool, name: str | None) -> None:
        found = decide(rule, uid, has_table=has_table)
        assert (found.principal.name if isinstance(found, Admitted) else None) == name
        assert not isinstance(found, Admitted) or (found.identity is not None) is (name == "web")

    users = (US, ROOT, OTHER, LISTED, NOBODY, None)
    local = {US: "local", ROOT: "local"}
    admitted: dict[tuple[LoopbackRule, bool], dict[int | None, str]] = {
        (OWNER, False): {**local},
        (OWNER, True): {**local, LISTED: "web"},
        (TABLE, False): {},
        (TABLE, True): {LISTED: "web"},
        (ANYONE, False): {**dict.fromkeys(users, "anyone"), **local},
        (ANYONE, True): {**dict.fromkeys(users, "anyone"), **local, LISTED: "web"},
    }
    rows = [(rule, uid, has, names.get(uid)) for (rule, has), names in admitted.items() for uid in users]
    check_every_row(check, rows)


def test_the_overflow_user_is_no_proof_even_for_a_broker_of_that_user() -> None:
    assert "proves nothing" in str(decide(OWNER, NOBODY, NOBODY))


def test_a_reason_says_how_to_admit_the_user() -> None:
    assert decide(OWNER, OTHER) == (
        "uid 1001 is not the broker's user (uid 1000), nor root, nor in the access table; "
        "run `dragoman access allow NAME --uid 1001 --call '*'`, "
        "or write loopback=anyone in the listener's URL to admit every user of this machine"
    )
    assert str(decide(TABLE, OTHER)).startswith("uid 1001 is not in the access table; run")


# -------------------------------------------------------------------- the rule of a listener


class FakeOwners:
    """Stands in for the kernel. An answer that is an error is raised."""

    answer: int | OSError | None = None
    test_error: OSError | None = None

    def test(self, host: str) -> None:
        assert host == "127.0.0.1"
        if self.test_error is not None:
            raise self.test_error

    def uid_of_peer(self, connected: Any) -> int | None:
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer

    def close(self) -> None: ...


class Listening:
    """Stands in for a listening socket, and for a connection."""

    family = socket.AF_INET

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 7400


class World:
    def __init__(self, *, has_table: bool = False) -> None:
        self.now = 0.0
        self.lines: list[tuple[str, str, dict[str, object]]] = []
        self.counters = Counters()
        reports = Reports(self.counters, lambda: self.now, self._log)
        known = authentication(has_table=has_table)
        self.peers = LocalPeers(reports, self.counters, lambda: self.now, known, OwnSockets())

    def _log(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((level, event, fields))

    def rule_of(self, access: LocalAccess = local_peers.DEFAULT_ACCESS, place: SocketAddress = TCP) -> LoopbackRule:
        listening: Any = Listening()
        return self.peers.rule_of(listening, place, access)

    def admits(self, rule: LoopbackRule = OWNER) -> bool:
        connected: Any = Listening()
        return self.peers.admit(connected, rule, "127.0.0.1:4") is not None


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> type[FakeOwners]:
    class Kernel(FakeOwners): ...

    monkeypatch.setattr(local_peers, "SocketOwners", Kernel)
    monkeypatch.setattr(os, "geteuid", lambda: US)
    return Kernel


def test_the_default_is_the_owner() -> None:
    world = World()
    assert world.rule_of() is OWNER
    assert world.lines == []


def test_off_loopback_nothing_is_asked() -> None:
    assert World().rule_of(place=TcpAddress("0.0.0.0", 7400)) is ANYONE


def test_where_the_kernel_reports_no_users_the_default_admits_anyone_with_a_warning(kernel: type[FakeOwners]) -> None:
    kernel.test_error = OSError(errno.EAFNOSUPPORT, "no such family")
    world = World()
    assert world.rule_of() is ANYONE
    [(level, event, fields)] = world.lines
    assert (level, event) == ("warning", "users of connections unknown")
    assert fields["problem"] == "no such family"
    assert "loopback=anyone" in str(fields["note"])


def test_where_the_kernel_reports_no_users_a_written_rule_is_an_error(kernel: type[FakeOwners]) -> None:
    kernel.test_error = OSError(errno.EAFNOSUPPORT, "no such family")

    def check(access: LocalAccess) -> None:
        with pytest.raises(OSError, match="the kernel does not report the users of connections: no such family; write"):
            World(has_table=True).rule_of(access)

    check_every_row(check, [(LocalAccess(OWNER, is_default=False),), (LocalAccess(TABLE, is_default=False),)])
    assert World().rule_of(LocalAccess(ANYONE, is_default=False)) is ANYONE


def test_where_the_kernel_reports_no_users_the_default_with_a_table_is_an_error(kernel: type[FakeOwners]) -> None:
    """Every user was admitted as `anyone`, those of the table and the broker's own included."""
    kernel.test_error = OSError(errno.EAFNOSUPPORT, "no such family")
    world = World(has_table=True)
    with pytest.raises(OSError, match=r"loopback=owner at .* no such family; write loopback=anyone"):
        world.rule_of()
    assert world.lines == []


def test_a_shortage_does_not_admit_anyone(kernel: type[FakeOwners]) -> None:
    """Another user can use up the file descriptors of the system while the broker starts."""
    for error, problem in ((OSError(errno.ENFILE, "too many files"), "too many files"), (TimeoutError("late"), "late")):
        kernel.test_error = error
        with pytest.raises(OSError, match=f"the kernel does not report the users of connections: {problem}"):
            World().rule_of()


def test_a_unix_socket_does_not_need_the_kernel_s_answer(kernel: type[FakeOwners]) -> None:
    kernel.test_error = OSError(errno.EAFNOSUPPORT, "no such family")
    assert World().rule_of(LocalAccess(OWNER, is_default=False), UnixAddress("/run/x.sock")) is OWNER


def test_the_table_needs_a_table() -> None:
    access = LocalAccess(TABLE, is_default=False)
    with pytest.raises(OSError, match="there is no access table"):
        World().rule_of(access)
    assert World(has_table=True).rule_of(access) is TABLE


def test_the_overflow_user_cannot_be_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: local_peers.overflow_uid())
    with pytest.raises(OSError, match="run it as a user of its own, or write loopback=anyone"):
        World().rule_of()
    assert World(has_table=True).rule_of(LocalAccess(TABLE, is_default=False)) is TABLE
    assert World().rule_of(LocalAccess(ANYONE, is_default=False)) is ANYONE


# -------------------------------------------------------------------- connections


def test_a_rejected_user_is_logged_once_a_minute_and_counted_each_time(kernel: type[FakeOwners]) -> None:
    world = World()
    world.rule_of()
    for uid, seconds in ((OTHER, 0), (OTHER, 59), (LISTED, 0), (OTHER, 1), (OTHER, 1)):
        world.now += seconds
        kernel.answer = uid
        assert not world.admits()
    assert [str(fields["reason"])[:8] for _, _, fields in world.lines] == ["uid 1001", "uid 33 i", "uid 1001"]
    assert {(level, event) for level, event, _ in world.lines} == {("warning", "connection rejected")}
    assert world.counters.connections_rejected == 5


def test_a_user_in_the_table_is_admitted(kernel: type[FakeOwners]) -> None:
    world = World(has_table=True)
    world.rule_of()
    kernel.answer = LISTED
    assert world.admits()
    assert world.admits(TABLE)
    kernel.answer = US
    assert world.admits()
    assert not world.admits(TABLE)


def test_a_connection_that_has_ended_is_not_a_rejected_user(kernel: type[FakeOwners]) -> None:
    world = World()
    world.rule_of()
    kernel.answer = PeerGone(errno.ENOTCONN, "gone")
    assert not world.admits()
    assert (world.lines, world.counters.connections_rejected) == ([], 0)


def test_a_kernel_that_no_longer_answers_admits_nobody(kernel: type[FakeOwners]) -> None:
    world = World()
    world.rule_of()
    kernel.answer = OSError(errno.ENOBUFS, "no memory")
    assert not world.admits()
    assert "the kernel does not report the user" in str(world.lines[0][2]["reason"])
    assert world.admits(ANYONE)


# -------------------------------------------------------------------- options


def access_of(url: str) -> LocalAccess:
    broker = Broker(Policy(), SeededEntropy())
    runner = Runner(broker, NullStore(), lambda: 0.0, lambda *_, **__: None, AdmissionLimits())
    return prepare(url, broker, runner).access


def test_options_of_a_url() -> None:
    def check(url: str, expected: LocalAccess) -> None:
        assert access_of(url) == expected

    first = grp.getgrall()[0]
    rows = [
        ("tcp://127.0.0.1:0", LocalAccess()),
        ("tcp://127.0.0.1:0?insecure=true", LocalAccess()),
        ("http://127.0.0.1:0?loopback=owner", LocalAccess(OWNER, is_default=False)),
        ("memodb+tcp://[::1]:0?loopback=anyone", LocalAccess(ANYONE, is_default=False)),
        ("majordomo+tcp://localhost:0?loopback=table", LocalAccess(TABLE, is_default=False)),
        ("ipc:///tmp/x?mode=0660", LocalAccess(mode=0o660)),
        (f"ipc:///tmp/x?mode=620&group={first.gr_name}", LocalAccess(mode=0o620, group=first.gr_gid)),
        (
            "pingpong+tcp://127.0.0.1:0?frontend=ipc%3A%2F%2F%2Ftmp%2Fx&mode=0666&group=7",
            LocalAccess(mode=0o666, group=7),
        ),
        ("controller+unix:///tmp/x?mode=0750", LocalAccess(ANYONE)),  # the mode of its folder; it checks users itself
    ]
    check_every_row(check, rows)


def test_options_that_cannot_be_applied_are_errors() -> None:
    def check(url: str, problem: str) -> None:
        with pytest.raises(AddressError, match=problem):
            access_of(url)

    rows = [
        ("tcp://127.0.0.1:0?loopback=me", "must be one of owner, anyone, table"),
        ("tcp://0.0.0.0:0?insecure=true&loopback=owner", "loopback=owner has no effect off loopback; leave it out"),
        ("tcp://127.0.0.1:0?mode=0660", "mode= and group= are for Unix sockets; leave them out"),
        ("http://127.0.0.1:0?mode=0660", "unknown option 'mode'"),
        ("ipc:///tmp/x?mode=rw", "mode=rw must be three octal digits; write mode=0660"),
        ("ipc:///tmp/x?mode=1777", "must be three octal digits"),
        ("ipc:///tmp/x?group=root", "group=root has no effect with mode=0600; write mode=0660"),
        ("ipc:///tmp/x?mode=0660&group=no-such-group", "this system has no such group"),
        ("controller+unix:///tmp/x?loopback=owner", "unknown option 'loopback'"),
    ]
    check_every_row(check, rows)


def test_clients_and_workers_ignore_these_options() -> None:
    for url in ("tcp://127.0.0.1:1?loopback=owner", "ipc:///tmp/x?mode=0660&group=www&loopback=anyone"):
        assert worker_target(url).place == caller_target(url, None).place
    worker_target("http://127.0.0.1:1?loopback=anyone")


def test_every_default_listener_on_tcp_is_for_its_owner() -> None:
    urls = [url for url in default_listeners({"XDG_RUNTIME_DIR": "/run"}) if "://127." in url and "http" not in url]
    assert len(urls) > 4
    assert {access_of(url) for url in urls} == {LocalAccess()}
