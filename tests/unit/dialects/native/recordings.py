"""Replays recorded connections of the native dialect against today's broker, and compares its messages.

Messages of clients and workers are sent as recorded. Values that differ from run to run are mapped: where the recorded
broker chose a name (a job's id, a token, an epoch, a worker's number), the name that today's broker chooses in the same
place replaces it from then on, in both directions. Times are compared with a tolerance. Jobs and results that came in
one message are compared one by one: their number in a message depends on the moment of reading.
"""

from __future__ import annotations

import json
import re
import struct
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from .world import OUTCOMES, WORDS, End, Frames, World, split

START = 10_000.0  # the world's time at `at` 0
SLACK = 1.5  # seconds by which an answer may be later than in the recording: retry delays have jitter
TOLERANCE = 0.3  # seconds, for times that an answer has in it
MAX_PAYLOAD = 64 << 20  # of a listener, by default

NAME = re.compile(r"\b[0-9a-f]{32}\b")
MOMENTS = frozenset(("created", "not_before", "kept_until", "next", "last"))
SECONDS = frozenset(("silent", "oldest", "timeout"))
PLACES = frozenset(("worker", "worker name"))  # names of workers, by default the addresses of their connections

NOT_THERE = "(no such field)"

Fields = dict[str, Any]


class Difference(NamedTuple):
    """One field that differs from the recording."""

    message: str
    field: str
    recorded: Any
    today: Any


class Replay:
    """One recording, and the world in which it is replayed."""

    def __init__(self, path: Path) -> None:
        about, *self._lines = map(json.loads, path.read_text().splitlines())
        options = {name: _number(value) for name, value in re.findall(r"(\w+)=([^&]+)", about["options"])}
        if "resume" in options:  # the name of the option at that time
            options["client_resume_timeout"] = options.pop("resume")
        max_payload = options.pop("max_payload", MAX_PAYLOAD)
        self._world = World(max_payload=max_payload, offset=about["began"] - START, about="dragoman", **options)
        self._ends: dict[int, End] = {}
        self._answers: dict[int, deque[tuple[str, Fields]]] = {}
        self._names: dict[str, str] = {}  # recorded to today's: job ids, tokens and epochs in hex, places
        self._numbers: dict[int, int] = {}  # the same for workers
        self._left: set[int] = set()  # connections whose peers have said BYE: the broker closes them
        self._late = 0.0  # seconds by which the replay is behind the recording
        self.differences: list[Difference] = []
        self.received: set[str] = set()  # messages of peers, by name
        self.sent: set[str] = set()  # messages of the broker
        self.operations: set[str] = set()

    def play(self) -> None:
        """Replay. Raises AssertionError if a message is missing, too many, or of another type."""
        for line in self._lines:
            number = line["connection"]
            due = START + line["at"] + self._late
            if due > self._world.now:
                self._world.wait(due - self._world.now)
            if "opened" in line:
                self._ends[number] = self._world.connect()
                self._answers[number] = deque()
            elif "closed" in line:
                self._close(number, line["closed"])
            elif line["from"] == "peer":
                self._receive(number, [_frame(each) for each in line["frames"]])
            else:
                for word, fields in units([_frame(each) for each in line["frames"]]):
                    self._expect(number, word, fields, due)
        self._collect()
        closed = {number for number, end in self._ends.items() if end.is_over}
        assert closed <= self._left, f"today's broker closes connections {closed - self._left}"
        rest = {number: list(answers) for number, answers in self._answers.items() if answers}
        assert not rest, f"today's broker says more: {rest}"

    # ---------------------------------------------------------------- steps

    def _receive(self, number: int, frames: Frames) -> None:
        word = WORDS[frames[0][0]]
        self.received.add(word)
        if word == "BYE":
            self._left.add(number)
        elif word == "ASK":
            self.operations.add(frames[0][9:].decode())
        self._ends[number].send([self._as_today(frame) for frame in frames])
        self._world.run_once()

    def _close(self, number: int, side: str) -> None:
        self._collect()
        end = self._ends.pop(number)
        assert end.is_over == (side == "broker" or number in self._left), f"connection {number}: closed by whom?"
        if not end.is_over:
            end.cut()

    def _expect(self, number: int, word: str, recorded: Fields, due: float) -> None:
        """Compare the next message on this connection."""
        world, answers = self._world, self._answers[number]
        self._collect()
        until = due + SLACK
        while not answers and world.now < until:
            world.wait(min(max(world.run_once() - world.now, 0.001), until - world.now))
            self._collect()
        self._late += max(0.0, world.now - due)
        assert self._late < SLACK, "the replay is too far behind for its times to be compared"
        assert answers, f"connection {number}: today's broker does not say {word} {recorded}"
        today_word, today = answers.popleft()
        assert today_word == word, f"connection {number}: {today_word} {today} in place of {word} {recorded}"
        self.sent.add(word)
        self._compare(word, "", recorded, today)

    def _collect(self) -> None:
        for number, end in self._ends.items():
            for message in end.messages():
                self._answers[number].extend(units(message))

    # ---------------------------------------------------------------- names

    def _as_today(self, frame: bytes) -> bytes:
        """Return a recorded frame with today's names. Both have the same length."""
        if len(frame) > 65_536:
            return frame
        for recorded, today in self._names.items():
            if NAME.fullmatch(recorded):
                frame = frame.replace(recorded.encode(), today.encode())
                frame = frame.replace(bytes.fromhex(recorded), bytes.fromhex(today))
        for old, new in self._numbers.items():
            frame = re.sub(rb'("id": ?)%d\b' % old, rb"\g<1>%d" % new, frame)
        return frame

    def _stands_for(self, today: str, recorded: str) -> bool:
        """Map a recorded name to today's, or check the existing mapping."""
        known = self._names.setdefault(recorded, today)
        return known == today and list(self._names.values()).count(today) == 1

    def _translated(self, text: str) -> str:
        for recorded, today in self._names.items():
            text = text.replace(recorded, today)
        for old, new in self._numbers.items():
            text = text.replace(str(old), str(new))
        return text

    # ---------------------------------------------------------------- comparison

    def _compare(self, word: str, field: str, recorded: Any, today: Any) -> None:
        if isinstance(recorded, dict) and isinstance(today, dict):
            for key in dict.fromkeys((*recorded, *today)):
                name = f"{field}.{key}" if field else key
                self._compare(word, name, recorded.get(key, NOT_THERE), today.get(key, NOT_THERE))
        elif isinstance(recorded, list) and isinstance(today, list):
            self._compare_lists(word, field, recorded, today)
        elif not self._is_same(field.rpartition(".")[2], recorded, today):
            self.differences.append(Difference(word, field, recorded, today))

    def _compare_lists(self, word: str, field: str, recorded: list[Any], today: list[Any]) -> None:
        """Compare lists of jobs: missing ones are differences, all others are compared in order."""
        names = [each["id"] for each in today] if field == "view.jobs" else []
        kept = []
        for old in recorded:
            if field == "view.jobs" and self._names.get(old["id"]) not in names:
                self.differences.append(Difference(word, f"{field}[{old['key']}]", "a job", NOT_THERE))
            else:
                kept.append(old)
        if len(kept) != len(today):
            self.differences.append(Difference(word, f"{field} length", len(recorded), len(today)))
            return
        for old, new in zip(kept, today, strict=True):
            label = old["key"] if field == "view.jobs" else ""
            self._compare(word, f"{field}[{label}]", old, new)

    def _is_same(self, key: str, recorded: Any, today: Any) -> bool:
        if type(recorded) is not type(today) and not (_is_number(recorded) and _is_number(today)):
            return False
        if NOT_THERE in (recorded, today):
            return False
        if recorded is not None and key in MOMENTS:
            return abs(_seconds(recorded) - _seconds(today)) <= TOLERANCE + self._late
        if recorded is not None and key in SECONDS:
            if key == "timeout" and 0 in (recorded, today):  # of JOB: no limit
                return bool(recorded == today)
            return abs(recorded - today) <= TOLERANCE + self._late
        if key == "worker id":
            return self._numbers.setdefault(recorded, today) == today
        if isinstance(recorded, str) and (key in PLACES or NAME.fullmatch(recorded)):
            return self._stands_for(today, recorded)
        if isinstance(recorded, str):
            return self._translated(recorded) == today
        return bool(recorded == today)


# -------------------------------------------------------------------- messages as fields


def units(frames: Frames) -> Iterator[tuple[str, Fields]]:
    """Split a message of the broker, one unit per job or result, with every byte in a field."""
    head, rest = frames[0], frames[1:]
    word = WORDS[head[0]]
    if word == "WELCOME":
        (about,) = rest
        yield word, {"version": head[1:].hex(), "about": json.loads(about)}
    elif word == "ERROR":
        code, sentence = rest
        yield word, {"about": head[1:].hex(), "code": code.decode(), "sentence": sentence.decode()}
    elif word == "HEARTBEAT":
        assert (head, rest) == (b"\x04", [])
        yield word, {}
    elif word == "BYE":
        (sentence,) = rest
        yield word, {"final": head[1:].hex(), "sentence": sentence.decode()}
    elif word in ("ACCEPTED", "MISSING"):
        assert len(head) == 1
        for name in split(rest[0]):
            yield word, {"id": name.hex()}
    elif word == "RESULT":
        for name, payload in zip(split(head[1:]), rest, strict=True):
            yield word, {"id": name.hex(), "payload": payload}
    elif word == "FAILED":
        type_, message, detail = (each.decode() for each in rest)
        outcome = OUTCOMES[head[1]]
        yield word, {"outcome": outcome, "id": head[2:].hex(), "type": type_, "message": message, "detail": detail}
    elif word in ("PROGRESS", "PART"):
        (payload,) = rest
        yield word, {"id": head[1:17].hex(), "attempt": head[17:].hex(), "payload": payload}
    elif word == "JOB":
        records = [rest[0][at : at + 38] for at in range(0, len(rest[0]), 38)]
        for record, payload in zip(records, rest[1:], strict=True):
            token, id_, attempt, milliseconds = struct.unpack(">16s16sHI", record)
            fields = {"token": token.hex(), "id": id_.hex(), "attempt": attempt, "timeout": milliseconds / 1000}
            yield word, {**fields, "service": head[1:].decode(), "payload": payload}
    elif word == "RECALL":
        (reason,) = rest
        yield word, {"token": head[1:].hex(), "reason": reason.decode()}
    elif word == "TELL":
        view, payload = rest
        yield word, {"number": head[1:].hex(), "view": _shown(json.loads(view)), "payload": payload}
    else:
        assert word == "OBJECT"
        kind, sentence = rest
        yield word, {"number": head[1:].hex(), "kind": kind.decode(), "sentence": sentence.decode()}


def _shown(view: Fields) -> Fields:
    """Return a view in which numbers and names of workers are marked."""
    if "dialect" in view:
        return {**view, "id": {"worker id": view["id"]}, "name": {"worker name": view["name"]}}
    if "workers" in view and isinstance(view["workers"], list):
        return {**view, "workers": [_shown(each) for each in view["workers"]]}
    return view


def _frame(written: Fields) -> bytes:
    one: bytes = bytes.fromhex(written["hex"]) if "hex" in written else written["text"].encode()
    return one * written.get("times", 1)


def _number(text: str) -> Any:
    return int(text) if text.isdecimal() else float(text)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
