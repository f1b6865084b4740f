"""Authentication: credentials to principals, and the table that a running broker reads again."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from authority import Authority
from case_tables import check_every_row
from dragoman.access.identities import IdentityKind
from dragoman.access.keys import broker_key_folder, new_key_file
from dragoman.access.location import AccessPlaces
from dragoman.access.problems import AccessError
from dragoman.access.tokens import new_token, token_hash
from dragoman.carriers.zmtp import Zmtp
from dragoman.core.broker import Broker
from dragoman.core.options import WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.rights import CALL, WORK
from dragoman.core.states import GONE
from dragoman.dialects.catalogue import DIALECTS
from dragoman.sdk.address import AddressError, parse
from dragoman.server.access_control import AccessControl
from dragoman.server.admission import AdmissionLimits
from dragoman.server.authentication import Admitted, Authentication, AuthMechanism, ListenerAuth, Rejected
from dragoman.server.certificate_watch import DAY, CertificateWatch
from dragoman.server.listener_security import identity_kinds
from dragoman.server.runner import Runner
from dragoman.server.wiring import Listener, prepare
from dragoman.store.null import NullStore
from dragoman.streams.tls_context import ListenerTls
from dragoman.testing.entropy import SeededEntropy

TOKEN = new_token(bytes(32)).reveal().decode()
KEY = bytes(range(32))


class LogLines:
    def __init__(self) -> None:
        self.lines: list[tuple[str, Mapping[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    error = info
    warning = info


class World:
    """A broker with a data folder, and no loop."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.access = data / "access"
        self.broker = Broker(Policy(), SeededEntropy(1))
        self.runner = Runner(self.broker, NullStore(), lambda: 0.0, lambda *_, **__: None, AdmissionLimits())
        self.wall = 1_000.0
        self.authentication = Authentication(self.broker.principals, lambda: self.wall)
        self.log = LogLines()
        self.certificates: list[ListenerTls] = []

    def put(self, name: str, text: str) -> None:
        self.access.mkdir(mode=0o700, exist_ok=True)
        path = self.access / f"{name}.toml"
        path.write_text(text)
        path.chmod(0o600)

    def start(self, **more: Any) -> AccessControl:
        places = AccessPlaces(data=self.data)
        connections = self.runner.connections
        return AccessControl(
            self.broker, connections, self.authentication, places, self.log, lambda: self.certificates, **more
        )

    def prepare(self, url: str) -> Listener:
        return prepare(url, self.broker, self.runner, authentication=self.authentication)


@pytest.fixture
def world(tmp_path: Path) -> World:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return World(data)


def name_of(found: Admitted | Rejected | None) -> str | None:
    return found.principal.name if isinstance(found, Admitted) else None


# -------------------------------------------------------------------- credentials


def test_each_credential_finds_its_principal(world: World, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    named = authority.issue("x", "subjectAltName=DNS:ops.example.org,DNS:other")
    unknown = authority.issue("y", "subjectAltName=DNS:stranger")
    world.put("web", f'token = ["sha256:{token_hash(TOKEN).hex()}"]\ncall = ["mail.*"]')
    world.put("gpu-1", f'curve = ["{KEY.hex()}"]\nwork = ["resize"]')
    world.put("staff", 'gid = [8]\nsee = ["*"]')
    world.put("ops", 'uid = [1001]\ngid = [7]\ntls_name = ["ops.example.org"]\nadminister = ["*"]')
    world.start()
    look = world.authentication

    def check(found: Admitted | Rejected | None, name: str | None) -> None:
        assert name_of(found) == name
        if name is not None:
            assert isinstance(found, Admitted)
            assert look.is_current(found)

    rows = [
        (look.by_token(TOKEN), "web"),
        (look.by_token(TOKEN[:-1]), None),
        (look.by_token(""), None),
        (look.by_curve(KEY), "gpu-1"),
        (look.by_curve(bytes(32)), None),
        (look.by_user(1001), "ops"),
        (look.by_user(1002), None),
        (look.by_user(1002, [5, 7]), "ops"),
        (look.by_user(1002, [7, 8]), None),  # groups of two principals prove neither
        (look.by_user(1001, [7, 8]), "ops"),
        (look.by_certificate(der(named.cert)), "ops"),
        (look.by_certificate(der(unknown.cert)), None),
        (look.by_certificate(b"\x30\x00"), None),
    ]
    check_every_row(check, rows)
    assert look.knows_token(b"token", TOKEN.encode())
    assert not look.knows_token(b"name", TOKEN.encode())
    rejected = look.by_certificate(der(unknown.cert))
    assert isinstance(rejected, Rejected)
    assert "'stranger'" in rejected.detail
    assert "dragoman access allow NAME --tls-name" in rejected.detail
    unreadable = look.by_certificate(b"\x30\x00")
    assert isinstance(unreadable, Rejected)
    assert "it cannot be read (not a certificate: its DER form ends early)" in unreadable.detail


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_credentials_are_looked_up_again_once_the_handshake_is_done(world: World, tmp_path: Path) -> None:
    """A reload may take them away between the two: what the client had proved then admits nobody."""
    authority = Authority(tmp_path / "ca")
    named, unknown = (authority.issue(each, f"subjectAltName=DNS:{each}") for each in ("ops", "stranger"))
    world.put("web", f'token = ["sha256:{token_hash(TOKEN).hex()}"]')
    world.put("gpu-1", f'curve = ["{KEY.hex()}"]')
    world.put("ops", 'tls_name = ["ops"]')
    world.start()
    look = world.authentication

    def check(auth: ListenerAuth, credential: bytes | None, name: str | None) -> None:
        carrier = Zmtp("ROUTER")
        carrier.peer_key = carrier.peer_token = credential or b""
        found = auth.judge(look.local, credential, carrier)
        assert name_of(found) == name
        assert (auth.rejection(credential) is not None) == (auth is certificates and credential == der(unknown.cert))

    def asking(mechanism: AuthMechanism, *, certificate: bool = False, is_open: bool = False) -> ListenerAuth:
        return ListenerAuth(look, mechanism, verifies_certificates=certificate, is_open=is_open)

    curve, tokens = asking(AuthMechanism.CURVE), asking(AuthMechanism.TOKEN)
    certificates = asking(AuthMechanism.NONE, certificate=True)
    rows = [
        (curve, KEY, "gpu-1"),
        (curve, bytes(32), None),
        (curve, None, None),
        (tokens, TOKEN.encode(), "web"),
        (tokens, TOKEN.encode()[:-1], None),
        (tokens, b"\xff", None),
        (tokens, None, None),
        (asking(AuthMechanism.TOKEN, certificate=True), der(named.cert), None),  # the certificate does not decide
        (certificates, der(named.cert), "ops"),
        (certificates, der(unknown.cert), None),
        (certificates, None, None),
        (asking(AuthMechanism.NONE, is_open=True), None, "anyone"),
        (asking(AuthMechanism.NONE), None, "local"),
    ]
    check_every_row(check, rows)


def test_without_a_table_a_verified_certificate_is_anyone(world: World, tmp_path: Path) -> None:
    world.start()
    found = world.authentication.by_certificate(der(Authority(tmp_path / "ca").issue().cert))
    assert found is world.authentication.anyone
    assert world.authentication.by_token(TOKEN) is None


def test_whoever_was_anyone_before_there_was_a_table_proves_it_again(world: World) -> None:
    """A bug: a worker with a certificate of the new table stayed `anyone`, without rights, and was sent away."""
    control = world.start()
    before = world.authentication.anyone
    assert world.authentication.is_current(before)
    world.put("ops", 'tls_name = ["ops.example.org"]\nwork = ["*"]')
    control.reload()
    assert not world.authentication.is_current(before)
    assert world.authentication.is_current(world.authentication.anyone)
    assert world.authentication.is_current(world.authentication.local)
    after = world.authentication.anyone
    control.reload()
    assert world.authentication.is_current(after)


def test_a_principal_expires(world: World) -> None:
    world.put("web", f'token = ["sha256:{token_hash(TOKEN).hex()}"]\ncall = ["*"]\nexpires = 1970-01-01T00:30:00Z')
    control = world.start()
    found = world.authentication.by_token(TOKEN)
    assert found is not None
    assert world.authentication.next_expiry == 800.0
    world.wall = 1_800.0
    assert world.authentication.by_token(TOKEN) is None
    assert not world.authentication.is_current(found)
    assert found.principal.may(CALL, "mail")
    control._expire()
    assert not found.principal.may(CALL, "mail")
    assert [event for event, _ in world.log.lines] == ["access expired"]


# -------------------------------------------------------------------- reload


def test_a_reload_adds_changes_and_removes(world: World) -> None:
    world.put("web", 'uid = [1]\ncall = ["a"]')
    world.put("old", 'uid = [2]\ncall = ["a"]')
    control = world.start()
    web, old = (world.broker.principals.named(each) for each in ("web", "old"))
    world.put("web", 'uid = [1]\ncall = ["a", "b"]')
    world.put("new", 'uid = [3]\ncall = ["a"]')
    (world.access / "old.toml").unlink()
    changes = control.reload().changes
    assert (changes.added, changes.removed, changes.changed) == (("new",), ("old",), ("web",))
    assert web.may(CALL, "b")
    assert not old.may(CALL, "a")


def test_bad_access_file_changes_nothing(world: World) -> None:
    world.put("web", 'uid = [1]\ncall = ["a"]')
    control = world.start()
    world.put("web", 'uid = [1]\ncall = ["b"]')
    world.put("bad", "cal = []")
    with pytest.raises(AccessError, match=r"bad\.toml, line 1: cal is not a key; did you mean 'call'"):
        control.reload()
    control.hangup()  # the same, for a signal
    assert world.broker.principals.named("web").may(CALL, "a")
    assert [event for event, _ in world.log.lines] == ["access not reloaded"] * 2


def test_bad_certificate_reload_keeps_the_old(world: World, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    issued = authority.issue()
    listener = world.prepare(f"native+tls://127.0.0.1:0?{issued.options}")
    assert listener.tls is not None
    world.certificates = [listener.tls]
    world.put("web", 'uid = [1]\ncall = ["a"]')
    control = world.start()
    before = listener.tls.role
    issued.key.write_text("not a key")
    world.put("web", 'uid = [1]\ncall = ["b"]')
    with pytest.raises(AccessError):
        control.reload()
    assert listener.tls.role is before
    assert world.broker.principals.named("web").may(CALL, "a")


def test_vanished_table_does_not_fall_open(world: World) -> None:
    world.put("web", 'uid = [1]\ncall = ["a"]')
    control = world.start()
    (world.access / "web.toml").unlink()
    world.access.rmdir()
    with pytest.raises(AccessError, match="is missing"):
        control.reload()
    assert world.broker.principals.named("web").may(CALL, "a")
    with pytest.raises(AccessError, match="--no-access"):
        World(world.data).start()
    World(world.data).start(no_access=True)
    World(world.data).start()


def test_a_table_that_no_data_folder_remembers_does_not_fall_open_either(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put("web", "uid = [1]")
    places = AccessPlaces(config=tmp_path / "dragoman.toml")
    control = AccessControl(world.broker, world.runner.connections, world.authentication, places, world.log, list)
    (world.access / "web.toml").unlink()
    world.access.rmdir()
    with pytest.raises(AccessError, match="there is no access folder any more"):
        control.reload()
    assert world.authentication.table is not None


def test_workers_lose_services_that_they_may_no_longer_work_for(world: World) -> None:
    world.put("gpu", 'uid = [1]\nwork = ["a", "b"]')
    control = world.start()
    owner = Owner(world.broker.principals.named("gpu"))
    session: Any = object()
    workers = [
        world.broker.join(session, None, "w", services, WorkerProfile(), 0.0, owner)
        for services in (["a", "b"], ["b"], ["a"])
    ]
    both, lost, kept = [each for each in workers if each is not None]
    for worker in (both, lost, kept):
        world.broker.idle(worker, 0.0)
    world.put("gpu", 'uid = [1]\nwork = ["a"]')
    control.reload()
    assert [each.name for each in both.services] == ["a"]
    assert [each.name for each in kept.services] == ["a"]
    assert lost.state is GONE


# -------------------------------------------------------------------- listeners


def test_a_listener_that_cannot_protect_itself_does_not_start(world: World, tmp_path: Path) -> None:
    issued = Authority(tmp_path / "ca").issue()
    world.put("ops", 'uid = [1]\ncall = ["*"]')
    world.start()

    def check(url: str, says: str) -> None:
        with pytest.raises(AddressError) as caught:
            world.prepare(url)
        assert says in str(caught.value)

    off = "0.0.0.0:0"
    rows = [
        (f"native+tcp://{off}", "it listens off loopback"),
        (f"native+tls://{off}?{issued.options}", "it listens off loopback"),
        (f"http://{off}", "it listens off loopback"),
        (f"native+tcp://{off}?auth=curve", "no principal of the access table can use auth=curve; run `dragoman keys"),
        (f"native+tcp://{off}?auth=token", "no principal of the access table can use auth=token; run `dragoman token"),
        (
            f"native+tls://{off}?{issued.options}&client_ca={issued.cert}",
            "no principal of the access table can use client_ca; run `dragoman access allow NAME --tls-name",
        ),
        (f"memodb+tcp://{off}?auth=curve", "unknown option 'auth'"),
        (f"pingpong+tcp://{off}?auth=token", "PingPong has no auth=token; write auth=curve"),
        (f"http://{off}?auth=curve", "HTTP has no auth=curve; write auth=token"),
        (f"native+tls://{off}?{issued.options}&auth=curve", "auth=curve has no place inside TLS; write auth=token"),
        (f"http://{off}?auth=token&insecure=true", "insecure=true and auth=token exclude each other"),
        (f"http://{off}?cleartext=true", "cleartext=true has no effect without auth=token"),
    ]
    check_every_row(check, rows)
    world.put("web", f'token = ["sha256:{token_hash(TOKEN).hex()}"]')
    world.put("gpu", f'curve = ["{KEY.hex()}"]')
    World.start(world)
    rows = [
        (f"native+tcp://{off}?auth=curve", "auth=curve needs a key of the broker; run `dragoman keys new --broker`"),
        (f"native+tcp://{off}?auth=token", "tokens would be readable on the way; use TLS"),
        (f"http://{off}?auth=token", "tokens would be readable on the way; use TLS"),
    ]
    check_every_row(check, rows)
    world.prepare(f"native+tcp://{off}?auth=token&cleartext=true")
    world.prepare(f"native+tls://{off}?auth=token&{issued.options}")


def test_a_listener_makes_carriers_with_the_keys_of_the_moment(world: World) -> None:
    folder = broker_key_folder(world.data)
    folder.mkdir(mode=0o700)
    first = new_key_file(folder, "broker", os.urandom(32))
    world.put("gpu", f'curve = ["{KEY.hex()}"]\nwork = ["a"]')
    control = world.start()
    [(_, listening)] = world.prepare("native+tcp://0.0.0.0:0?auth=curve").sockets
    carrier: Any = listening.carrier()  # type: ignore[union-attr]
    assert isinstance(carrier, Zmtp)
    assert carrier.is_encrypted
    assert world.authentication.curve_server.keys[0][0] == first.public
    (folder / "broker.key_secret").rename(folder / "broker-old.key_secret")
    second = new_key_file(folder, "broker", os.urandom(32))
    control.reload()
    assert [public for public, _ in world.authentication.curve_server.keys] == [second.public, first.public]
    assert world.broker.principals.named("gpu").may(WORK, "a")


def test_each_listener_takes_its_kinds_of_identities() -> None:
    kind = IdentityKind

    def check(url: str, *kinds: IdentityKind) -> None:
        address = parse(url, DIALECTS)
        assert identity_kinds(address, DIALECTS[address.dialect]) == kinds

    rows = [
        ("tcp://127.0.0.1:1", kind.UID),
        ("ipc:///tmp/x", kind.UID, kind.GID),
        ("tcp://0.0.0.0:1?insecure=true",),
        ("pingpong+tcp://0.0.0.0:1?auth=curve", kind.CURVE),
        ("native+tls://0.0.0.0:1?cert=a&client_ca=b", kind.TLS_NAME, kind.TLS_KEY),
        ("https://0.0.0.0:1?cert=a&client_ca=b&auth=token", kind.TLS_NAME, kind.TLS_KEY, kind.TOKEN),
        ("native+tls://0.0.0.0:1?cert=a&client_ca=b&auth=token", kind.TOKEN),
        ("http://127.0.0.1:1?auth=token", kind.TOKEN),
        ("controller+unix:///tmp/x",),
    ]
    check_every_row(check, rows)


def test_certificates_are_watched() -> None:
    """Each warning once, for each certificate."""
    now, log = 0.0, LogLines()
    expiries = [("a", 40 * DAY)]
    watch = CertificateWatch(log, lambda: expiries, lambda: now)
    seen = []
    for day in (0, 9, 10, 11, 33, 34, 39, 40, 41):
        now = day * DAY
        watch.look()
        seen.append((day, len(log.lines), bool(watch.problems())))
    assert seen == [
        (0, 0, False),
        (9, 0, False),
        (10, 1, False),
        (11, 1, False),
        (33, 2, False),
        (34, 2, False),
        (39, 3, False),
        (40, 3, True),
        (41, 3, True),
    ]
    expiries[0] = ("a", 80 * DAY)
    watch.look()
    assert watch.problems() == []
    now = 79 * DAY
    watch.look()
    assert len(log.lines) == 4
    assert log.lines[-1] == (
        "certificate expires",
        {"listener": "a", "days": 1.0, "note": "replace its files, then send SIGHUP"},
    )
