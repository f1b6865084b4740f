"""Sockets on other systems: credentials of macOS, and writes without a gathering system call."""

from __future__ import annotations

import socket
import struct
from collections import deque

import pytest

from dragoman.streams.sockets import describe, unix_gids, unix_uid
from dragoman.streams.stream import JOIN_BYTES, first_bytes

# struct xucred of <sys/ucred.h>: version, user, number of groups, 16 groups, of which three are valid here.
XUCRED = struct.pack("=IIhxx16I", 0, 501, 3, 20, 12, 61, *range(100, 113))


class MacSocket:
    """A connected Unix socket as macOS describes it."""

    family = getattr(socket, "AF_UNIX", None)

    def getpeername(self) -> str:
        return ""

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        assert level == 0, "the level of Unix sockets is SOL_LOCAL"
        if option == 2:  # LOCAL_PEERPID
            return 4711
        assert (option, size) == (1, len(XUCRED))  # LOCAL_PEERCRED
        return XUCRED


def test_peer_of_a_unix_socket_is_asked_for_as_macos_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: macOS has no SO_PEERCRED, and every connection over a Unix socket ended with an AttributeError there."""
    monkeypatch.delattr(socket, "SO_PEERCRED")
    connected: socket.socket = MacSocket()  # type: ignore[assignment]
    assert unix_uid(connected) == 501
    assert unix_gids(connected) == (20, 12, 61)
    assert describe(connected) == ("pid 4711", "uid 501", 4711)


def test_first_buffers_are_joined_up_to_a_size() -> None:
    large = bytes(JOIN_BYTES + 1)
    assert first_bytes([b"ab", memoryview(b"cd"), b"", b"e"]) == b"abcde"
    assert first_bytes([b"ab", large, b"c"]) == b"ab"
    assert first_bytes([b"", large, b"c"]) is large
    assert first_bytes(deque([memoryview(b"")])) == b""
