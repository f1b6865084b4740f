"""Worker-Controller workers, written by hand, in both editions. The dialect has no callers."""

from __future__ import annotations

import os
from typing import Any

from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.dialects.controller.codec import extra_of_control, extra_of_pulse
from pairs.participants import MAX_PAYLOAD, Participants
from pairs.world import SERVICE, Connection, Dialled, World

URL = f"controller+unix:///nowhere?service={SERVICE}&max_payload={MAX_PAYLOAD}"
USER = f"uid {os.getuid()}"
NEXT_PULSE = 600


class SeedWorker:
    edition = "seed"
    register, ok, fetch_me, shutdown = range(4)
    fetch, set_task = 1, 2
    task_failed = 3
    fine = 0

    def __init__(self, world: World) -> None:
        self._world = world
        self._listener = world.listener(URL, "workers")
        self._listener.session._exchanges.reach = _reach
        self._task = self._seen = self._id = 0
        self._id = self._pulse(self.register)
        world.places[self._place] = lambda: LengthPrefix(extra_of_control)
        self._pulse(self.ok)

    def jobs(self) -> list[bytes]:
        given = []
        for connection, kind, task, extra in self._heard():
            assert kind == self.set_task
            self._task = task
            given.append(extra)
            connection.say(_written(self.fine, task))
        return given

    def finish(self, result: bytes) -> None:
        self._let_fetch(self.fine, result)

    def fail(self) -> None:
        self._let_fetch(self.task_failed, b"no word for it")

    def vanish(self) -> None:
        self._pulse(self.shutdown)

    def recover(self, world: World) -> None:
        self.finish(b"the result of a job that is over")

    def _let_fetch(self, error: int, extra: bytes) -> None:
        self._pulse(self.fetch_me)
        ((connection, kind, _, _),) = self._heard()
        assert kind == self.fetch
        connection.say(_written(error, self._task, len(extra)), extra)

    def _pulse(self, kind: int) -> int:
        connection = Connection(self._world, self._listener, LengthPrefix(extra_of_pulse), USER)
        connection.say(_written(kind, self._id, self._task, NEXT_PULSE))
        ((head, _),) = connection.take()
        answer = _read(head)
        assert answer.get(1, 0) == self.fine
        return answer.get(2, 0)

    def _heard(self) -> list[tuple[Dialled, int, int, bytes]]:
        """Return type, task and extra bytes of the message on every new connection."""
        self._world.connect()
        connections = self._world.dialled.get(self._place, [])
        new, self._seen = connections[self._seen :], len(connections)
        found = []
        for connection in new:
            ((head, extra),) = connection.take()
            message = _read(head)
            assert message.get(2, 0) == len(extra)
            found.append((connection, message.get(1, 0), message.get(3, 0), bytes(extra)))
        return found

    @property
    def _place(self) -> str:
        return f"{self._id}.sock"


class ShiftedWorker(SeedWorker):
    edition = "shifted"
    ok, register, fetch_me, shutdown = range(1, 5)
    fetch, set_task = 2, 3
    task_failed = 4
    fine = 1


def _reach(worker_id: int) -> tuple[Any, str]:
    """Accept every worker id: there are no files."""
    return f"{worker_id}.sock", ""


def _written(*values: int) -> bytes:
    """Encode protobuf by hand: fields from 1 on, without zeros."""
    written = bytearray()
    for field, value in enumerate(values, 1):
        if value:
            written.append(field << 3)
            while value > 0x7F:
                written.append(value & 0x7F | 0x80)
                value >>= 7
            written.append(value)
    return bytes(written)


def _read(data: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    rest = iter(bytes(data))
    for tag in rest:
        value = shift = 0
        for byte in rest:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found[tag >> 3] = value
    return found


SEED = Participants("controller", "controller", None, SeedWorker)
SHIFTED = Participants("controller-shifted", "controller", None, ShiftedWorker)
