"""A routing id, worker id, attempt token, job id or key of another principal is of no use (R176 to R178).

Each test has a worker or caller of the principal `victim`, and a connection of `thief` from the same address that names
what belongs to the victim. The thief has all rights, so that only the principal is in the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.carriers.zmtp import Zmtp
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS, Principal, Rights
from dragoman.core.states import Outcome
from dragoman.dialects.controller.codec import extra_of_pulse
from dragoman.server.authentication import Admitted
from pairs import asgi, controller, http, majordomo, memodb, native, pingpong, powerhose
from pairs.asgi import Exchange, settle
from pairs.participants import Participants, Worker
from pairs.world import SERVICE, Connection, World

CANCEL, RESUME, MISSING = b"\x12", b"\x14", b"\x15"


@pytest.fixture
def world() -> Iterator[World]:
    with asgi.one_world() as world:
        accounts = (ALL_RIGHTS, NO_LIMITS)
        world.broker.principals.apply({"victim": accounts, "thief": accounts})
        yield world


@contextmanager
def principal(world: World, name: str) -> Iterator[Principal]:
    """New connections belong to this principal."""
    world.admitted = Admitted(world.broker.principals.named(name))
    yield world.admitted.principal
    world.admitted = None


def busy_worker(world: World, workers: Participants) -> tuple[native.NativeCaller, Any]:
    """Return a caller with a job, and the victim's worker that runs it."""
    with principal(world, "victim"):
        worker: Worker = workers.worker(world)
    caller = native.NativeCaller(world)
    caller.submit(b"bonjour")
    assert worker.jobs() == [b"bonjour"]
    return caller, worker


def assert_unharmed(world: World, caller: native.NativeCaller, worker: Any) -> None:
    """The job is still running, and its worker's result is the one that counts."""
    settle(world)
    assert caller.told() == []
    worker.finish(b"good day")
    assert caller.told() == [(Outcome.DONE, b"good day")]


def connect(world: World, listener: Any, carrier: Carrier) -> Connection:
    with principal(world, "thief"):
        return Connection(world, listener, carrier)


# ---------------------------------------------------------------- results of another worker's attempt


@pytest.mark.parametrize(
    ("word", "frames"),
    [(native.RESULT, [b"forged"]), (native.FAILED + b"\x01", [b"ValueError", b"forged", b""])],
    ids=["RESULT", "FAILED"],
)
def test_native_token_is_valid_only_on_its_worker_s_connection(world: World, word: bytes, frames: list[bytes]) -> None:
    caller, worker = busy_worker(world, native.NATIVE)
    thief = connect(world, world.listener(native.URL, "both"), Zmtp("DEALER"))
    thief.say(native.HELLO + b"\x01\x02", json.dumps({"services": [SERVICE]}).encode())
    thief.say(word + worker._token, *frames)
    assert world.counters.late_results == 1
    assert_unharmed(world, caller, worker)


def test_pingpong_token_is_valid_only_on_its_worker_s_connection(world: World) -> None:
    caller, worker = busy_worker(world, pingpong.PACKAGE)
    thief = connect(world, world.listener(pingpong.url("package"), "workers"), Zmtp("DEALER", dials=True))
    thief.say(b"", b"READY")
    thief.say(b"", b"JOB COMPLETE", *worker._envelope, b"", b"forged")
    assert world.counters.late_results == 1
    other = native.NativeCaller(world)
    other.submit(b"for the thief")
    thief.say(b"", b"JOB COMPLETE", *worker._envelope, b"", b"forged")
    assert world.counters.late_results == 2
    assert other.told() == []
    assert_unharmed(world, caller, worker)


def test_pingpong_result_without_a_job_is_of_no_use(world: World) -> None:
    caller, worker = busy_worker(world, pingpong.PLAIN)
    thief = connect(world, world.listener(pingpong.url("plain"), "workers"), Zmtp("DEALER", dials=True))
    thief.say(b"", b"READY")
    thief.say(b"", b"forged")
    assert world.counters.late_results == 1
    assert_unharmed(world, caller, worker)


@pytest.mark.parametrize("workers", [majordomo.RFC7, majordomo.RFC18, majordomo.FIELD], ids=str)
def test_majordomo_token_is_valid_only_on_its_worker_s_connection(world: World, workers: Participants) -> None:
    caller, worker = busy_worker(world, workers)
    thief = connect(world, world.listener(majordomo.URL, "both"), Zmtp("DEALER", dials=True))
    thief.say(*worker.head, b"\x01", SERVICE.encode())
    thief.say(*worker.head, worker.reply, worker._client, b"", b"forged")
    assert thief.take() == [[*worker.head, bytes([worker.heartbeat[0] + 1])]]  # DISCONNECT: it holds no job
    assert_unharmed(world, caller, worker)


def test_memodb_id_is_valid_only_for_its_principal(world: World) -> None:
    """A bug: an id was valid on every connection from its address, and all programs of one machine share that."""
    caller, worker = busy_worker(world, memodb.MEMODB)
    with principal(world, "thief"):
        thief = memodb.Context(world)
    thief.ask(memodb.RESULT, worker._id, payload=b"forged")
    assert thief.answers() == [([memodb.DISCONNECT, worker._id], b"")]
    thief.ask(memodb.HEARTBEAT, worker._id)
    assert thief.answers() == [([memodb.DISCONNECT, worker._id], b"")]
    assert_unharmed(world, caller, worker)


def test_http_token_of_an_attempt_is_valid_only_for_its_worker(world: World) -> None:
    caller, worker = busy_worker(world, http.HTTP)
    thief = http.HttpWorker(world)
    headers = {**thief._secret, "Dragoman-Attempt": worker._token}
    said = Exchange(world, "POST", f"{thief._path}/result", b"forged", headers, http.OPTIONS)
    assert said.status == 409
    headers = {**thief._secret, "Dragoman-Attempt": worker._token}
    said = Exchange(world, "POST", f"{worker._path}/result", b"forged", headers, http.OPTIONS)
    assert said.status == 403
    assert_unharmed(world, caller, worker)


# ---------------------------------------------------------------- requests that another one has made


def test_memodb_ready_of_a_lost_connection_is_not_adopted_by_another_principal(world: World) -> None:
    """A bug: an equal READY from the same address became the lost worker, with its job."""
    caller, worker = busy_worker(world, memodb.MEMODB)
    worker._context.connection.cut()
    with principal(world, "thief"):
        thief = memodb.MemoDbWorker(world)  # the same request id and bytes
    assert thief.jobs() == []
    assert len(world.broker.worker_registry.workers) == 2
    with principal(world, "victim"):
        again = memodb.MemoDbWorker(world)
    assert again.jobs() == [b"bonjour"]
    assert_unharmed(world, caller, again)


def test_memodb_job_is_not_sent_again_after_its_right_was_lost(world: World) -> None:
    """R174. A simulation found it: the reply to a repeated READY had the payload, though the right was revoked."""
    caller, worker = busy_worker(world, memodb.MEMODB)
    worker._context.connection.cut()
    world.broker.principals.named("victim").rights = Rights(call=("*",))
    with principal(world, "victim"):
        again = memodb.Context(world)
    again.ask(memodb.READY, b"", [SERVICE, "another"])
    assert again.answers() == [([memodb.DISCONNECT, worker._id], b"")]
    assert caller.told() == [(Outcome.LOST, b"")]
    assert world.broker.worker_registry.workers == {}


def test_memodb_call_of_a_lost_connection_is_not_adopted_by_another_principal(world: World) -> None:
    """A bug: an equal request from the same address got the reply to the lost one."""
    worker = native.NativeWorker(world)
    with principal(world, "victim"):
        victim = memodb.MemoDbCaller(world)
    victim.submit(b"bonjour")
    assert worker.jobs() == [b"bonjour"]
    worker.finish(b"for the victim")
    victim._context.connection.cut()
    with principal(world, "thief"):
        thief = memodb.MemoDbCaller(world)
    thief.submit(b"bonjour")
    assert thief.told() == []
    assert worker.jobs() == [b"bonjour"]
    worker.finish(b"for the thief")
    assert thief.told() == [(Outcome.DONE, b"for the thief")]
    with principal(world, "victim"):
        again = memodb.MemoDbCaller(world)
    again.submit(b"bonjour")
    assert again.told() == [(Outcome.DONE, b"for the victim")]


# ---------------------------------------------------------------- routing ids


@pytest.mark.parametrize(
    ("workers", "url", "ready"),
    [
        (pingpong.PLAIN, pingpong.url("plain"), (b"", b"READY")),
        (pingpong.PACKAGE, pingpong.url("package"), (b"", b"READY")),
        (majordomo.RFC7, majordomo.URL, (b"", b"MDPW01", b"\x01", SERVICE.encode())),
    ],
    ids=str,
)
def test_routing_id_is_not_taken_over_by_another_principal(
    world: World, workers: Participants, url: str, ready: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T7, R176. The newcomer is closed; another connection of the same principal takes over."""
    listener = world.listener(url, "workers")
    with monkeypatch.context() as patch:
        patch.setattr(f"pairs.{workers.dialect}.Zmtp", lambda kind, **options: Zmtp(kind, b"gpu", **options))
        caller, worker = busy_worker(world, workers)
    thief = connect(world, listener, Zmtp("DEALER", b"gpu", dials=True))
    assert thief.is_cut
    assert [fields["former"] for event, fields in world.lines if event == "routing id refused"] == ["127.0.0.1"]
    assert world.counters.takeovers == 0
    assert_unharmed(world, caller, worker)
    with principal(world, "victim"):
        again = Connection(world, listener, Zmtp("DEALER", b"gpu", dials=True))
    again.say(*ready)
    assert not again.is_cut
    assert worker._connection.is_cut
    assert world.counters.takeovers == 1


# ---------------------------------------------------------------- native clients


def hello(world: World, name: str, about: dict[str, str]) -> tuple[Connection, dict[str, Any]]:
    with principal(world, name):
        connection = Connection(world, world.listener(native.URL, "both"), Zmtp("DEALER"))
    connection.say(native.HELLO + b"\x01\x01", json.dumps(about).encode())
    ((head, welcome),) = connection.take()
    assert head[:1] == native.WELCOME
    return connection, json.loads(welcome)


def submit(connection: Connection, job: bytes) -> None:
    connection.say(native.SUBMIT + b"\x01\xff\x00" + bytes(12) + SERVICE.encode(), job, b"bonjour")


def test_native_session_is_not_resumed_by_another_principal(world: World) -> None:
    session = {"session": "a5" * 16}
    victim, welcome = hello(world, "victim", session)
    submit(victim, b"j" * 16)
    victim.cut()
    known = {**session, "epoch": welcome["epoch"]}
    thief, answer = hello(world, "thief", known)
    assert not answer.get("resumed")
    thief.say(RESUME, b"j" * 16)
    assert [message[0][:1] for message in thief.take()] == [MISSING]
    worker = native.NativeWorker(world)
    assert worker.jobs() == [b"bonjour"]
    worker.finish(b"good day")
    assert thief.take() == []
    again, answer = hello(world, "victim", known)
    assert answer["resumed"]
    again.say(RESUME, b"j" * 16)
    assert again.take() == [[native.RESULT + b"j" * 16, b"good day"]]


def test_native_job_is_not_cancelled_by_another_client(world: World) -> None:
    victim, _ = hello(world, "victim", {})
    thief, _ = hello(world, "thief", {})
    submit(victim, b"j" * 16)
    thief.say(CANCEL, b"j" * 16)
    assert world.only_job().state == "waiting"
    assert thief.take() == victim.take() == []
    victim.say(CANCEL, b"j" * 16)
    assert [message[0][:2] for message in victim.take()] == [native.FAILED + b"\x04"]


def test_idempotency_key_of_another_principal_is_another_key(world: World) -> None:
    broker = world.broker
    options = JobOptions(waits=True)
    callers = [Caller(Recipient(), Owner(broker.principals.named(name))) for name in ("victim", "thief", "victim")]
    first, other, again = (
        broker.submit(SERVICE, b"bonjour", each, options, world.now, key="order 1") for each in callers
    )
    assert first is again is not None
    assert other is not None
    assert other is not first


# ---------------------------------------------------------------- workers that the broker dials


def test_powerhose_endpoint_is_removed_and_renewed_only_by_its_principal(world: World) -> None:
    caller, worker = busy_worker(world, powerhose.POWERHOSE)
    thief = connect(world, world.listener(powerhose.URL, "workers"), Zmtp("REQ", dials=True))
    for word in (b"PING", b"REMOVE"):
        thief.say(b"", b"%s:::tcp://127.0.0.1:%d" % (word, worker._port))
        assert thief.take() == [[b"", b"ERROR"]]
    assert_unharmed(world, caller, worker)


def test_powerhose_endpoint_is_not_registered_under_another_spelling_by_another_principal(world: World) -> None:
    """A bug: the broker would have dialled the victim's worker a second time, for the thief."""
    caller, worker = busy_worker(world, powerhose.POWERHOSE)
    thief = connect(world, world.listener(powerhose.URL, "workers"), Zmtp("REQ", dials=True))
    for host in (b"localhost", b"[::ffff:127.0.0.1]", b"[::ffff:7f00:1]"):
        thief.say(b"", b"PING:::tcp://%s:%d" % (host, worker._port))
        assert thief.take() == [[b"", b"ERROR"]], host
    with principal(world, "victim"):
        again = Connection(world, world.listener(powerhose.URL, "workers"), Zmtp("REQ", dials=True))
    again.say(b"", b"PING:::tcp://localhost:%d" % worker._port)
    assert again.take() == [[b"", b"PONG"]]
    assert_unharmed(world, caller, worker)


def test_powerhose_endpoint_is_free_when_its_principal_has_lost_the_right(world: World) -> None:
    """A principal was renamed: its workers register the same endpoints under another name."""
    caller, worker = busy_worker(world, powerhose.POWERHOSE)
    ping = b"PING:::tcp://127.0.0.1:%d" % worker._port
    thief = connect(world, world.listener(powerhose.URL, "workers"), Zmtp("REQ", dials=True))
    world.broker.principals.named("victim").rights = Rights()
    thief.say(b"", ping)
    assert thief.take() == [[b"", b"ERROR"]]  # it still runs a job
    worker._dialled.cut()
    assert caller.told() == [(Outcome.LOST, b"")]
    thief.say(b"", ping)
    assert thief.take() == [[b"", b"PONG"]]


def test_controller_id_is_valid_only_for_its_user(world: World) -> None:
    worker = controller.SeedWorker(world)
    listener = world.listener(controller.URL, "workers")
    listener.session._uids |= {"uid 4711"}
    caller = native.NativeCaller(world)
    caller.submit(b"bonjour")
    assert worker.jobs() == [b"bonjour"]
    with principal(world, "thief"):
        for kind in (worker.ok, worker.fetch_me, worker.shutdown):
            thief = Connection(world, listener, LengthPrefix(extra_of_pulse), "uid 4711")
            thief.say(controller._written(kind, worker._id, worker._task, controller.NEXT_PULSE))
            ((head, _),) = thief.take()
            assert controller._read(head) == {1: worker.fine + 2}  # UNKNOWN_ID
    assert_unharmed(world, caller, worker)
