"""A hand-written native worker in a thread whose payloads choose its behaviour; and a relay that cuts connections."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections import Counter
from queue import Queue

import zmq

HELLO, HEARTBEAT, RESULT, FAILED, PROGRESS, PART = b"\x01", b"\x04", b"\x20", b"\x21\x01", b"\x22", b"\x23"
RECALL, RETURN, JOB = 0x31, b"\x32", 0x30


class HandWorker(threading.Thread):
    """A worker. `hold` ends when it is released; `fail why`, `parts N` and `report N` do as named; others are
    echoed."""

    def __init__(self, endpoint: str, *services: str, capacity: int = 512, returns: bool = False) -> None:
        super().__init__(daemon=True)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(0)
        self._socket.connect(endpoint)
        self._orders = self._context.socket(zmq.PAIR)
        self._orders.bind("inproc://orders")
        self._hearing = self._context.socket(zmq.PAIR)
        self._hearing.connect("inproc://orders")
        self.seen: Counter[bytes] = Counter()
        self.heads: list[bytes] = []
        self.attempts: list[tuple[int, int]] = []  # numbers, and milliseconds that they may run
        self.held: Queue[tuple[bytes, bytes]] = Queue()  # payload and token
        self.recalled: Queue[bytes] = Queue()
        about = {"services": services, "capacity": capacity, "returns": returns}
        self._socket.send_multipart([HELLO + b"\x01\x02", json.dumps(about).encode()])
        assert self._socket.poll(10_000), "the broker says WELCOME"
        self._socket.recv_multipart()
        self.start()

    def release(self, token: bytes, result: bytes) -> None:
        self._orders.send_multipart([RESULT + token, result])

    def say(self, *frames: bytes) -> None:
        self._orders.send_multipart(list(frames))

    def stop(self) -> None:
        self._orders.send(b"")
        self.join(10)
        for each in (self._socket, self._orders, self._hearing):
            each.close(0)
        self._context.term()

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._hearing, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(1000))
            if self._hearing in ready:
                order = self._hearing.recv_multipart()
                if order == [b""]:
                    return
                self._socket.send_multipart(order)
            if self._socket in ready:
                self._receive(self._socket.recv_multipart())
            if not ready:
                self._socket.send(HEARTBEAT)

    def _receive(self, message: list[bytes]) -> None:
        word = message[0][0]
        if word == RECALL:
            token = message[0][1:17]
            self.recalled.put(token)
            self._socket.send_multipart([RETURN, token])
        elif word == JOB:
            records = message[1]
            for index, payload in enumerate(message[2:]):
                record = records[38 * index : 38 * index + 38]
                self.attempts.append((int.from_bytes(record[32:34], "big"), int.from_bytes(record[34:38], "big")))
                self._do(record[:16], payload)

    def _do(self, token: bytes, payload: bytes) -> None:
        self.seen[payload] += 1
        word, _, rest = payload.strip(b'"').partition(b" ")
        if word == b"hold":
            self.held.put((payload, token))
            return
        if word == b"fail":
            self._socket.send_multipart([FAILED + token, b"ValueError", rest, b"Traceback: here"])
            return
        if word == b"parts":
            for number in range(int(rest)):
                self._socket.send_multipart([PART + token, b"part %d" % number])
        elif word == b"report":
            for number in range(int(rest)):
                self._socket.send_multipart([PROGRESS + token, json.dumps({"done": number + 1}).encode()])
        self._socket.send_multipart([RESULT + token, payload])


class Cutter(threading.Thread):
    """A relay between a client and its broker that closes both connections on request."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._behind = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.count = 0
        self._deaf: list[socket.socket] = []  # connections whose client gets no answer any more
        self.start()

    def drop_answers(self) -> None:
        """Drop all answers to the clients that are connected now."""
        with self._lock:
            self._deaf = [front for front, _ in self._pairs]

    def cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        self.join(10)

    def run(self) -> None:
        while True:
            try:
                front, _ = self._listening.accept()
            except OSError:
                return
            back = socket.create_connection(("127.0.0.1", self._behind))
            with self._lock:
                self._pairs.append((front, back))
                self.count += 1
            threading.Thread(target=self._pass_on, args=(front, back), daemon=True).start()

    def _pass_on(self, front: socket.socket, back: socket.socket) -> None:
        with front, back:
            while True:
                for each in select.select([front, back], [], [])[0]:
                    try:
                        data = each.recv(1 << 16)
                        if data and each is back and front in self._deaf:
                            continue
                        (back if each is front else front).sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
