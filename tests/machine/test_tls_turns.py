"""Turns through TLS: decrypted messages wait, too, and none is lost however the bytes are cut (R214)."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from authority import Authority
from dragoman.carriers.carrier import Message, Messages
from dragoman.carriers.sp import Sp
from dragoman.streams.tls import TlsStream
from dragoman.streams.tls_context import ListenerTls, TlsFiles, client_role
from dragoman.streams.turn import Turn
from fuzz.cut_socket import CutSocket, StillLoop

MOST = 5


class World:
    """A stream of a listener that takes turns, and a client."""

    def __init__(self, authority: Authority) -> None:
        issued = authority.issue()
        files = TlsFiles(str(issued.cert), str(issued.key), ca=str(authority.cert), protocol="dragoman/1")
        role = client_role(files, "localhost")
        self.turn = Turn(MOST)
        self.socket, self.loop = CutSocket(), StillLoop()
        self.received: list[Message] = []
        self.ends: list[str] = []
        loop, connected = cast(asyncio.AbstractEventLoop, self.loop), cast(Any, self.socket)
        self.stream = TlsStream(loop, connected, Sp("REP"), ListenerTls(files).role, self.turn)
        self.stream.start(self._arrived, self.ends.append)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = role.context.wrap_bio(self._incoming, self._outgoing, server_hostname=role.server_name)
        fed = 0
        for _ in range(4):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            self.send(b"")
            self._incoming.write(bytes(self.socket.taken[fed:]))
            fed = len(self.socket.taken)
        assert self.stream.is_ready

    def _arrived(self, messages: Messages) -> None:
        assert len(messages) < 2 * MOST
        self.received += cast(list[Message], messages)

    def send(self, data: bytes, *, ends: bool = False) -> None:
        """Let the stream read what the client sends, once: it is queued if more is left."""
        if data:
            self.client.write(data)
        if ends:
            try:
                self.client.unwrap()
            except ssl.SSLWantReadError:
                pass
        self.socket.arriving += self._outgoing.read()
        if self.socket.arriving and self.loop.readable is not None:
            self.loop.readable()

    def take_turns(self) -> None:
        """Read and continue until nothing is left."""
        while self.turn.has_waiting or self.socket.arriving:
            self.turn.end()
            self.turn.restart()
            if self.loop.readable is None:
                return
            self.loop.readable()


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 120), min_size=1, max_size=12), ends=st.booleans())
def test_messages_of_many_records_are_decoded_in_turns(authority: Authority, sizes: list[int], ends: bool) -> None:
    world = World(authority)
    world.send(b"\0SP\0\0\x30\0\0")
    expected: list[Message] = []
    for size in sizes:
        numbers = range(len(expected), len(expected) + size)
        expected += [[b"\x80\0\0\1", b"%d" % number] for number in numbers]
        bodies = [b"".join(message) for message in expected[-size:]]
        world.send(b"".join(len(body).to_bytes(8, "big") + body for body in bodies))
    world.send(b"", ends=ends)
    assert world.stream.is_queued == (len(world.received) < len(expected))
    assert not world.ends or len(world.received) == len(expected)
    world.take_turns()
    assert world.received == expected
    assert len(world.ends) == ends
