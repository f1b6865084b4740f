"""Types of errors, for type checkers."""

from __future__ import annotations

from typing import assert_type

from dragoman import (
    BrokerUnavailable,
    Busy,
    Client,
    DragomanError,
    JobCancelled,
    JobError,
    JobFailed,
    JobLost,
    JobRefused,
    JobTimeout,
    NoSuchJob,
    NoSuchService,
    NotAllowed,
    NotFound,
    PayloadTooLarge,
    Unsupported,
)


def look_at(client: Client) -> None:
    try:
        client.call("resize", b"big")
    except JobFailed as error:
        assert_type(error.remote_type, str)
        assert_type(error.remote_message, str)
        assert_type(error.remote_traceback, str)
    except (NoSuchService, Busy, PayloadTooLarge) as error:
        refused: JobRefused = error
        print(refused.remote_type)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    except JobTimeout as error:
        late: TimeoutError = error
        print(late)
    except BrokerUnavailable as error:
        away: ConnectionError = error
        print(away)


jobs_errors: list[type[JobError]] = [JobFailed, JobTimeout, JobLost, JobCancelled, JobRefused, NoSuchJob]
all_errors: list[type[DragomanError]] = [*jobs_errors, BrokerUnavailable, NotFound, Unsupported]
unavailable: type[BrokerUnavailable] = NotAllowed
unknown: list[type[LookupError]] = [NotFound, NoSuchJob]
not_of_a_job: type[JobError] = Unsupported  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
