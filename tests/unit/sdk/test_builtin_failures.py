"""Exceptions of an executor's functions, as callers may catch them."""

from __future__ import annotations

import builtins
import pickle
from typing import Any

import pytest

from dragoman.dialects.sides import Failure, Outcome, SubmitOptions
from dragoman.sdk.builtin_failures import as_builtin
from dragoman.sdk.codecs import codec
from dragoman.sdk.errors import JobFailed, JobLost, error_from
from dragoman.sdk.futures import ExecutorFuture, JobFuture


def failed(type: str) -> JobFailed:
    error = error_from(Outcome.FAILED, "x", Failure(type, "said 'it'", "Traceback: here"))
    assert isinstance(error, JobFailed)
    return error


class Client:
    options_cache = None

    def check_may_wait(self) -> None: ...


def raised_by(kind: Any, error: Any) -> BaseException | None:
    job: JobFuture[Any] = kind(Client(), SubmitOptions("python"), b"", codec("bytes"))
    job.fail(error)
    return job.exception()


@pytest.mark.parametrize("kind", [KeyError, ValueError, OSError, FileNotFoundError, AttributeError, ZeroDivisionError])
def test_a_builtin_exception_is_caught_by_its_type(kind: type[Exception]) -> None:
    """It was a JobFailed only: code that was written for ProcessPoolExecutor did not catch it."""
    with pytest.raises(kind) as caught:
        raise raised_by(ExecutorFuture, failed(kind.__name__)) or AssertionError
    error = caught.value
    assert isinstance(error, JobFailed)
    assert str(error) == f"failed: {kind.__name__}: said 'it'"
    assert (error.remote_type, error.remote_message) == (kind.__name__, "said 'it'")
    assert error.remote_traceback == "Traceback: here"


def test_only_of_executors() -> None:
    error = failed("KeyError")
    assert raised_by(JobFuture, error) is error


def test_one_that_cannot_be_made_of_a_sentence_is_its_nearest_parent() -> None:
    error = as_builtin(failed("UnicodeDecodeError"))
    assert isinstance(error, UnicodeError)
    assert not isinstance(error, UnicodeDecodeError)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "StopIteration",
        "StopAsyncIteration",
        "Exception",
        "SystemExit",
        "KeyboardInterrupt",
        "print",
        "pkg.KeyError",
    ],
)
def test_all_others_are_a_failed_job_and_nothing_else(name: str) -> None:
    error = failed(name) if name else JobFailed("failed: x")
    assert type(as_builtin(error)) is JobFailed
    assert raised_by(ExecutorFuture, lost := JobLost("lost: gone")) is lost


def test_every_builtin_can_come_and_be_pickled() -> None:
    for name, kind in vars(builtins).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            error = as_builtin(failed(name))
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.remote_type) == (type(error), f"failed: {name}: said 'it'", name)
            assert again.remote_traceback == "Traceback: here"
