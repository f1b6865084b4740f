"""Workers without the right to their service, written by hand: the answer that each dialect gives them."""

from __future__ import annotations

import json
from collections.abc import Callable

from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.carriers.zmtp import Zmtp
from dragoman.dialects.controller.codec import extra_of_pulse
from pairs import controller, http, majordomo, memodb, native, pingpong, powerhose
from pairs.asgi import Exchange
from pairs.world import SERVICE, Connection, World


def native_worker(world: World) -> None:
    connection = Connection(world, world.listener(native.URL, "both"), Zmtp("DEALER"))
    connection.say(native.HELLO + b"\x01\x02", json.dumps({"services": [SERVICE]}).encode())
    assert connection.take() == [[b"\x03" + native.HELLO, b"forbidden", b"local may not work for 'translate'"]]
    assert connection.is_cut


def http_worker(world: World) -> None:
    form = json.dumps({"services": [SERVICE]}).encode()
    joined = Exchange(world, "POST", "/v1/workers", form, {"Content-Type": "application/json"}, http.OPTIONS)
    assert joined.status == 403
    assert json.loads(joined.content)["type"] == "urn:dragoman:forbidden"


def pingpong_worker(edition: str) -> Callable[[World], None]:
    def refused(world: World) -> None:
        """The worker ignores EXIT, and is disconnected in the end (R46)."""
        connection = Connection(world, world.listener(pingpong.url(edition), "workers"), Zmtp("DEALER", dials=True))
        for word in (b"READY", b"PING", b"READY"):
            connection.say(b"", word)
            assert connection.take() == [[b"", b"EXIT"]]
            assert not connection.is_cut
            world.wait(1)
        connection.say(b"", b"PING")
        assert connection.take() == []
        assert connection.is_cut

    return refused


def powerhose_worker(world: World) -> None:
    registrant = Connection(world, world.listener(powerhose.URL, "workers"), Zmtp("REQ", dials=True))
    world.places["127.0.0.1:8999"] = lambda: Zmtp("REP")
    registrant.say(b"", b"PING:::tcp://127.0.0.1:8999")
    assert registrant.take() == [[b"", b"ERROR"]]
    world.connect()
    assert world.dialled == {}


def memodb_worker(world: World) -> None:
    context = memodb.Context(world)
    context.ask(memodb.READY, b"", [SERVICE])
    assert context.answers() == []
    assert context.connection.is_cut


def majordomo_worker(kind: type[majordomo.Rfc7Worker]) -> Callable[[World], None]:
    def refused(world: World) -> None:
        """DISCONNECT comes when the first heartbeat is due, because the Guide's worker reconnects at once after it."""
        connection = majordomo.connect(world)
        connection.say(*kind.head, b"\x01", SERVICE.encode())
        assert connection.take() == []
        world.wait(60)
        disconnect = bytes([kind.heartbeat[0] + 1])
        assert connection.take() == [[*kind.head, disconnect]]
        assert not connection.is_cut

    return refused


def controller_worker(kind: type[controller.SeedWorker]) -> Callable[[World], None]:
    def refused(world: World) -> None:
        listener = world.listener(controller.URL, "workers")
        connection = Connection(world, listener, LengthPrefix(extra_of_pulse), controller.USER)
        connection.say(controller._written(kind.register, 0, 0, controller.NEXT_PULSE))
        ((head, _),) = connection.take()
        assert controller._read(head) == {1: kind.fine + 3}  # FAILED, and no id
        assert connection.is_cut

    return refused


REFUSED_WORKERS: dict[str, Callable[[World], None]] = {
    "native": native_worker,
    "http": http_worker,
    "pingpong": pingpong_worker("plain"),
    "pingpong-package": pingpong_worker("package"),
    "powerhose": powerhose_worker,
    "memodb": memodb_worker,
    "controller": controller_worker(controller.SeedWorker),
    "controller-shifted": controller_worker(controller.ShiftedWorker),
    "majordomo": majordomo_worker(majordomo.Rfc7Worker),
    "majordomo-0.2": majordomo_worker(majordomo.Rfc18Worker),
    "majordomo-field": majordomo_worker(majordomo.FieldWorker),
}
