"""Tasks that yield: their values are parts of the result, which callers receive one by one or as a list."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from dragoman.sdk.codecs import Codec
from dragoman.sdk.errors import JobLost
from dragoman.tasks.formats import FORMATS, Format, Payload
from dragoman.tasks.function_hints import check_result_hint
from dragoman.tasks.round_trip import ResultEncoder

if TYPE_CHECKING:
    from dragoman.sdk.context import Context
    from dragoman.tasks.clients import AnyClient

NO_REST: Final = object()  # the result of such a task after its parts


def is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


class StreamCodecs:
    """Codecs of a task that yields: for its worker, for one value, and for all of them."""

    def __init__(self, name: str, returned: Any, format: Format, decode_arguments: Callable[[Payload], Any]) -> None:
        """`returned`: the annotation of the function's result. Raises TypeError."""
        if format.decoder_of_all is None:
            allowed = ", ".join(each for each, row in FORMATS.items() if row.decoder_of_all is not None)
            raise TypeError(f"{name} yields, and values in {format.name} cannot be told apart; use one of: {allowed}")
        item = _item_type(returned)
        check_result_hint(name, item)
        decode, encode = format.decoder(item), ResultEncoder(item, format).encode

        def decode_one(payload: Payload) -> Any:
            return decode(payload) if payload else None  # the rest has no bytes

        def encode_result(value: Any) -> Payload:
            return b"" if value is NO_REST else encode(value)

        decode_all = format.decoder_of_all(item)
        self.of_worker = Codec(format.name, encode_result, decode_arguments, decode_arguments, format.separator)
        self.of_one = Codec(format.name, bytes, decode_one, decode_one)
        self.of_all = Codec(format.name, bytes, decode_all, decode_all)


def _item_type(returned: Any) -> Any:
    """Return the type of the values, from an annotation such as Iterator[int]; Any if it has none."""
    origin = get_origin(returned)
    is_iterable = isinstance(origin, type) and issubclass(origin, Iterable | AsyncIterator | Generator)
    return get_args(returned)[0] if is_iterable else Any


# -------------------------------------------------------------------- worker


def emit_all(context: Context, found: Iterator[Any]) -> object:
    """Send each value as a part, until the job is cancelled."""
    for value in found:
        context.emit(value)
        if context.cancelled:
            break
    return NO_REST


async def emit_all_async(context: Context, found: AsyncIterator[Any]) -> object:
    async for value in found:
        context.emit(value)
        if context.cancelled:
            break
    return NO_REST


# -------------------------------------------------------------------- callers


def values_of(client: Any, service: str, payload: bytes, codec: Codec, options: Any) -> Iterator[Any]:
    """Submit a job and yield the values as they arrive. If the iteration ends early, the job is cancelled."""
    job = client.submit(service, payload, codec=codec, **options)
    attempt, count = 0, 0
    try:
        for value in job.parts():
            attempt, count = _check(service, job.attempt, attempt, count)
            yield value
    finally:
        job.cancel()  # does nothing if it has ended


async def async_values_of(
    client: AnyClient, service: str, payload: bytes, codec: Codec, options: Any
) -> AsyncIterator[Any]:
    """Submit a job and yield the values as they arrive; see `values_of`."""
    from dragoman.sdk.async_client import AsyncClient

    if not isinstance(client, AsyncClient):
        values, end = values_of(client, service, payload, codec, options), object()
        try:
            while (value := await asyncio.to_thread(next, values, end)) is not end:
                yield value
        finally:
            await asyncio.to_thread(_close, values)
        return
    job = client.submit(service, payload, codec=codec, **options)
    attempt, count = 0, 0
    try:
        async for value in job.parts():
            attempt, count = _check(service, job.attempt, attempt, count)
            yield value
    finally:
        job.cancel()


def _close(values: Any) -> None:
    values.close()


def _check(service: str, attempt: int, former: int, count: int) -> tuple[int, int]:
    """Return the attempt and the number of its values. Raises JobLost if another attempt begins again."""
    if count and attempt != former:
        raise JobLost(
            f"lost: attempt {former} of {service} ended after {count} values, and the next one begins again; "
            "iterate over a new stream"
        )
    return attempt, count + 1
