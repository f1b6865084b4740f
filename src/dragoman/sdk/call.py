"""One call: submit a job, wait for its answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Sequence
from math import inf
from typing import Any

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.sides import Failure
from dragoman.sdk.errors import BrokerUnavailable, JobFailed, JobTimeout, error_from
from dragoman.sdk.link import Link, open_link
from dragoman.sdk.peoples import Target, caller_target
from dragoman.streams.dial import BackOff

CONNECT_TIMEOUT = 5.0


async def call(url: str, service: str, payload: bytes, timeout: float | None = None) -> Frame:
    """The result of the job. Raises JobError, BrokerUnavailable or AddressError."""
    asking = _Asking(caller_target(url, service))
    patience = asking.side.patience if timeout is None else timeout
    try:
        async with asyncio.timeout(None if patience == inf else patience):
            return await asking.ask(service, payload, timeout)
    except JobTimeout:  # the broker's own words; it is a TimeoutError, too
        raise
    except TimeoutError:
        hint = f"; {asking.side.hint}" if asking.side.hint else ""
        raise JobTimeout(f"timed out: no answer within {patience:g} s{hint}") from None
    finally:
        asking.hang_up()


class _Asking:
    """Implements the client's port of its dialect on a real connection, and on the next if that is lost."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._answered: asyncio.Future[Frame] = self._loop.create_future()
        self._lost = asyncio.Event()
        self._problem = ""
        self.side = target.people.client_side(target.options, self)

    async def ask(self, service: str, payload: bytes, timeout: float | None) -> Frame:
        await self._connect()
        self.side.call("the call", service, payload, timeout, self._loop.time())
        back_off = BackOff(random.uniform, cap=5.0)
        while not self._answered.done():
            if not self._lost.is_set():
                await self._wait(self.side.tick(self._loop.time()))
            elif not self.side.outlives_connections:
                raise BrokerUnavailable(
                    f"the broker at {self._target.place} went away before it answered: {self._problem}"
                )
            else:
                await asyncio.sleep(back_off.next())
                try:
                    await self._connect()
                except BrokerUnavailable:
                    self._lost.set()
        return self._answered.result()

    def hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._answered.done() and not self._answered.cancelled():
            self._answered.exception()  # whoever gave up meanwhile does not ask for it
        self._answered.cancel()

    # ---------------------------------------------------------------- the port

    def send(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def answered(self, ticket: Hashable, result: Frame, reason: str | None, failure: Failure | None = None) -> None:
        if not self._answered.done():
            if reason is None:
                self._answered.set_result(result)
            else:
                self._answered.set_exception(error_from(reason, failure))

    def reported(self, ticket: Hashable, payload: Frame, is_part: bool, attempt: int) -> None:
        pass

    def reconnect(self, reason: str) -> None:
        if self._link is not None:
            self._link.close()
            self._ended(reason)

    # ---------------------------------------------------------------- the connection

    async def _connect(self) -> None:
        self._lost.clear()
        carrier = self._target.people.client_carrier(self._target.place)
        self._link = await open_link(self._target.place, carrier, self._heard, self._ended, CONNECT_TIMEOUT)
        self.side.opened(self._loop.time())

    async def _wait(self, due: float) -> None:
        """Until something has come, the connection is lost, or something is due."""
        losing = asyncio.ensure_future(self._lost.wait())
        ways: list[asyncio.Future[Any]] = [self._answered, losing]
        try:
            seconds = None if due == inf else max(0.0, due - self._loop.time())
            await asyncio.wait(ways, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            losing.cancel()

    def _heard(self, message: Message | TooLarge) -> None:
        try:
            self.side.hear(message, self._loop.time())
        except Malformed as problem:
            if not self._answered.done():
                self._answered.set_exception(
                    JobFailed(f"failed: the broker's answer was not understood: {problem.detail}")
                )

    def _ended(self, problem: str) -> None:
        self._problem = problem
        self._link = None
        self.side.lost()
        self._lost.set()
