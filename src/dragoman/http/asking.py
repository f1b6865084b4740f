"""A question that came by HTTP, put to the desk."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.desk.forms import Problem, View
from dragoman.http.door import Door
from dragoman.http.hangup import HANGUP, Hangup
from dragoman.http.problems import problem

# How the desk's problems are told: the status, and a title.
TOLD = {
    "not found": (404, "Not found"),
    "no such service": (404, "No such service"),
    "invalid": (422, "Not valid"),
    "conflict": (409, "Conflict"),
    "key reused": (409, "Key reused"),
    "busy": (429, "Busy"),
    "draining": (503, "Draining"),
    "loading": (503, "Loading"),
    "diary": (507, "The diary cannot write"),
    "internal": (500, "Internal error"),
}
RETRY_AFTER = {"busy": "1", "loading": "1", "draining": "5"}


class Refused(Exception):
    """A request ends here, with this response."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class HungUp(Exception):
    """Nobody is there any more to be answered."""


class Waiter:
    """The asker for one request: what it is told ends a future."""

    __slots__ = ("owner", "told")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.told: Future[tuple[View, Payload]] = get_running_loop().create_future()

    def answer(self, view: View, payload: Payload = b"") -> None:
        if not self.told.done():
            self.told.set_result((view, payload))

    def refuse(self, problem: Problem) -> None:
        if not self.told.done():
            self.told.set_exception(Refused(told_as_problem(problem)))

    def hang_up(self) -> None:
        if not self.told.done():
            self.told.set_exception(HungUp())


async def ask(door: Door, request: Request, question: str, form: Any, payload: Payload = b"") -> tuple[Any, Payload]:
    """What the desk answers. Raises Refused if that is a problem, and HungUp if the caller does not wait for it."""
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


def told_as_problem(said: Problem, headers: Iterable[tuple[str, str]] = ()) -> Response:
    status, title = TOLD[said.kind]
    more = [("retry-after", RETRY_AFTER[said.kind])] if said.kind in RETRY_AFTER else []
    return problem(status, said.kind.replace(" ", "-"), title, said.detail, [*headers, *more])
