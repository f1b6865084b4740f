"""Parameters that native workers declare, and jobs that they refuse because of one (R267, R268)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.core.infinity import inf
from dragoman.core.model import JobId
from dragoman.core.states import JobState
from dragoman.dialects.native.client_operations import ClientOperations, PendingOperation
from dragoman.dialects.native.codec import write_welcome
from dragoman.dialects.native.messages import Role, Welcome
from dragoman.dialects.sides import Failure

from .test_worker_side import A, Side
from .world import World, ask, failed, hello

ONE = bytes(8)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}
UNKNOWN = b'unknown [["x"],["a","b"]]'


def background(world: World, **fields: Any) -> JobId:
    ((_, _, view, _),) = world.client().say(*ask(ONE, "enqueue", {"service": "echo"} | fields, b"{}"))
    return JobId(bytes.fromhex(view["id"]))


def test_declaration_is_kept_while_the_worker_is_connected() -> None:
    """R267."""
    world = World()
    worker = world.connect()
    ((word, _, welcome),) = worker.say(
        *hello(2, {"services": ["echo"], "parameters": {"echo": SCHEMA, "other": SCHEMA}})
    )
    assert (word, welcome["parameters"]) == ("WELCOME", True)
    parameters = world.broker.worker_registry.services["echo"].parameters
    assert parameters is not None
    assert parameters.union() == SCHEMA
    worker.cut()
    world.run_once()
    assert parameters.union() is None


def test_worker_that_declares_nothing_is_not_told_of_it() -> None:
    ((_, _, welcome),) = World().connect().say(*hello(2, {"services": ["echo"]}))
    assert "parameters" not in welcome


@pytest.mark.parametrize("parameters", [5, [], {"echo": 5}, {"echo": {}}, {"echo": {"properties": []}}])
def test_declaration_that_cannot_be_read_is_hung_up_on(parameters: object) -> None:
    worker = World().connect()
    assert worker.say(*hello(2, {"services": ["echo"], "parameters": parameters})) == [("ERROR", "HELLO", "malformed")]
    assert worker.is_over


def test_background_job_that_a_worker_refuses_waits_for_one_that_has_declared_the_parameter() -> None:
    """R268, R269."""
    world = World()
    old = world.worker(parameters={"echo": SCHEMA}, retries=True)
    id = background(world, parameters=["a", "b", "x"])
    ((_, token, *_),) = old.told()
    old.say(*failed(token, "dragoman.WrongArguments", "echo has no parameter 'x'"), UNKNOWN)
    job = world.broker.jobs[id]
    assert (job.state, job.needs, job.spent) == (JobState.DELAYED, ("x",), 0)
    new = world.worker(parameters={"echo": {"properties": {"a": {}, "b": {}, "x": {}}}})
    world.wait(1, old, new)
    assert [told[0] for told in new.told()] == ["JOB"]


def test_names_that_cannot_be_read_are_malformed() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = world.running(worker, client)
    for decision in (
        b"unknown ",
        b"unknown []",
        b'unknown [[],["a"]]',
        b'unknown [["x"],[5]]',
        b"unknown " + b"[" * 9_000,
    ):
        assert worker.say(*failed(token), decision) == [("ERROR", "FAILED", "malformed")]


# -------------------------------------------------------------------- our workers and clients


@pytest.mark.parametrize(("understood", "decision"), [(True, UNKNOWN), (False, b"never")])
def test_worker_names_unknown_parameters_to_a_broker_that_understands_it(understood: bool, decision: bytes) -> None:
    """R267. To others the failure is permanent, as before."""
    side = Side()
    side.receive(write_welcome(Welcome(2.0, 10.0, 1_000, retries=True, parameters=understood), Role.WORKER), 0.5)
    side.give(A)
    failure = Failure("dragoman.WrongArguments", "no", retry_in=inf, unknown=("x",), known=("a", "b"))
    side.failed(A, "no", 1.0, failure)
    assert side.port.take() == [[b"\x21\x01" + A, b"dragoman.WrongArguments", b"no", b"", decision]]


def test_worker_declares_parameters_in_hello() -> None:
    side = Side(is_open=False)
    side.declare_parameters({"echo": SCHEMA})
    side.opened(1.0)
    assert json.loads(bytes(side.port.take()[-1][1]))["parameters"] == {"echo": SCHEMA}


@pytest.mark.parametrize("operation", ["enqueue", "enqueue many"])
def test_client_leaves_out_parameters_for_a_broker_that_does_not_understand_them(operation: str) -> None:
    """A broker refuses a request with a field that it does not know."""
    request = b'{"service": "echo", "parameters": ["a"]}'
    for extras, fields in ((("parameters",), {"service": "echo", "parameters": ["a"]}), ((), {"service": "echo"})):
        operations = ClientOperations()
        operations.add(ONE, PendingOperation("ref", operation, request, b"", None))
        ((_, sent),) = operations.unsent(Welcome(1.0, 1.0, 1_000, window=1, extras=extras))
        assert json.loads(bytes(sent)) == fields
