"""Parts of a result: the effect of a service that sends them for callers that cannot take them."""

from __future__ import annotations

from math import inf
from typing import Literal, get_args

from dragoman.dialects.sides import Failure

Parts = Literal["join", "require"]  # such callers get the parts joined in front of the result; or their job fails


def check_parts(parts: str) -> None:
    """Raise ValueError for an unknown value."""
    if parts not in get_args(Parts):
        raise ValueError(f"parts={parts!r}: must be 'join' or 'require'")


def parts_required(service: str) -> Failure:
    """Return the failure of a job whose caller cannot take parts. It is permanent: no other attempt could succeed."""
    return Failure(
        "dragoman.PartsRequired",
        f"{service} sends its result in parts, and the caller of this job does not take parts; call it with "
        "task.stream(...), or with submit(...).parts() of a native client",
        retry_in=inf,
    )
