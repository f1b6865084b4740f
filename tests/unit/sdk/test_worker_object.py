"""The Worker object: options, services, handlers, payloads and results. Starts no processes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from math import inf
from typing import Annotated, Any, Optional

import pytest

import dragoman
from dragoman import Worker
from dragoman.dialects.sides import Failure, JobInfo
from dragoman.sdk import handlers
from dragoman.sdk.address import AddressError
from dragoman.sdk.codecs import codec
from dragoman.sdk.context import Context
from dragoman.sdk.errors import Unsupported
from dragoman.sdk.execution import ASYNC_JOBS, ExecutionOptions, cores
from dragoman.sdk.handlers import HandlerFailed, describe
from dragoman.sdk.job_runner import one_line
from dragoman.sdk.loading import HandlerLoadError, ObjectReference, load, loading, parse_reference, refer_to
from dragoman.sdk.worker_runner import declared_parameters, target_of

module_worker = Worker()


@module_worker.service("double", codec="json")
def double(number: int) -> int:
    return 2 * number


def failure(service: Any, payload: bytes) -> Failure:
    with pytest.raises(HandlerFailed) as caught:
        service.perform(payload, None)
    return caught.value.failure


# -------------------------------------------------------------------- services


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, SystemExit])
def test_whatever_a_handler_raises_is_its_failure(error: type[BaseException]) -> None:
    """A bug: a BaseException that is not an Exception ended its thread, and the worker lost a slot for good."""

    def handler(_: bytes) -> bytes:
        raise error

    assert error.__name__ in failure(describe("x", handler), b"").type


def test_the_package_offers_it_by_name() -> None:
    assert dragoman.Worker is Worker
    assert "Worker" in dir(dragoman)
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = dragoman.nothing_of_ours


def test_the_decorator_gives_the_function_back_as_it_is() -> None:
    def handler(payload: bytes) -> bytes:
        return payload

    assert Worker().service("x")(handler) is handler
    assert double(4) == 8


def test_a_service_is_offered_once() -> None:
    worker = Worker()
    worker.service("x")(lambda payload: payload)
    with pytest.raises(ValueError, match="'x' is already defined"):
        worker.service("x")(lambda payload: payload)
    with pytest.raises(ValueError, match="unknown codec 'yaml'"):
        worker.service("y", codec="yaml")(lambda payload: payload)


def test_a_bare_decorator_offers_the_function_by_its_own_name() -> None:
    """A bug: it registered nothing, without an error."""
    worker = Worker()

    @worker.service
    def shout(payload: bytes) -> bytes:
        return payload.upper()

    @worker.service(codec="json")
    def count(numbers: list[int]) -> int:
        return len(numbers)

    assert list(worker.services) == ["shout", "count"]
    assert worker.services["shout"].perform(b"a", None) == b"A"
    assert worker.services["count"].perform(b"[1,2]", None) == b"2"
    assert shout(b"b") == b"B"
    for wrong in (5, b"name", partial(shout)):
        with pytest.raises(TypeError, match=r"has no __name__; pass a service name: worker.service\('NAME'\)"):
            worker.service(wrong)  # type: ignore[call-overload]


def by_name(payload: bytes, ctx: Context) -> Any:
    return ctx


def optional(payload: bytes, width: int = 3, job: Context | None = None) -> Any:
    return job


def old_optional(payload: bytes, job: Optional[Context] = None) -> Any:  # noqa: UP045
    return job


def annotated(payload: bytes, *, job: Annotated[dragoman.Context, "the job"]) -> Any:
    return job


def behind_others(payload: bytes, *more: bytes, job: dragoman.Context) -> Any:
    return job


def only_for_checkers(payload: bytes, job: NotThere.Context | None = None) -> Any:  # type: ignore[name-defined]  # noqa: F821
    return job


def evaluated(payload: bytes, job: Any = None) -> Any:
    return job


evaluated.__annotations__["job"] = Context | None


@wraps(by_name)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return by_name(*args, **kwargs)


class Handler:
    def __call__(self, payload: bytes, job: Context) -> Any:
        return job

    def method(self, payload: bytes, job: Context) -> Any:
        return job


WANTING = {
    **{each.__name__: each for each in (by_name, optional, old_optional, annotated, behind_others)},
    **{each.__name__: each for each in (only_for_checkers, evaluated)},
    "wrapped": wrapped,
    "partial": partial(by_name),
    "callable object": Handler(),
    "bound method": Handler().method,
}


@pytest.mark.parametrize("function", WANTING.values(), ids=WANTING)
def test_a_parameter_that_is_annotated_context_gets_it(function: Callable[..., Any]) -> None:
    context = Told().context()
    service = describe("x", function)
    assert service.wants_context
    returned: list[object] = []
    object.__setattr__(service, "codec", replace(service.codec, encode=lambda value: returned.append(value) or b""))
    assert service.perform(b"", context) == b""
    assert returned == [context]


def default_of_its_own(payload: bytes, y: int = 2) -> bytes:
    return b"%d" % y


@pytest.mark.parametrize(
    "function",
    [
        lambda payload: None,
        default_of_its_own,
        lambda payload, ctx=None: None,
        lambda *payloads: None,
        lambda payload, **more: None,
        bytes.upper,
        len,
        bytes,
    ],
)
def test_no_other_parameter_does(function: Callable[..., Any]) -> None:
    """Whatever stood second got a Context, also in the place of a number."""
    assert not describe("x", function).wants_context
    assert describe("x", default_of_its_own).perform(b"", None) == b"2"


def context_first(ctx: Context) -> None: ...


def two_contexts(payload: bytes, one: Context, two: Context) -> None: ...


def many_contexts(payload: bytes, *all: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda: None, "has no parameter for the payload"),
        (lambda *, key=1: None, "has no parameter for the payload"),
        (lambda a, b: None, "'b' without a value; annotate it as dragoman.Context"),
        (lambda a, *, key: None, "'key' without a value"),
        (context_first, "is a Context; the first parameter must be the payload"),
        (two_contexts, "may have only one Context parameter"),
        (many_contexts, "may have only one Context parameter"),
        (5, "a handler must be callable"),
    ],
)
def test_what_cannot_be_called_with_a_payload_is_refused(function: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        describe("x", function)


def test_coroutine_functions_are_known_also_as_objects() -> None:
    class Handler:
        async def __call__(self, payload: bytes) -> bytes:
            return payload

    async def handler(payload: bytes) -> bytes:
        return payload

    assert describe("x", handler).is_async
    assert describe("x", Handler()).is_async
    assert not describe("x", double).is_async
    assert asyncio.run(describe("x", handler).perform_async(b"y", None)) == b"y"


@pytest.mark.parametrize(
    ("name", "payload", "result"),
    [("bytes", b"abc", b"abc"), ("json", b"[1]", b"[1]"), ("cbor", b"\x81\x01", b"\x81\x01")],
)
def test_codecs_read_what_comes_and_write_what_goes(name: str, payload: bytes, result: bytes) -> None:
    assert describe("x", lambda value: value, name).perform(payload, None) == result


def test_python_calls_are_pickles_of_a_function_and_its_arguments() -> None:
    worker = Worker()
    worker.offer_python_calls("python")
    pickled = codec("pickle")
    call = pickled.encode((divmod, (7,), {}))
    assert failure(worker.services["python"], bytes(call)).type == "TypeError"
    call = pickled.encode((int, ("ff",), {"base": 16}))
    assert pickled.decode(worker.services["python"].perform(call, None)) == 255


def test_a_payload_that_cannot_be_read_is_a_failure_with_a_sentence() -> None:
    told = failure(describe("sum", sum, "json"), b"{")
    assert told.type == "ValueError"
    assert told.message.startswith("the payload is not valid json, the codec of 'sum': ")


@pytest.mark.parametrize(
    ("name", "result", "kind"), [("json", {1}, "set"), ("bytes", 5, "int"), ("cbor", len, "builtin")]
)
def test_a_result_that_cannot_be_written_is_one_too(name: str, result: object, kind: str) -> None:
    told = failure(describe("x", lambda _: result, name), {"json": b"1", "cbor": b"\x01"}.get(name, b""))
    assert told.type == "TypeError"
    assert told.message.startswith(f"the handler's result, a {kind}")


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_exception_is_told_with_its_type_message_and_traceback() -> None:
    def handler(payload: bytes) -> bytes:
        return bytes(1 // len(payload))

    told = failure(describe("x", handler), b"")
    assert (told.type, told.message) == ("ZeroDivisionError", "integer division or modulo by zero")
    assert told.traceback.startswith("Traceback (most recent call last):\n")
    assert told.traceback.endswith("ZeroDivisionError: integer division or modulo by zero")
    assert "services.py" not in told.traceback


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (AddressError("x"), "dragoman.sdk.address.AddressError"),
        (SystemExit(3), "SystemExit"),
        (Odd(), "test_worker_object.Odd"),
    ],
)
def test_the_type_is_named_with_its_module_unless_that_is_builtins(error: BaseException, name: str) -> None:
    def handler(payload: bytes) -> bytes:
        raise error

    assert failure(describe("x", handler), b"").type.endswith(name)


def test_one_line_is_one_line() -> None:
    assert one_line(Failure("ValueError", "two\nlines")) == "ValueError: two lines"
    assert one_line(Failure("", "")) == "no error message"


# -------------------------------------------------------------------- the context


class Told:
    def __init__(self) -> None:
        self.reports: list[tuple[bytes, bool]] = []
        self.is_cancelled = False

    def context(self, timeout: float = inf, mute: str = "", codec_name: str = "bytes") -> Context:
        assignment = JobInfo("echo", "ab" * 16, 2, timeout)
        report = lambda payload, is_part: self.reports.append((bytes(payload), is_part))  # noqa: E731
        return Context("echo", assignment, codec(codec_name), report, lambda: self.is_cancelled, mute)


def test_a_context_says_which_job_it_is() -> None:
    told = Told()
    ctx = told.context()
    assert (ctx.service, ctx.job_id, ctx.attempt, ctx.deadline, ctx.cancelled) == ("echo", "ab" * 16, 2, None, False)
    told.is_cancelled = True
    assert ctx.cancelled


def test_the_deadline_is_how_many_seconds_are_left() -> None:
    assert 59 < (Told().context(60.0).deadline or 0) <= 60
    past = Told().context(0.0)
    assert time.monotonic() > 0
    assert past.deadline == 0.0


def test_progress_and_parts_are_reported_in_order() -> None:
    told = Told()
    ctx = told.context(codec_name="json")
    ctx.progress(1)
    ctx.progress(3, 10, "grüß")
    ctx.emit({"a": 1})
    assert told.reports == [
        (b'{"done": 1}', False),
        ('{"done": 3, "total": 10, "note": "grüß"}'.encode(), False),
        (b'{"a":1}\n', True),
    ]


def test_where_the_dialect_has_no_words_for_parts_emit_is_an_error_and_progress_is_left_to_the_worker() -> None:
    told = Told()
    ctx = told.context(mute="pingpong")
    ctx.progress(1, 2)
    with pytest.raises(Unsupported, match="pingpong does not support parts"):
        ctx.emit(b"part")
    assert told.reports == [(b'{"done": 1, "total": 2}', False)]


# -------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"processes": 2, "threads": 2}, "exclude each other"),
        ({"processes": 0}, "processes 0 must be 1 to 1000"),
        ({"concurrency": 1001}, "concurrency 1001"),
        ({"threads": -1}, "threads -1"),
        ({"max_jobs": 0}, "max_jobs 0"),
        ({"max_memory": 1, "threads": 1}, "cannot be combined with threads"),
        ({"cancel_grace": -1.0}, "cancel_grace"),
        ({"cancel_grace": float("nan")}, "cancel_grace"),
    ],
)
def test_options_that_cannot_be_are_refused(said: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Worker(**said)


def test_how_many_jobs_at_once_if_nobody_has_said() -> None:
    async def nap(payload: bytes) -> None: ...

    blocking, waiting = describe("x", len), describe("y", nap)
    assert ExecutionOptions().jobs_at_once([blocking]) == ExecutionOptions().child_count() == cores()
    assert ExecutionOptions(processes=3).jobs_at_once([blocking]) == 3
    assert ExecutionOptions(concurrency=5).child_count() == 5
    assert ExecutionOptions(processes=2, concurrency=5).child_count() == 2
    assert ExecutionOptions(threads=7).jobs_at_once([blocking]) == 7
    assert ExecutionOptions().jobs_at_once([waiting]) == ASYNC_JOBS
    assert ExecutionOptions(processes=3).jobs_at_once([waiting, blocking]) == 3


# -------------------------------------------------------------------- where it works, and where its handlers are


def offering(url: str, *names: str) -> Worker:
    worker = Worker(url)
    for name in names:
        worker.service(name)(len)
    return worker


@pytest.mark.parametrize(
    ("url", "names", "offered"),
    [
        ("tcp://127.0.0.1:1", ("a", "b"), ("a", "b")),
        ("memodb+tcp://127.0.0.1:1", ("a", "b"), ("a", "b")),
        ("pingpong+tcp://127.0.0.1:1", ("a",), ("a",)),
        ("pingpong+tcp://127.0.0.1:1?service=b", ("a", "b"), ("b",)),
        ("controller+unix:///tmp/x", ("a",), ("a",)),
        ("majordomo+tcp://127.0.0.1:1", ("a",), ("a",)),
        ("majordomo+tcp://127.0.0.1:1?service=b", ("a", "b"), ("b",)),
    ],
)
def test_a_worker_offers_all_it_has_or_the_one_that_the_wire_has_room_for(
    url: str, names: tuple[str, ...], offered: tuple[str, ...]
) -> None:
    assert target_of(offering(url, *names)).services == offered


@pytest.mark.parametrize(
    ("url", "names", "complaint"),
    [
        ("pingpong+tcp://127.0.0.1:1", ("a", "b"), "this one has a, b; add service=NAME to the URL"),
        ("powerhose+tcp://127.0.0.1:1?service=c", ("a", "b"), "the URL chooses 'c'"),
        ("tcp://127.0.0.1:1", (), "offers nothing"),
        ("tcp://127.0.0.1:1", ("\n",), "is not a service name"),
    ],
)
def test_what_it_cannot_offer_there_is_said(url: str, names: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        target_of(offering(url, *names))


def test_handlers_are_found_through_the_worker_or_by_their_own_names() -> None:
    assert module_worker.references(["double"]) == {"double": ObjectReference(__name__, "module_worker")}
    hidden = Worker()
    hidden.service("double")(double)
    hidden.service("upper")(bytes.upper)
    assert hidden.references(["double"]) == {"double": ObjectReference(__name__, "double")}
    hidden.service("local")(lambda payload: payload)
    with pytest.raises(HandlerLoadError, match=r"the handler of 'local'; define it.*threads=4"):
        hidden.references(["local"])


def test_a_reference_leads_to_its_object() -> None:
    reference = parse_reference(f"{__name__}:Told.context")
    assert load(reference) is Told.context
    assert refer_to(Told.context, __name__, "Told.context") == reference
    assert refer_to(Told.context, __name__, "Told") is None
    assert parse_reference("module") == ObjectReference("module", "")
    for wrong in ("", ":name", "module:"):
        with pytest.raises(HandlerLoadError, match="MODULE:FUNCTION"):
            parse_reference(wrong)


def test_while_a_module_is_loaded_run_returns_at_once() -> None:
    with loading():
        assert module_worker.run() == 0


# -------------------------------------------------------------------- limits


def test_service_has_the_limits_that_it_declares() -> None:
    """R183."""
    worker = Worker()
    worker.service("mail", max_running=4, max_running_per_tenant=2, rate="100/min")(double)
    worker.service("plain")(double)
    assert str(worker.services["mail"].limits.rate) == "100/min"
    assert (worker.services["mail"].limits.max_running, worker.services["mail"].limits.max_running_per_tenant) == (4, 2)
    assert worker.services["plain"].limits.is_empty


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"max_running": 0}, "max_running=0: must be a whole number from 1 to 1000000, or None"),
        ({"max_running": True}, "max_running=True: must be a whole number from 1 to 1000000, or None"),
        (
            {"max_running_per_tenant": 1.5},
            "max_running_per_tenant=1.5: must be a whole number from 1 to",
        ),
        (
            {"rate": "100"},
            "rate '100' is not a rate; write a number from 1 to 1000000 and a unit",
        ),
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    for declare in (Worker().service, dragoman.task):
        with pytest.raises(ValueError, match=sentence):
            declare(**wrong)(double)


def test_limits_are_not_declared_in_a_dialect_that_cannot_carry_them() -> None:
    worker = Worker("pingpong+tcp://127.0.0.1:1")
    worker.service("mail", max_running=4)(double)
    with pytest.raises(AddressError, match=r"'mail' declares limits, and workers in pingpong cannot; use a native URL"):
        worker.run()


# -------------------------------------------------------------------- parameters


def test_worker_declares_the_parameters_of_its_tasks_as_far_as_there_is_room() -> None:
    """R267: names only where types take too much, and nothing where names do."""

    def handler_of(name: str, parameters: int, types: int) -> handlers.Handler:
        properties = {f"parameter_{each}": {"description": "x" * types} for each in range(parameters)}
        return replace(describe(name, print), declares=lambda: {"type": "object", "properties": properties})

    services = {"plain": describe("plain", print)}
    services |= {
        name: handler_of(name, *size)
        for name, size in {"small": (2, 9), "typed": (2, 9_000), "huge": (9_000, 0)}.items()
    }
    found = declared_parameters(services)
    names = {"parameter_0": True, "parameter_1": True}
    assert list(found) == ["small", "typed"]
    assert found["typed"] == {"type": "object", "properties": names}
    many = {f"s{each}": handler_of(f"s{each}", 20, 20) for each in range(100)}
    assert len(json.dumps(declared_parameters(many))) < 25_000
