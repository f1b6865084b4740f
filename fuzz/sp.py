"""Fuzz target: SP. The first byte selects the side, the mapping (TCP or ipc), and whether the greeting is done."""

from __future__ import annotations

from typing import Final

from dragoman.carriers import sp
from dragoman.carriers.sp import Sp, SpLimits
from fuzz.cuts import read, seen_in_all_cuts, small_sizes

LIMITS: Final = SpLimits(max_payload=100, max_header=12, max_words=3)
MOST: Final = LIMITS.max_payload + LIMITS.max_header + sp.WORD * LIMITS.max_words + 9
GREETINGS: Final = {"REP": Sp("REQ").outgoing[0], "REQ": Sp("REP").outgoing[0]}


def test_one_input(data: bytes) -> None:
    choice = data[0] if data else 0
    protocol = "REP" if choice & 1 else "REQ"

    def new() -> Sp:
        return Sp(protocol, ipc=bool(choice & 2), limits=LIMITS)

    stream = (GREETINGS[protocol] if choice & 4 else b"") + data[1:]
    with small_sizes(sp, LARGE_FRAME=24, ROOM=40, PASSED_THROUGH=30):
        seen = seen_in_all_cuts(new, stream, MOST)
        assert seen.ready or not seen.messages
        routed = [each for each in seen.whole_messages if each[0]]
        stream = GREETINGS[protocol] + b"".join(b"".join(new().encode(each)) for each in routed)
        assert read(new(), stream, [len(stream)], MOST).messages == routed
    for route, body in seen.whole_messages:
        assert len(route) <= sp.WORD * LIMITS.max_words
        assert route or not body
