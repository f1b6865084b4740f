"""Names of jobs and groups in arguments: their ids, or handles that have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class HasId(Protocol):
    """A handle of a background job, or of a group."""

    @property
    def id(self) -> str: ...


JobName = str | HasId
JobNames = Iterable[JobName]


def id_of(name: JobName) -> str:
    return name if isinstance(name, str) else name.id


def ids_of(names: JobNames) -> tuple[str, ...]:
    """Return the ids. Raises TypeError for a single id in place of a list."""
    if isinstance(names, str):
        raise TypeError(f"after={names!r}: must be a list of job ids or handles; write after=[{names!r}]")
    return tuple([id_of(each) for each in names])
