"""One call: submit a job, wait for its answer."""

from __future__ import annotations

import asyncio

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.zmtp import Zmtp
from dragoman.sdk.errors import BrokerUnavailable, JobFailed, JobTimeout, error_from
from dragoman.sdk.link import TRUSTING, open_link
from dragoman.sdk.peoples import caller_target

CONNECT_TIMEOUT = 5.0


async def call(url: str, service: str, payload: bytes, timeout: float | None = None) -> Frame:
    """The result of the job. Raises JobError, BrokerUnavailable or AddressError."""
    people, place = caller_target(url, service)
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Message | TooLarge] = loop.create_future()

    def heard(message: Message | TooLarge) -> None:
        if not answered.done():
            answered.set_result(message)

    def ended(problem: str) -> None:
        if not answered.done():
            answered.set_exception(BrokerUnavailable(f"the broker at {place} went away before it answered: {problem}"))

    deadline = None if timeout is None else loop.time() + timeout
    patience = CONNECT_TIMEOUT if timeout is None else min(CONNECT_TIMEOUT, timeout)
    link = await open_link(place, Zmtp(people.client_socket, dials=True, limits=TRUSTING), heard, ended, patience)
    try:
        link.send(people.request(payload))
        async with asyncio.timeout_at(deadline):
            result, reason = people.answer(await answered)
    except TimeoutError:
        raise JobTimeout(f"timed out: no answer within {timeout:g} s") from None
    except Malformed as problem:
        raise JobFailed(f"failed: the broker's answer was not understood: {problem.detail}") from None
    finally:
        link.close()
    if reason is not None:
        raise error_from(reason)
    return result
