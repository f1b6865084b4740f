"""Event streams: encoding of events, limits of the queue, and every way to end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.sse import COMMENT, MOST_BYTES, MOST_WAITING, OVERFLOW, EventStream, Streams, event_bytes


class Reader:
    """A client of a stream. It does not read while `is_reading` is clear."""

    def __init__(self, stream: EventStream) -> None:
        self.hangup = DisconnectSignal()
        self.messages: list[dict[str, Any]] = []
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        scope = {"type": "http", "extensions": {HANGUP: self.hangup}}
        self.task = asyncio.create_task(stream(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        raise AssertionError("a stream needs nobody to listen for it")

    async def _send(self, message: Any) -> None:
        await self.is_reading.wait()
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def read(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def is_complete(self) -> bool:
        return self.messages[-1].get("more_body") in (None, False)


async def run_once() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def wrapped() -> None:
        asyncio.run(test())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (("ended", "done", None), b"event: ended\ndata: done\n\n"),
        (("ended", b"done", "7"), b"id: 7\nevent: ended\ndata: done\n\n"),
        (("e", "a\nb\r\nc\rd", None), b"event: e\ndata: a\ndata: b\ndata: c\ndata: d\n\n"),
        (("e", "", ""), b"id: \nevent: e\ndata: \n\n"),
        (("e", "é", None), "event: e\ndata: é\n\n".encode()),
    ],
)
def test_an_event_as_it_is_sent(event: tuple[str, bytes | str, str | None], expected: bytes) -> None:
    assert event_bytes(*event) == expected


@pytest.mark.parametrize(("event", "id"), [("a\nb", None), ("a\r", None), ("a", "1\n2"), ("a", "1\0")])
def test_a_name_cannot_smuggle_a_field(event: str, id: str | None) -> None:
    with pytest.raises(ValueError, match="a line end or NUL"):
        event_bytes(event, "x", id)


@run
async def test_what_is_published_is_read_in_order() -> None:
    stream = EventStream(Streams(1))
    stream.publish("e", "before")
    reader = Reader(stream)
    await run_once()
    stream.publish("e", "after", "1")
    await run_once()
    assert reader.status == 200
    assert dict(reader.messages[0]["headers"])[b"cache-control"] == b"no-store"
    assert reader.read == COMMENT + event_bytes("e", "before") + event_bytes("e", "after", "1")
    assert not reader.is_complete
    stream.end()
    await reader.task
    assert reader.is_complete


@run
async def test_a_reader_too_slow_gets_what_waited_an_overflow_and_the_end() -> None:
    stream = EventStream(Streams(1))
    reader = Reader(stream)
    await run_once()
    reader.is_reading.clear()
    stream.publish("e", "on its way")
    await run_once()
    for number in range(MOST_WAITING + 10):
        stream.publish("e", str(number))
    reader.is_reading.set()
    await reader.task
    events = reader.read.removeprefix(COMMENT).split(b"\n\n")[:-1]
    assert len(events) == 1 + MOST_WAITING + 1
    assert reader.read.endswith(event_bytes("e", str(MOST_WAITING - 1)) + OVERFLOW)
    assert reader.is_complete


@run
async def test_a_reader_too_slow_for_large_events_is_let_go_as_soon() -> None:
    """A job's progress may be as large as a payload: 256 of them were gigabytes, for each reader."""
    stream = EventStream(Streams(1))
    reader = Reader(stream)
    await run_once()
    reader.is_reading.clear()
    stream.publish("e", "on its way")
    await run_once()
    for _ in range(3):
        stream.publish("progress", bytes(MOST_BYTES).replace(b"\0", b"x"))
    reader.is_reading.set()
    await reader.task
    assert reader.read.count(b"event: progress") == 1
    assert reader.read.endswith(OVERFLOW)
    assert reader.is_complete


@run
async def test_a_slow_reader_of_replaced_events_gets_the_newest_only() -> None:
    stream = EventStream(Streams(1))
    reader = Reader(stream)
    await run_once()
    reader.is_reading.clear()
    stream.replace("e", b"on its way")
    await run_once()
    for number in range(MOST_WAITING + 10):
        stream.replace("e", b"%d" % number)
    reader.is_reading.set()
    await run_once()
    assert reader.read == COMMENT + event_bytes("e", "on its way") + event_bytes("e", str(MOST_WAITING + 9))
    stream.end()
    stream.replace("e", b"too late")
    await reader.task
    assert b"too late" not in reader.read


@run
async def test_large_events_pass_as_they_are_read() -> None:
    stream = EventStream(Streams(1))
    reader = Reader(stream)
    for _ in range(3):
        stream.publish("progress", bytes(MOST_BYTES).replace(b"\0", b"x"))
        await run_once()
    stream.end()
    await reader.task
    assert (reader.read.count(b"event: progress"), OVERFLOW in reader.read) == (3, False)


@run
async def test_silence_is_broken_by_comments() -> None:
    stream = EventStream(Streams(1), keep_alive=0.001)
    reader = Reader(stream)
    while len(reader.messages) < 5:
        await asyncio.sleep(0)
    assert reader.read == COMMENT * (len(reader.messages) - 1)
    stream.end()
    await reader.task


@run
async def test_one_stream_too_many_is_a_429_until_one_ends() -> None:
    streams = Streams(1)
    first = EventStream(streams)
    open_reader = Reader(first)
    await run_once()
    refused = Reader(EventStream(streams))
    await refused.task
    assert refused.status == 429
    assert json.loads(refused.read)["type"] == "urn:dragoman:too-many-streams"
    first.end()
    await open_reader.task
    assert len(streams) == 0
    last = EventStream(streams)
    third = Reader(last)
    await run_once()
    assert third.status == 200
    last.end()
    await third.task


@run
async def test_a_hang_up_ends_a_stream_and_tells_its_owner_once() -> None:
    ended: list[str] = []
    streams = Streams(1)
    stream = EventStream(streams, lambda: ended.append("ended"))
    reader = Reader(stream)
    await run_once()
    reader.hangup.happen()
    await reader.task
    stream.publish("e", "to nobody")
    assert (ended, len(streams)) == (["ended"], 0)


@run
async def test_a_hang_up_before_the_beginning_is_noticed() -> None:
    stream = EventStream(Streams(1))
    reader = Reader(stream)
    reader.hangup.happen()
    await reader.task
    assert reader.messages == []


@run
async def test_all_streams_end_together_and_no_other_begins() -> None:
    streams = Streams(3)
    readers = [Reader(EventStream(streams)) for _ in range(2)]
    await run_once()
    streams.end()
    await asyncio.gather(*(reader.task for reader in readers))
    assert all(reader.is_complete for reader in readers)
    late = Reader(EventStream(streams))
    await late.task
    assert late.status == 503
