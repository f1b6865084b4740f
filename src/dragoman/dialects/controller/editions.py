"""The variants of Worker-Controller, as data: which numbers its words have on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from dragoman.dialects.controller.messages import ControlKind, ControllerError, PulseKind, WorkerError

Word = TypeVar("Word")


@dataclass(frozen=True, slots=True, eq=False)
class Numbers(Generic[Word]):
    """Of one enum, both ways."""

    word: Mapping[int, Word]
    number: Mapping[Word, int]


@dataclass(frozen=True, slots=True, eq=False)
class Edition:
    """`name` is what it is called on a URL; `parity` is its workers' ids modulo 2, by which an id names its edition."""

    name: str
    parity: int
    pulses: Numbers[PulseKind]
    controller_errors: Numbers[ControllerError]
    controls: Numbers[ControlKind]
    worker_errors: Numbers[WorkerError]


def _from(first: int, *words: Word) -> Numbers[Word]:
    word = dict(enumerate(words, first))
    return Numbers(word, {each: number for number, each in word.items()})


# What the others have grown from: the numbers of the Worker-Controller document.
SEED: Final = Edition(
    name="seed",
    parity=1,
    pulses=_from(0, PulseKind.REGISTER, PulseKind.OK, PulseKind.FETCH_ME, PulseKind.SHUTDOWN),
    controller_errors=_from(0, *ControllerError),
    controls=_from(0, *ControlKind),
    worker_errors=_from(0, *WorkerError),
)

# Later workers: 0 is invalid everywhere, and REGISTER and OK have changed places.
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
    """The edition of the worker that was given this id, be it now or in an earlier run; none for 0."""
    if not worker_id:
        return None
    return SEED if worker_id % 2 == SEED.parity else SHIFTED
