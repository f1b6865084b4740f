"""Headers of a request that say how a job is submitted: Idempotency-Key and Prefer."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from dragoman.http.problems import HttpError, problem
from dragoman.operations.schemas import LONGEST_WAIT, Key
from dragoman.operations.validation import explain


def key_of(request: Request, key: str | None) -> str | None:
    """The idempotency key, from its header or from the form."""
    header = request.headers.get("idempotency-key")
    if header is None:
        return key
    try:
        said: str = msgspec.convert(header.encode("latin-1").decode(), Key)
    except UnicodeDecodeError:
        raise HttpError(problem(422, "invalid", "Not valid", "Idempotency-Key: it is not UTF-8")) from None
    except msgspec.ValidationError as error:
        raise HttpError(problem(422, "invalid", "Not valid", f"Idempotency-Key: {explain(error, Key)}")) from None
    if key is not None and key != said:
        detail = "Idempotency-Key says one key and `key` another: say one of them"
        raise HttpError(problem(422, "invalid", "Not valid", detail))
    return said


def preferred_wait(request: Request) -> float | None:
    """Seconds, from `Prefer: wait=30` (RFC 7240). What we do not understand of it is no error there."""
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            try:
                wait = float(value.strip().strip('"'))
            except ValueError:
                return None
            return min(wait, LONGEST_WAIT) if wait >= 0.0 else None
    return None
