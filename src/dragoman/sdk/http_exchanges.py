"""HTTP requests and responses of an HTTP worker, over a pool of kept-alive connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.http.codec import Request, Response, read_problem, read_response
from dragoman.dialects.sides import NOT_ADMITTED
from dragoman.sdk.candidates import Candidate, Candidates, Round
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed
from dragoman.sdk.outgoing import OutgoingConnection, open_connection
from dragoman.sdk.refusals import unauthenticated
from dragoman.sdk.targets import Target

CONNECT_TIMEOUT = 5.0
MAX_IDLE = 4.0  # seconds after which an idle connection is not reused; the broker closes it after 15


class HttpExchanges:
    """Sends requests. Each uses one connection exclusively until its response has arrived."""

    def __init__(self, target: Target) -> None:
        self.round = Round(Candidates(target, "worker"))
        self._idle: list[_Connection] = []
        self._loop = asyncio.get_running_loop()

    async def send(self, request: Request, timeout: float) -> Response:
        """Send a request and return its response. If the task is cancelled, the connection is closed. If a broker does
        not accept this worker's token, the request goes to the next address. Raises BrokerUnavailable, and its subclass
        NotAllowed if no broker accepts it."""
        while True:
            connection = await self._connection()
            response = await self._exchange(connection, request, timeout)
            refusal = _refusal(connection.candidate, response)
            if refusal is None:
                return response
            failure = self._failed(connection.candidate, refusal)
            if failure is not None:
                raise failure

    async def _exchange(self, connection: _Connection, request: Request, timeout: float) -> Response:
        try:
            response = await connection.send(request, timeout)
        except BaseException:
            connection.close()
            raise
        if response.is_last:
            connection.close()
        else:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
        return response

    def _failed(self, candidate: Candidate, problem: BrokerUnavailable) -> BrokerUnavailable | None:
        """Go to the next address, unless another request has done so. Returns the problem if all have been tried."""
        return self.round.failed(problem) if candidate is self.round.current else None

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connection(self) -> _Connection:
        oldest = self._loop.time() - MAX_IDLE
        while self._idle:
            connection = self._idle.pop()
            is_here = connection.candidate is self.round.current
            if connection.is_open and is_here and connection.idle_since >= oldest:
                return connection
            connection.close()
        while True:
            connection = _Connection(self.round.current)
            try:
                await connection.open()
            except BrokerUnavailable as problem:
                failure = self._failed(connection.candidate, problem)
                if failure is not None:
                    raise failure from None
            else:
                return connection


def _refusal(candidate: Candidate, response: Response) -> NotAllowed | None:
    """Return the error if the broker rejects every request of this worker."""
    target = candidate.target
    if response.status == 401:
        return unauthenticated(target.place, target.proof)
    if response.status == 403:
        with suppress(Malformed):  # not a broker: the caller reports it
            problem = read_problem(response)
            if problem.kind in NOT_ADMITTED:
                return NotAllowed(f"the broker at {target.place} does not admit this worker: {problem.detail}")
    return None


class _Connection:
    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self._place = candidate.target.place
        self._link: OutgoingConnection | None = None
        self._response: asyncio.Future[Response] | None = None
        self._problem = ""
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        return self._link is not None

    async def open(self) -> None:
        """Raises BrokerUnavailable."""
        carrier, recognition = self.candidate.target.client_carrier(), self.candidate.recognition
        opening = open_connection(self._place, carrier, self._received, self._ended, CONNECT_TIMEOUT)
        self._link = await recognition.open(opening)
        recognition.is_known = True  # a broker has answered

    async def send(self, request: Request, timeout: float) -> Response:
        if self._link is None:
            raise BrokerUnavailable(self._lost())
        self._response = asyncio.get_running_loop().create_future()
        self._link.send(request)
        try:
            async with asyncio.timeout(timeout):
                return await self._response
        except TimeoutError:
            raise BrokerUnavailable(f"{self._place} sent no HTTP response within {timeout:g} s") from None
        finally:
            self._response = None

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _received(self, message: Message | TooLarge) -> None:
        assert not isinstance(message, TooLarge)  # this carrier closes the connection instead
        if self._response is not None and not self._response.done():
            self._response.set_result(read_response(message))

    def _ended(self, problem: str) -> None:
        self._link = None
        self._problem = problem
        if self._response is not None and not self._response.done():
            self._response.set_exception(BrokerUnavailable(self._lost()))

    def _lost(self) -> str:
        return f"connection to {self._place} lost: {self._problem}"
