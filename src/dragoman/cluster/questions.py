"""Operations that another broker executes: questions to it and from it, as records of the link between the two.

A link loses nothing and delivers nothing twice while both brokers live, so a question is executed at most once, and a
payload over the limit of NATS is cut into packets and joined again. A question ends with its answer, with its
time-out, or with the run of the other broker (`lost`). In the latter two cases it may have been executed.

A client that waits for a result is one question that stays open. Gossip tells whether the other broker is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, final

from mypy_extensions import mypyc_attr

from dragoman.cluster.peers import Peer
from dragoman.cluster.records import Answer, Ask, Leave
from dragoman.core.deadlines import Deadlines
from dragoman.core.infinity import inf

MAX_QUESTIONS: Final = 100_000  # open ones, in both directions together
MOVED: Final = "moved"  # kind of an answer: the receiver does not have the shard
TOO_MANY: Final = "too many questions"


class Ending(Enum):
    """The way in which a question ended."""

    ANSWERED = auto()
    TIMED_OUT = auto()
    LOST = auto()  # the other broker is gone, or has restarted


Done = Callable[[Ending, Answer | None, float], None]  # the answer, if it was ANSWERED


@mypyc_attr(allow_interpreted_subclasses=True)
class Answerer:
    """Executes the operations that other brokers ask for."""

    def ask(self, broker: str, question: Ask, respond: Callable[[Answer], None], now: float) -> object | None:
        """Execute an operation. `respond` is called once, now or later; if later, the returned object identifies it for
        `leave`. None: nothing is to be dropped."""
        raise NotImplementedError

    def leave(self, pending: object, now: float) -> None:
        """Drop an operation whose asker does not wait any more."""
        raise NotImplementedError


@final
class Question:
    """An open question of this broker."""

    __slots__ = ("alarm", "alarm_number", "done", "number", "peer")

    def __init__(self, number: int, peer: Peer, done: Done) -> None:
        self.number = number
        self.peer = peer
        self.done = done
        self.alarm = inf
        self.alarm_number = 0


@final
class Asked:
    """An open question of another broker."""

    __slots__ = ("is_answered", "number", "peer", "pending")

    def __init__(self, number: int, peer: Peer) -> None:
        self.number = number
        self.peer = peer
        self.pending: object | None = None
        self.is_answered = False


class Questions:
    """The questions between this broker and all others."""

    def __init__(self, flush: Callable[[], None]) -> None:
        """`flush` requests that the records of all links are sent."""
        self.answerer: Answerer | None = None  # until it is set, other brokers are told that shards have moved
        self._flush = flush
        self._last = 0
        self._questions: dict[int, Question] = {}
        self._asked: dict[tuple[str, str, int], Asked] = {}
        self._deadlines: Deadlines[Question] = Deadlines()

    def __len__(self) -> int:
        return len(self._questions) + len(self._asked)

    # ---------------------------------------------------------------- questions of this broker

    def ask(self, peer: Peer, ask: Ask, done: Done, timeout: float, now: float) -> Question | None:
        """Ask another broker; the number of `ask` is replaced. `done` is called once, later, unless `leave` is called
        first. Returns None if too many questions are open, or if the other broker does not read them."""
        if len(self) >= MAX_QUESTIONS or peer.link.is_full:
            return None
        self._last += 1
        question = self._questions[self._last] = Question(self._last, peer, done)
        peer.link.add(
            Ask(
                self._last,
                ask.operation,
                ask.request,
                ask.principal,
                ask.payload,
                ask.shard,
                ask.address,
                ask.label,
                ask.dialect,
                ask.origin,
                ask.proves,
            )
        )
        self._deadlines.arm(question, now + timeout)
        self._flush()
        return question

    def leave(self, question: Question) -> None:
        """Drop a question. The other broker drops what waits there."""
        if self._questions.pop(question.number, None) is not None:
            self._deadlines.disarm(question)
            question.peer.link.add(Leave(question.number))
            self._flush()

    def answered(self, peer: Peer, answer: Answer, now: float) -> None:
        question = self._questions.get(answer.number)
        if question is not None and question.peer is peer:
            self._end(question, Ending.ANSWERED, answer, now)

    def tick(self, now: float) -> float:
        """End the questions whose time is over. Returns the time of the next call."""
        for question in self._deadlines.due(now):
            question.peer.link.add(Leave(question.number))
            self._flush()
            self._end(question, Ending.TIMED_OUT, None, now)
        return self._deadlines.next()

    def _end(self, question: Question, ending: Ending, answer: Answer | None, now: float) -> None:
        del self._questions[question.number]
        self._deadlines.disarm(question)
        question.done(ending, answer, now)

    # ---------------------------------------------------------------- questions of other brokers

    def asked(self, peer: Peer, ask: Ask, now: float) -> None:
        """Execute an operation for another broker."""
        key = (peer.name, peer.incarnation, ask.number)
        asked = Asked(ask.number, peer)

        def respond(answer: Answer) -> None:
            if not asked.is_answered:
                asked.is_answered = True
                self._asked.pop(key, None)
                peer.link.add(answer)
                self._flush()

        if self.answerer is None:
            respond(Answer(ask.number, kind=MOVED, detail="this broker answers no questions yet"))
        elif len(self) >= MAX_QUESTIONS:
            respond(Answer(ask.number, kind="busy", detail=TOO_MANY))
        else:
            self._asked[key] = asked
            pending = self.answerer.ask(peer.name, ask, respond, now)
            if not asked.is_answered:
                asked.pending = pending

    def left(self, peer: Peer, record: Leave, now: float) -> None:
        """Drop a question of another broker that nobody waits for."""
        asked = self._asked.pop((peer.name, peer.incarnation, record.number), None)
        if asked is not None:
            self._drop(asked, now)

    def gone(self, peer: Peer, now: float) -> None:
        """End all questions to and from a broker that is gone."""
        for question in [each for each in self._questions.values() if each.peer is peer]:
            if question.number in self._questions:  # not ended by the function of another
                self._end(question, Ending.LOST, None, now)
        for key, asked in [(key, each) for key, each in self._asked.items() if each.peer is peer]:
            del self._asked[key]
            self._drop(asked, now)

    def _drop(self, asked: Asked, now: float) -> None:
        asked.is_answered = True
        if asked.pending is not None and self.answerer is not None:
            self.answerer.leave(asked.pending, now)
