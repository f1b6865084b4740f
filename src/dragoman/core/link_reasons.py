"""Reasons that name a predecessor, without the names that their reader may not know.

`core/job_links.py:problem_of` and its neighbours write such a reason when a dependent job is cancelled. It has the
predecessor's own reason behind a colon, which may name another predecessor in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dragoman.core.model import JobId

MARK: Final = ", which it comes after, "  # in every such reason
_NAMES: Final = re.compile(
    r"(?P<kind>jobs of group|group|job) (?P<id>[0-9a-f]+)(?: of group (?P<group>[0-9a-f]+))?, which it comes after, "
    r"(?P<end>ended \w+|is not in the store any more|are not in the store any more|has jobs that are not done)"
    r"(?:: (?P<cause>.*))?",
    re.DOTALL,
)
_CUT: Final = re.compile(r"(?:jobs of group|group|job) [0-9a-f]+[^:]*…", re.DOTALL)  # the end of a shortened reason
_NAMELESS: Final = {"job": "a job", "group": "a group", "jobs of group": "jobs of a group"}


def without_names(reason: str, is_known: Callable[[JobId], bool], knows_first: bool = False) -> str:
    """Return the reason up to the first predecessor that is not known, which it mentions without its id and its reason.
    `knows_first`: the reader has named the predecessors of the job, so it knows the first one."""
    if MARK not in reason:
        return reason
    shown, rest = "", reason
    while (found := _NAMES.fullmatch(rest)) is not None:
        ids = [JobId(bytes.fromhex(each)) for each in (found["id"], found["group"]) if each is not None]
        if not (knows_first and not shown) and not all(is_known(each) for each in ids):
            return f"{shown}{_NAMELESS[found['kind']]} that it comes after {found['end']}"
        if found["cause"] is None:
            return reason
        shown, rest = shown + rest[: found.start("cause")], found["cause"]
    return shown + ("…" if _CUT.fullmatch(rest) is not None else rest)


def nameless(reason: str) -> str:
    """Return the reason as it may be shown to everybody who may see the job."""
    return without_names(reason, _nothing_is_known)


def _nothing_is_known(id: JobId) -> bool:
    return False
