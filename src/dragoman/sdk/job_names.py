"""Types of names of jobs and groups in arguments: their ids, or handles that have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class HasId(Protocol):
    """A handle of a background job, or of a group."""

    @property
    def id(self) -> str: ...


JobName = str | HasId
JobNames = Iterable[JobName]
