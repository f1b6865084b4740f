"""Errors by the outcome of a job."""

from __future__ import annotations

import pytest

from dragoman.dialects.sides import Failure, Outcome
from dragoman.sdk.errors import (
    Busy,
    Forbidden,
    JobCancelled,
    JobError,
    JobFailed,
    JobLost,
    JobRefused,
    JobTimeout,
    NoSuchService,
    PayloadTooLarge,
    error_from,
)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.FAILED, JobFailed),
        (Outcome.TIMED_OUT, JobTimeout),
        (Outcome.LOST, JobLost),
        (Outcome.CANCELLED, JobCancelled),
        (Outcome.REFUSED, JobRefused),
    ],
)
def test_every_outcome_has_its_error(outcome: Outcome, kind: type[JobError]) -> None:
    error = error_from(outcome, "lost: it was not")  # the reason is not looked at
    assert (type(error), str(error)) == (kind, f"{outcome}: lost: it was not")
    assert str(error_from(outcome, "")) == outcome.value


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ("busy", Busy),
        ("no such service", NoSuchService),
        ("too large", PayloadTooLarge),
        ("forbidden", Forbidden),
        ("draining", JobRefused),
    ],
)
def test_kinds_of_refusals_have_their_errors(refusal: str, kind: type[JobError]) -> None:
    error = error_from(Outcome.REFUSED, "a sentence", refusal=refusal)
    assert (type(error), str(error)) == (kind, "refused: a sentence")


def test_an_unknown_outcome_is_a_failure_in_the_brokers_words() -> None:
    error = error_from(None, "out of order")
    assert (type(error), str(error)) == (JobFailed, "out of order")


def test_a_failure_is_told_in_its_parts() -> None:
    error = error_from(Outcome.FAILED, "cut sho", Failure("ValueError", "cut short", "Traceback"))
    assert isinstance(error, JobFailed)
    assert str(error) == "failed: ValueError: cut short"
    assert (error.remote_type, error.remote_message, error.remote_traceback) == (
        "ValueError",
        "cut short",
        "Traceback",
    )


def test_a_failure_without_a_type_leaves_the_reason_as_it_is() -> None:
    error = error_from(Outcome.FAILED, "it broke", Failure("", "it broke", "Traceback"))
    assert isinstance(error, JobFailed)
    assert (str(error), error.remote_type, error.remote_traceback) == ("failed: it broke", "", "")
