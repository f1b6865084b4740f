"""A question that came by HTTP, put to the desk."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import Any

from starlette.requests import Request

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.http.context import Door
from dragoman.http.disconnect import HANGUP, Hangup
from dragoman.http.problems import Refused, told_as_problem
from dragoman.operations.schemas import Problem, View


class HungUp(Exception):
    """Nobody is there any more to be answered."""


class Waiter:
    """The asker for one request: what it is told ends a future."""

    __slots__ = ("owner", "told")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.told: Future[tuple[View, Payload, Failure | None]] = get_running_loop().create_future()

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        if not self.told.done():
            self.told.set_result((view, payload, failure))

    def refuse(self, problem: Problem) -> None:
        if not self.told.done():
            self.told.set_exception(Refused(told_as_problem(problem)))

    def hang_up(self) -> None:
        if not self.told.done():
            self.told.set_exception(HungUp())


async def ask(door: Door, request: Request, question: str, form: Any, payload: Payload = b"") -> Any:
    """The view that the desk answers with. Raises Refused if that is a problem, and HungUp if the caller does not wait
    for it."""
    view, _, _ = await ask_for_result(door, request, question, form, payload)
    return view


async def ask_for_result(
    door: Door, request: Request, question: str, form: Any, payload: Payload = b""
) -> tuple[Any, Payload, Failure | None]:
    """The same, with the result and the failure of the job it is about."""
    hangup: Hangup | None = request.scope.get("extensions", {}).get(HANGUP)
    if hangup is not None and hangup.is_gone:
        raise HungUp
    waiter = Waiter(door.owner(request.scope))
    ticket = door.desk.ask(question, form, payload, waiter, door.now())
    door.line.ask_for_turn()
    if hangup is not None:
        hangup.call = waiter.hang_up
    try:
        return await waiter.told
    finally:
        if hangup is not None:
            hangup.call = None
        if ticket is not None:
            door.desk.leave(ticket, door.now())
