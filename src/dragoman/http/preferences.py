"""Headers that control how a job is submitted: Idempotency-Key, Dragoman-Parent-Job and Prefer."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from dragoman.http.problems import HttpError, problem
from dragoman.operations.schemas import LONGEST_WAIT, Key, Parent
from dragoman.operations.validation import explain


def key_of(request: Request, key: str | None) -> str | None:
    """Return the idempotency key, from its header or from the request."""
    header = request.headers.get("idempotency-key")
    if header is None:
        return key
    try:
        value: str = msgspec.convert(header.encode("latin-1").decode(), Key)
    except UnicodeDecodeError:
        raise HttpError(problem(422, "invalid", "Not valid", "Idempotency-Key: the value is not UTF-8")) from None
    except msgspec.ValidationError as error:
        raise HttpError(problem(422, "invalid", "Not valid", f"Idempotency-Key: {explain(error, Key)}")) from None
    if key is not None and key != value:
        detail = "Idempotency-Key and `key` differ; send only one of them"
        raise HttpError(problem(422, "invalid", "Not valid", detail))
    return value


def parent_of(request: Request, parent: str | None) -> str | None:
    """Return the id of the parent job, from the request or from its header."""
    header = request.headers.get("dragoman-parent-job")
    if header is None or parent is not None:
        return parent
    try:
        return msgspec.convert(header, Parent)
    except msgspec.ValidationError as error:
        detail = f"Dragoman-Parent-Job: {explain(error, Parent)}"
        raise HttpError(problem(422, "invalid", "Not valid", detail)) from None


def preferred_wait(request: Request) -> float | None:
    """Return the seconds of `Prefer: wait=30` (RFC 7240), which wants invalid preferences to be ignored."""
    headers = request.headers.getlist("prefer")
    for preference in ",".join(headers).split(",") if headers else ():
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            try:
                wait = float(value.strip().strip('"'))
            except ValueError:
                return None
            return min(wait, LONGEST_WAIT) if wait >= 0.0 else None
    return None
