"""Rights of native clients: SUBMIT and ASK of a principal that lacks a right (R146, R147, R152)."""

from __future__ import annotations

from dragoman.core.owners import Owner
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.dialects.native.codec import write_object

from .world import End, World, ask, hello, read, submit

ONE = b"number-1"
UNKNOWN = "0" * 32
ID = b"i" * 16


class RightsWorld(World):
    def __init__(self) -> None:
        super().__init__()
        callers = Rights(call=("echo",))
        self.broker.principals.apply({"web": (callers, NO_LIMITS), "other": (callers, NO_LIMITS)})

    def client_of_principal(self, name: str) -> End:
        end = self.connect()
        end.peer.owner = Owner(self.broker.principals.named(name), f"connection of {name}")
        ((word, *_),) = end.say(*hello(1, {}))
        assert word == "WELCOME"
        return end

    def answer(self, client: End, operation: str, request: dict[str, object]) -> list[bytes]:
        """Send an ASK. Returns the frames of the answer."""
        client.receive(ask(ONE, operation, request))
        self.run_once()
        (frames,) = client.messages()
        return [bytes(each) for each in frames]


def test_a_submit_without_the_right_is_refused_as_forbidden() -> None:
    world = RightsWorld()
    client = world.client_of_principal("web")
    client.receive(submit([(ID, b"job")], service="mail"))
    world.run_once()
    ((word, *fields),) = client.told()
    assert word == "FAILED"
    assert "forbidden" in fields
    assert "forbidden: web may not call 'mail'" in fields
    assert world.broker.counters.rights_refused == {("call", "native"): 1}


def test_an_ask_without_the_right_is_an_object_forbidden() -> None:
    world = RightsWorld()
    client = world.client_of_principal("web")
    requests: list[tuple[str, dict[str, object], str, str]] = [
        ("enqueue", {"service": "mail"}, "call", "mail"),
        ("pause", {"name": "echo"}, "administer", "echo"),
        ("service", {"name": "mail"}, "see", "mail"),
    ]
    for operation, request, right, service in requests:
        sentence = (
            f"web may not {right} '{service}'; an administrator of the broker gives the right with: "
            f"dragoman access allow web --{right} {service}"
        )
        assert world.answer(client, operation, request) == write_object(ONE, "forbidden", sentence)
    assert set(world.broker.counters.rights_refused) == {(each, "native") for each in ("call", "administer", "see")}


def test_a_foreign_job_is_not_found_as_an_unknown_one_to_the_byte() -> None:
    """R147"""
    world = RightsWorld()
    web, other = world.client_of_principal("web"), world.client_of_principal("other")
    ((_, _, view, _),) = web.say(*ask(ONE, "enqueue", {"service": "echo"}, b"secret"))
    for operation in ("job", "payload", "cancel", "result", "retry", "why"):
        foreign, unknown = (world.answer(other, operation, {"id": id}) for id in (view["id"], UNKNOWN))
        assert [each.replace(view["id"].encode(), UNKNOWN.encode()) for each in foreign] == unknown
        assert read(unknown) == [("OBJECT", ONE, "not found")]
    assert other.say(*ask(ONE, "jobs", {}))[0][2]["jobs"] == []
    assert len(web.say(*ask(ONE, "jobs", {}))[0][2]["jobs"]) == 1


def test_the_name_of_the_principal_takes_the_place_of_by() -> None:
    """R151"""
    world = RightsWorld()
    world.broker.principals.apply({"ops": (Rights(administer=("*",)), NO_LIMITS)})
    client = world.client_of_principal("ops")
    ((_, _, view, _),) = client.say(*ask(ONE, "pause", {"name": "echo", "by": "Ada"}))
    assert view["paused_by"] == "ops"
