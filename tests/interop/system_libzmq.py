"""The system's libzmq (`libzmq.so.5` of Debian), called with ctypes: an older version than that inside pyzmq.

`SystemVisitors` has the methods of `setup.Visitors`, and its sockets those of pyzmq that the tests use.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from typing import Any

import zmq
from broker_setup import endpoint

from dragoman.sdk.address import SocketAddress
from programs import PATIENCE


def load() -> ctypes.CDLL:
    library = ctypes.CDLL("libzmq.so.5", use_errno=True)  # Debian: libzmq5
    for name, result, arguments in (
        ("zmq_ctx_new", c_void_p, []),
        ("zmq_ctx_term", c_int, [c_void_p]),
        ("zmq_socket", c_void_p, [c_void_p, c_int]),
        ("zmq_close", c_int, [c_void_p]),
        ("zmq_setsockopt", c_int, [c_void_p, c_int, c_char_p, c_size_t]),
        ("zmq_getsockopt", c_int, [c_void_p, c_int, c_void_p, c_void_p]),
        ("zmq_connect", c_int, [c_void_p, c_char_p]),
        ("zmq_bind", c_int, [c_void_p, c_char_p]),
        ("zmq_send", c_int, [c_void_p, c_char_p, c_size_t, c_int]),
        ("zmq_msg_init", c_int, [c_void_p]),
        ("zmq_msg_recv", c_int, [c_void_p, c_void_p, c_int]),
        ("zmq_msg_data", c_void_p, [c_void_p]),
        ("zmq_msg_size", c_size_t, [c_void_p]),
        ("zmq_msg_more", c_int, [c_void_p]),
        ("zmq_msg_close", c_int, [c_void_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def version(library: ctypes.CDLL) -> tuple[int, int, int]:
    parts = c_int(), c_int(), c_int()
    library.zmq_version(*(ctypes.byref(part) for part in parts))
    return parts[0].value, parts[1].value, parts[2].value


class SystemSocket:
    def __init__(self, library: ctypes.CDLL, context: int, kind: int) -> None:
        self._library = library
        self._socket = library.zmq_socket(context, kind)
        assert self._socket

    def set(self, option: int, value: int | bytes) -> None:
        raw = value.to_bytes(4, "little", signed=True) if isinstance(value, int) else value
        self._check(self._library.zmq_setsockopt(self._socket, option, raw, len(raw)))

    def connect(self, where: str) -> None:
        self._check(self._library.zmq_connect(self._socket, where.encode()))

    def bind(self, where: str) -> None:
        self._check(self._library.zmq_bind(self._socket, where.encode()))

    def getsockopt_string(self, option: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        size = c_size_t(256)
        self._check(self._library.zmq_getsockopt(self._socket, option, buffer, ctypes.byref(size)))
        return buffer.value.decode()

    def send_multipart(self, frames: list[bytes]) -> None:
        for index, frame in enumerate(frames):
            flags = zmq.SNDMORE if index < len(frames) - 1 else 0
            self._check(self._library.zmq_send(self._socket, frame, len(frame), flags))

    def recv_multipart(self) -> list[bytes]:
        frames = []
        message = ctypes.create_string_buffer(64)
        more = 1
        while more:
            self._library.zmq_msg_init(message)
            self._check(self._library.zmq_msg_recv(message, self._socket, 0))
            frames.append(ctypes.string_at(self._library.zmq_msg_data(message), self._library.zmq_msg_size(message)))
            more = self._library.zmq_msg_more(message)
            self._library.zmq_msg_close(message)
        return frames

    def close(self) -> None:
        if self._socket:
            self._library.zmq_close(self._socket)
        self._socket = None

    def _check(self, result: int) -> None:
        if result == -1:
            raise zmq.ZMQError(ctypes.get_errno())


class SystemVisitors:
    """A context of the system's libzmq whose sockets have time-outs and end with the test."""

    def __init__(self) -> None:
        self._library = load()
        self._context = self._library.zmq_ctx_new()
        self._made: list[SystemSocket] = []

    def close(self) -> None:
        for each in self._made:
            each.close()
        self._library.zmq_ctx_term(self._context)

    def visit(self, kind: int, where: SocketAddress | str, **options: Any) -> SystemSocket:
        visitor = self.make(kind, options)
        visitor.connect(where if isinstance(where, str) else endpoint(where))
        return visitor

    def receive(self, kind: int, where: SocketAddress, **options: Any) -> SystemSocket:
        receiver = self.make(kind, options)
        receiver.bind(endpoint(where))
        return receiver

    def make(self, kind: int, options: dict[str, Any]) -> SystemSocket:
        made = SystemSocket(self._library, self._context, kind)
        self._made.append(made)
        milliseconds = int(PATIENCE * 1000)
        usual = {"linger": 0, "rcvtimeo": milliseconds, "sndtimeo": milliseconds, "rcvhwm": 0, "sndhwm": 0}
        for name, value in {**usual, "reconnect_ivl": 20, **options}.items():
            made.set(getattr(zmq, name.upper()), value)
        return made
