"""Long texts of handlers: they are cut where the handler runs, before the thread of the heartbeats has them."""

from __future__ import annotations

import logging
import pickle
import sys
from typing import Any

import pytest

from dragoman.dialects.sides import NOTHING_SAID, Failure
from dragoman.sdk.codecs import CODECS
from dragoman.sdk.context import Context
from dragoman.sdk.errors import Retry, WrongArguments
from dragoman.sdk.handlers import MOST_MESSAGE, MOST_TRACEBACK, MOST_TYPE, HandlerFailed, describe
from dragoman.sdk.hooks import JobHooks, add_hooks, remove_hooks
from dragoman.sdk.printable import MOST_CHARACTERS, PrintableFormatter

LONG = "head " + "x" * 10_000_000 + " tail"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class LongReason(Retry):
    def __init__(self) -> None:
        super().__init__(1.0, LONG)


def caused() -> None:
    try:
        raise KeyError(LONG)
    except KeyError as error:
        raise ValueError(LONG) from error


def grouped() -> None:
    raise ExceptionGroup(LONG, [ValueError(LONG) for _ in range(20)])


def noted() -> None:
    error = ValueError("short")
    for _ in range(3):
        error.add_note(LONG)
    raise error


def recursive(depth: int = 0) -> None:
    recursive(depth + 1)


def raises(error: BaseException) -> Any:
    def handler() -> None:
        raise error

    return handler


def failure_from(handler: Any, payload: bytes = b"", codec: str = "bytes") -> Failure:
    with pytest.raises(HandlerFailed) as caught:
        describe("x", handler, codec).perform(payload, None)
    assert len(str(caught.value)) < 100
    return caught.value.failure


RAISERS = [
    raises(ValueError(LONG)),
    raises(ValueError(LONG * 3)),
    raises(SyntaxError(LONG, ("file", 1, 1, LONG))),
    raises(type("N" * 10_000_000, (Exception,), {})()),
    raises(Unprintable()),
    raises(Leaving()),
    raises(NoText()),
    raises(LongReason()),
    raises(WrongArguments(LONG)),
    raises(SystemExit(LONG)),
    caused,
    grouped,
    noted,
    recursive,
]


def test_a_failure_is_short_whatever_the_exception() -> None:
    """R221. An exception with a text of 60 MB crossed the pipe whole, and the worker formatted it in the thread that
    sends heartbeats: its other jobs were lost."""
    for raiser in RAISERS:
        failure = failure_from(lambda _, raiser=raiser: raiser())
        assert len(failure.type) <= MOST_TYPE
        assert len(failure.message) <= MOST_MESSAGE
        assert len(failure.traceback) <= MOST_TRACEBACK


def test_a_cut_text_has_its_beginning_and_its_end() -> None:
    def handler(payload: bytes) -> None:
        raise ValueError(LONG)

    failure = failure_from(handler)
    assert failure.message.startswith("head x")
    assert failure.message.endswith("x tail")
    assert "characters left out" in failure.message
    assert failure.traceback.startswith("Traceback (most recent call last):")
    assert failure.traceback.endswith("x tail")


def test_an_exception_whose_text_raises_is_a_failure() -> None:
    """SystemExit from `__str__` ended the thread of the handler, and its job never ended."""
    for error in (Unprintable(), Leaving(), NoText()):
        failure = failure_from(lambda _, error=error: raises(error)())
        assert failure.message == "(no message: __str__ of the exception failed)"


def test_a_payload_and_a_result_that_cannot_be_converted_are_short_failures() -> None:
    class Odd:
        def __repr__(self) -> str:
            return LONG

    assert len(failure_from(lambda payload: payload, LONG.encode(), "json").message) <= MOST_MESSAGE
    assert len(failure_from(lambda payload: type("N" * 10_000_000, (), {})()).message) <= MOST_MESSAGE
    assert len(failure_from(lambda payload: Odd(), b"1", "json").message) <= MOST_MESSAGE


def test_a_note_of_progress_is_cut() -> None:
    sent: list[bytes] = []
    context = Context("x", NOTHING_SAID, CODECS["bytes"], lambda payload, _: sent.append(bytes(payload)), lambda: False)
    context.progress(1, 2, LONG)
    assert len(sent[0]) < 5_000


def test_a_long_log_line_is_cut_before_it_is_escaped() -> None:
    try:
        raise ValueError(LONG + "\0")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "a hook failed", (), sys.exc_info())
    line = PrintableFormatter("%(message)s").format(record)
    assert len(line) < MOST_CHARACTERS + 100
    assert line.startswith("a hook failed")
    assert line.endswith("\\x00")


class Exits:
    """Its code runs where it is unpickled, and where it is pickled."""

    def __reduce__(self) -> Any:
        return sys.exit, ("bye",)


class ExitsAtOnce:
    def __reduce__(self) -> Any:
        sys.exit("bye")


class ExitingHooks(JobHooks):
    def before(self, job: Context) -> None:
        sys.exit("bye")


def test_a_payload_a_result_and_a_hook_that_exit_do_not_end_the_thread_of_the_handlers() -> None:
    """SystemExit from there ended the thread, or the event loop of all coroutines, and their jobs never ended."""
    assert failure_from(lambda payload: payload, pickle.dumps(Exits()), "pickle").type == "ValueError"
    assert failure_from(lambda payload: ExitsAtOnce(), pickle.dumps(1), "pickle").type == "TypeError"
    hooks = ExitingHooks()
    add_hooks(hooks)
    try:
        context = Context("x", NOTHING_SAID, CODECS["bytes"], lambda *_: None, lambda: False)
        assert describe("x", lambda payload: payload).perform(b"1", context) == b"1"
    finally:
        remove_hooks(hooks)
