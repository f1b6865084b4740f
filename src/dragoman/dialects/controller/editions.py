"""Editions of Worker-Controller: the numbers of its enums on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from dragoman.dialects.controller.messages import ControlKind, ControllerError, PulseKind, WorkerError

Member = TypeVar("Member")


@dataclass(frozen=True, slots=True, eq=False)
class Numbers(Generic[Member]):
    """The numbers of one enum, both ways."""

    member: Mapping[int, Member]
    number: Mapping[Member, int]


@dataclass(frozen=True, slots=True, eq=False)
class Edition:
    """An edition. `name` is its name in a URL; `parity` is the remainder of its workers' ids modulo 2."""

    name: str
    parity: int
    pulses: Numbers[PulseKind]
    controller_errors: Numbers[ControllerError]
    controls: Numbers[ControlKind]
    worker_errors: Numbers[WorkerError]


def _from(first: int, *members: Member) -> Numbers[Member]:
    member = dict(enumerate(members, first))
    return Numbers(member, {each: number for number, each in member.items()})


# The numbers of the Worker-Controller document, from which the other editions derive.
SEED: Final = Edition(
    name="seed",
    parity=1,
    pulses=_from(0, PulseKind.REGISTER, PulseKind.OK, PulseKind.FETCH_ME, PulseKind.SHUTDOWN),
    controller_errors=_from(0, *ControllerError),
    controls=_from(0, *ControlKind),
    worker_errors=_from(0, *WorkerError),
)

# Later workers: 0 is invalid everywhere, and REGISTER and OK are swapped.
SHIFTED: Final = Edition(
    name="shifted",
    parity=0,
    pulses=_from(1, PulseKind.OK, PulseKind.REGISTER, PulseKind.FETCH_ME, PulseKind.SHUTDOWN),
    controller_errors=_from(1, *ControllerError),
    controls=_from(1, *ControlKind),
    worker_errors=_from(1, *WorkerError),
)

EDITIONS: Final = {edition.name: edition for edition in (SEED, SHIFTED)}


def edition_of_id(worker_id: int) -> Edition | None:
    """Return the edition of the worker with this id, of this run or an earlier one; None for 0."""
    if not worker_id:
        return None
    return SEED if worker_id % 2 == SEED.parity else SHIFTED
