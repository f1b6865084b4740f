"""Load generator for dialects in which the broker connects to the workers, and for PingPong beside them. Options as in
load.py.

Callers are the same in all modes, one DEALER at a ZeroMQ frontend that keeps its window of jobs in flight. Only the
workers differ: DEALER sockets for PingPong, REP sockets that REQ ones register for Powerhose, listening Unix sockets
for the Controller. All this is Python and may be the limit itself: compare the broker's CPU per job before jobs/s.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from socket import AF_UNIX, SOCK_STREAM, socket

import zmq

from bench.load import WORKER_NAP, Crowd, LoadError, Rota, Socket, Team, drive, read_options
from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.dialects.controller.codec import (
    extra_of_control,
    extra_of_pulse,
    read_control,
    read_pulse_response,
    write_pulse,
    write_response,
)
from dragoman.dialects.controller.editions import SEED
from dragoman.dialects.controller.messages import ControlKind, ControllerError, PulseKind, WorkerError

NEXT_PULSE = 600  # seconds, longer than any run
READ_SIZE = 1 << 16


def main() -> None:
    """Run the load for one of the dialects."""
    options = read_options("bench.calledback_load", *TEAMS)
    drive(options, TEAMS[options.mode])


class PowerhoseTeam(Team):
    """Workers with two sockets each: one that receives jobs, one that registers and pings."""

    def _work(self) -> None:
        poller = zmq.Poller()
        pings: dict[Socket, bytes] = {}
        for _ in range(self._count):
            work, registration = (self._context.socket(kind) for kind in (zmq.REP, zmq.REQ))
            work.bind("tcp://127.0.0.1:*")
            registration.connect(self._backend)
            pings[registration] = f"PING:::{work.getsockopt_string(zmq.LAST_ENDPOINT)}".encode()
            poller.register(work, zmq.POLLIN)
            poller.register(registration, zmq.POLLIN)
        rota = Rota(list(pings))
        while not self._stopping.is_set():
            for each, _events in poller.poll(rota.nap_ms()):
                if each in pings:
                    _expect(each.recv(), b"PONG")
                else:
                    self._answer(each)
            for registration in rota.due():
                registration.send(pings[registration])  # the first of them registers

    def _answer(self, work: Socket) -> None:
        word = work.recv()
        if word == b"WAKE":
            work.send(b"GIVE")
            return
        _expect(word[:6], b"JOB:::")
        self.heard.add(work)
        work.send(b"JOBRES" + word[3:])  # with the job's id and its data


class ControllerTeam(Team):
    """Workers that listen on their own sockets, and report by pulses."""

    def _work(self) -> None:
        with DefaultSelector() as selector:
            workers = [ControllerWorker(self._backend, selector) for _ in range(self._count)]
            while not self._stopping.is_set():
                for key, _events in selector.select(WORKER_NAP):
                    key.data()
                if len(self.heard) < self._count:
                    self.heard.update(worker for worker in workers if worker.task)


class ControllerWorker:
    """One worker. Every exchange is a connection of its own, with a callback at the selector until it ends."""

    def __init__(self, folder: str, selector: DefaultSelector) -> None:
        self.task = 0
        self._result = b""
        self._main = os.path.join(folder, "main.sock")
        self._selector = selector
        self._id = 0
        with self._send_pulse(PulseKind.REGISTER) as connection:
            self._id = _read_pulse_response(connection)
        self._listener = socket(AF_UNIX, SOCK_STREAM)
        self._listener.bind(os.path.join(folder, f"{self._id}.sock"))
        self._listener.listen()
        selector.register(self._listener, EVENT_READ, self._accept)
        self._pulse(PulseKind.OK)

    def _pulse(self, kind: PulseKind) -> None:
        connection = self._send_pulse(kind)
        self._selector.register(connection, EVENT_READ, partial(self._pulse_answered, connection))

    def _pulse_answered(self, connection: socket) -> None:
        _read_pulse_response(connection)
        self._hang_up(connection)

    def _send_pulse(self, kind: PulseKind) -> socket:
        connection = socket(AF_UNIX, SOCK_STREAM)
        connection.connect(self._main)
        pulse = write_pulse(kind, SEED, worker_id=self._id, task_id=self.task, next_pulse=NEXT_PULSE)
        connection.sendall(_framed(pulse))
        return connection

    def _accept(self) -> None:
        connection, _address = self._listener.accept()
        receive = partial(self._receive, connection, LengthPrefix(extra_of_control, single=True))
        self._selector.register(connection, EVENT_READ, receive)

    def _receive(self, connection: socket, carrier: LengthPrefix) -> None:
        data = connection.recv(READ_SIZE)
        if not data:
            raise LoadError("the broker aborted an exchange")
        for message in carrier.feed(data):
            assert not isinstance(message, TooLarge)
            head, extra = message
            kind = self._answer(connection, bytes(head), bytes(extra))
            self._hang_up(connection)
            if kind is ControlKind.SET_TASK:
                self._pulse(PulseKind.FETCH_ME)  # an echo has nothing to compute

    def _answer(self, connection: socket, head: bytes, extra: bytes) -> ControlKind:
        control = read_control(head, SEED)
        result = b""
        if control.kind is ControlKind.SET_TASK:
            self.task, self._result = control.task_id, extra
        elif control.kind is ControlKind.FETCH:
            result, self._result = self._result, b""
        elif control.kind is not ControlKind.GET_STATUS:
            raise LoadError(f"unexpected control message {control.number} from the broker")
        response = write_response(WorkerError.OK, SEED, task_id=self.task, extra_size=len(result))
        connection.sendall(_framed(response) + result)
        return control.kind

    def _hang_up(self, connection: socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def _framed(head: bytes) -> bytes:
    return len(head).to_bytes(8, "little") + head


def _read_pulse_response(connection: socket) -> int:
    """Return the id in the response, if any. The response is a few bytes, which arrive in one piece."""
    [message] = LengthPrefix(extra_of_pulse).feed(connection.recv(READ_SIZE))
    assert not isinstance(message, TooLarge)
    response = read_pulse_response(message[0], SEED)
    if response.error is not ControllerError.OK:
        raise LoadError(f"a pulse was answered with error {response.number}")
    return response.worker_id


def _expect(word: bytes, expected: bytes) -> None:
    if word != expected:
        raise LoadError(f"the broker sent {word[:60]!r}; expected {expected!r}")


TEAMS: dict[str, Callable[..., Team]] = {"pingpong": Crowd, "powerhose": PowerhoseTeam, "controller": ControllerTeam}

if __name__ == "__main__":
    main()
