"""The brokers that a client or a worker may connect to, and the order in which it tries them.

The first address is tried first, the others in random order, so that the clients of a lost broker spread over those
that are left. A client or a worker stays where it is: after a lost connection it tries the same broker first, and it
never goes back to an earlier one while the present one answers. A client goes on from a broker that stops or is cut off
(`engine.py`).
"""

from __future__ import annotations

import random

from dragoman.sdk.address import SocketAddress
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed, WrongDialect
from dragoman.sdk.recognition import Recognition
from dragoman.sdk.targets import Target

SHORTEST_DIAL = 1.0  # seconds for one attempt to connect, if there are several addresses


class Candidate:
    """One address, and the identification of its port."""

    __slots__ = ("recognition", "target")

    def __init__(self, target: Target, role: str) -> None:
        self.target = target
        self.recognition = Recognition(target, role)


class Candidates:
    """All addresses of a client or a worker. `preferred` is tried first: the one that has answered last."""

    def __init__(self, target: Target, role: str) -> None:
        first, *others = (Candidate(each, role) for each in target.each)
        random.shuffle(others)
        self._all = [first, *others]
        self.preferred = first

    def __len__(self) -> int:
        return len(self._all)

    def in_order(self) -> list[Candidate]:
        """Return all, the preferred one first."""
        start = self._all.index(self.preferred)
        return [*self._all[start:], *self._all[:start]]

    def avoid(self, candidate: Candidate) -> None:
        """Prefer the next one, if this one is preferred: other connections need not try it first."""
        if candidate is self.preferred:
            self.preferred = self._all[(self._all.index(candidate) + 1) % len(self._all)]

    def dial_limit(self, most: float, patience: float) -> float:
        """Return the seconds for one attempt to connect: `most`, or less if several attempts must fit in `patience`."""
        return most if len(self) == 1 else min(most, max(SHORTEST_DIAL, patience / (len(self) + 1)))


class Round:
    """The attempts of one connection: each candidate once, from the preferred one."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._left: list[Candidate] = []
        self._stays = False
        self.restart()

    @property
    def place(self) -> SocketAddress:
        """The current address."""
        return self.current.target.place

    @property
    def recognition(self) -> Recognition:
        """The identification of the current address."""
        return self.current.recognition

    @property
    def is_known(self) -> bool:
        """Return whether a broker has answered at the current address."""
        return self.current.recognition.is_known

    def stay(self) -> None:
        """Try no other address than the current one from now on."""
        self._stays = True
        self._left = []

    def restart(self) -> None:
        """Begin the next round."""
        if not self._stays:
            self.current, *self._left = self._candidates.in_order()
        self._problems: list[BrokerUnavailable] = []

    def succeeded(self) -> None:
        """Prefer the current address: a broker has answered there."""
        if not self._stays:
            self._candidates.preferred = self.current
        if self._problems:
            self.restart()

    def failed(self, problem: BrokerUnavailable) -> BrokerUnavailable | None:
        """Go to the next address. Returns None, or the problem of all addresses if each has been tried; then the next
        round begins."""
        self._problems.append(problem)
        if not self._stays:
            self._candidates.avoid(self.current)
        if self._left:
            self.current = self._left.pop(0)
            return None
        problems = self._problems
        self.restart()
        return _joined(problems)


def _joined(problems: list[BrokerUnavailable]) -> BrokerUnavailable:
    """Return one error for all addresses. A refusal is one only if every broker refuses."""
    if len(problems) == 1:
        return problems[0]
    text = "; ".join(dict.fromkeys(map(str, problems)))
    for kind in (NotAllowed, WrongDialect):
        if all(isinstance(each, kind) for each in problems):
            return kind(text)
    return BrokerUnavailable(text)
