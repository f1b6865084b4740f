"""I18 for HTTP: any bytes, cut anywhere, are served and rejected alike, and break nothing.

The bytes are requests of the corpus, one to three in a row, damaged in a few places. Random inputs come from fixed
seeds: a failure prints the input and can be repeated.
"""

from __future__ import annotations

import random

import pytest

from hostile_http import HOSTILE, RIGHT
from http_visits import World

INPUTS = 300

SHORT = [sent for sent, *_ in HOSTILE.values() if len(sent) < 3000]
SHORT += 3 * [sent for sent, _ in RIGHT.values() if len(sent) < 3000]
SPOILS = [
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b";", b"0", b"5", b"\0", b"\xff", b"\r\n\r\n", b"0\r\n\r\n"),
    *(b"GET / HTTP/1.1\r\n", b"Host: localhost\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Upgrade: x\r\n", b"Connection: upgrade\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n"),
]


def spoiled(chance: random.Random) -> bytes:
    data = bytearray(b"".join(chance.choices(SHORT, k=chance.randint(1, 3))))
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(3):
            case 0:
                data[at:at] = chance.choice(SPOILS)
            case 1:
                del data[at : at + chance.randint(1, 4)]
            case _:
                data[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(data)


def fate(data: bytes, size: int) -> tuple[list[int], int, bool]:
    """Return the responses, the number of rejections, and whether the connection ends."""
    world = World()
    try:
        world.serve()
        visit = world.visit()
        visit.say(data, size)
        for _ in range(3):
            world.run_once()
        assert world.errors == []
        return visit.statuses, len(world.reports), visit.transport.is_closed or visit.transport.is_finished
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(4))
def test_any_bytes_cut_anywhere_have_one_fate(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(INPUTS):
        data = spoiled(chance)
        whole = fate(data, 0)
        assert whole[1] <= 1
        for size in (1, chance.randint(2, 30)):
            assert fate(data, size) == whole, (data, size)
