"""Worker side and client side of Powerhose."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from typing import Any

import pytest

from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.states import Outcome
from dragoman.dialects.powerhose.options import ClientOptions, WorkerOptions
from dragoman.dialects.powerhose.peer import ClientSide, WorkerSide

ENDPOINT = "ipc:///tmp/w.ipc"
PING = b"PING:::" + ENDPOINT.encode()
REMOVE = b"REMOVE:::" + ENDPOINT.encode()
MASTER, OTHER = "a master's connection", "another's"


class Port:
    """Records the calls of a side; `reconnect` ends the connection, as the real one does."""

    def __init__(self, **options: object) -> None:
        self.registered: list[bytes] = []
        self.answers: list[tuple[Hashable, bytes]] = []
        self.runs: list[bytes] = []
        self.reconnects: list[str] = []
        self.hang_ups: list[Hashable] = []
        self.partings: list[str] = []
        self.now = 100.0
        self.side = WorkerSide(WorkerOptions(**options), ENDPOINT, self, self.now)  # type: ignore[arg-type]

    def register(self, frames: Sequence[bytes]) -> None:
        assert frames[0] == b""
        self.registered.append(bytes(*frames[1:]))

    def reconnect(self, reason: str) -> None:
        assert reason
        self.reconnects.append(reason)
        self.side.lost()

    def answer(self, caller: Hashable, frames: Sequence[bytes]) -> None:
        assert frames[0] == b""
        self.answers.append((caller, bytes(*frames[1:])))

    def hang_up(self, caller: Hashable, reason: str) -> None:
        assert reason
        self.hang_ups.append(caller)

    def run(self, job_ref: Hashable, payload: bytes, assignment: object = None) -> None:
        self.job_ref = job_ref
        self.runs.append(bytes(payload))

    def leaving(self, reason: str) -> None:
        self.partings.append(reason)

    # what a test does

    def open(self) -> Port:
        self.side.opened(self.now)
        return self

    def registered_once(self) -> Port:
        """Return a worker whose first PING got PONG."""
        self.open()
        self.receive(b"PONG")
        assert self.said() == [PING]
        return self

    def receive(self, word: bytes) -> None:
        self.side.receive([b"", word], self.now)

    def order(self, word: bytes, caller: Hashable = MASTER) -> None:
        self.side.order(caller, [b"", word], self.now)

    def finish(self, result: bytes) -> None:
        self.side.finished(self.job_ref, result, self.now)

    def fail(self) -> None:
        self.side.failed(self.job_ref, "it raised", self.now)

    def stop(self) -> None:
        self.side.stop(self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass; the side ticks when it requested it."""
        until = self.now + seconds
        while (due := self.side.tick(self.now)) <= until:
            assert due > self.now, "it asks to come again at once, for ever"
            self.now = due
        self.now = until
        self.side.tick(self.now)

    def said(self) -> list[bytes]:
        said, self.registered = self.registered, []
        return said

    def answered(self) -> list[tuple[Hashable, bytes]]:
        answered, self.answers = self.answers, []
        return answered

    @property
    def is_over(self) -> bool:
        return self.side.is_over(self.now)


# -------------------------------------------------------------------- registration and heartbeats


def test_it_registers_by_a_ping_on_every_connection() -> None:
    port = Port().open()
    assert port.said() == [PING]
    port.side.lost()
    port.open()
    assert port.said() == [PING]


def test_it_pings_every_period_while_it_is_answered() -> None:
    port = Port(ping_every=0.5).registered_once()
    for _ in range(20):
        port.wait(0.5)
        assert port.said() == [PING]
        port.receive(b"PONG")
    assert port.reconnects == []
    assert port.partings == []


def test_it_asks_to_be_woken_when_its_next_ping_is_due() -> None:
    port = Port(ping_every=0.5).registered_once()
    assert port.side.tick(port.now) == port.now + 0.5


def test_a_ping_without_its_pong_is_missed_when_the_next_is_due_and_it_reconnects() -> None:
    """The document, Heartbeat; a REQ cannot ask again on the connection on which it waits."""
    port = Port(ping_every=1).open()
    port.wait(0.9)
    assert port.reconnects == []
    port.wait(0.2)
    assert len(port.reconnects) == 1
    assert "no PONG within 1 s" in port.reconnects[0]
    port.said()
    port.open()
    assert port.said() == [PING]


def test_it_tries_to_reconnect_each_time_and_commits_suicide_after_ping_attempts() -> None:
    port = Port(ping_every=1, ping_attempts=4)
    for _ in range(3):
        port.open()
        port.wait(1)
    assert len(port.reconnects) == 3
    assert port.partings == []
    port.open()
    port.wait(1)
    assert len(port.reconnects) == 3
    assert len(port.partings) == 1
    assert "4 times 1 s" in port.partings[0]
    assert port.side.exit_code == 3


def test_with_nobody_there_from_the_start_it_gives_up_after_as_many_periods() -> None:
    """Defaults: ten times five seconds."""
    port = Port()
    port.wait(49.9)
    assert port.partings == []
    port.wait(0.2)
    assert len(port.partings) == 1
    assert port.side.exit_code == 3
    assert port.is_over
    assert port.said() == []


def test_a_master_that_dies_is_waited_for_from_its_last_pong_on() -> None:
    port = Port(ping_every=5, ping_attempts=10).registered_once()
    port.wait(5)
    port.receive(b"PONG")  # the last
    port.side.lost()
    port.wait(54.9)
    assert port.partings == []
    port.wait(0.2)
    assert len(port.partings) == 1


def test_suicide_says_remove_first_if_it_can() -> None:
    """The connection stands and the master is silent: REMOVE goes out behind the PING that was never answered."""
    port = Port(ping_every=1, ping_attempts=1).open()
    port.wait(1)
    assert port.said() == [PING, REMOVE]
    assert not port.is_over, "REMOVED may come"
    port.wait(1)
    assert port.is_over
    assert port.side.exit_code == 3


def test_one_pong_makes_all_that_were_missed_forgotten() -> None:
    port = Port(ping_every=1, ping_attempts=3)
    for _ in range(10):
        port.open()
        port.wait(1)
        port.open()
        port.wait(1)
        port.open()
        port.receive(b"PONG")
        port.wait(1)
    assert port.partings == []


def test_a_master_that_hangs_up_again_and_again_is_given_up_all_the_same() -> None:
    """A new PING on each new connection must not put the judgement off for ever: two periods at most."""
    port = Port(ping_every=1, ping_attempts=3)
    for _ in range(58):
        port.open()
        port.wait(0.1)
        port.side.lost()
    assert port.partings == []
    for _ in range(4):
        port.open()
        port.wait(0.1)
        port.side.lost()
    assert len(port.partings) == 1


def test_the_ping_on_a_new_connection_has_a_whole_period_to_be_answered() -> None:
    port = Port(ping_every=1, ping_attempts=2)
    port.wait(1.9)  # one is missed
    port.open()
    port.wait(0.9)
    assert port.partings == []
    assert port.reconnects == []
    port.receive(b"PONG")
    port.wait(1)
    assert port.said() == [PING, PING]
    assert port.partings == []


def test_pings_go_on_while_a_job_runs() -> None:
    port = Port(ping_every=1).registered_once()
    port.order(b"JOB:::1:::data")
    for _ in range(3):
        port.wait(1)
        port.receive(b"PONG")
    assert port.said() == [PING] * 3


def test_error_to_a_ping_is_the_end_and_it_says_why() -> None:
    """The master may not connect to our endpoint: no later PING would change that."""
    port = Port().open()
    port.said()
    port.receive(b"ERROR")
    assert len(port.partings) == 1
    assert ENDPOINT in port.partings[0]
    assert port.side.exit_code == 1
    assert port.said() == [REMOVE]
    port.receive(b"ERROR")
    assert port.is_over
    assert len(port.partings) == 1


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ([b"", b"WHAT"], "neither PONG nor REMOVED"),
        ([b"", b""], "neither PONG nor REMOVED"),
        ([b"PONG"], "too few frames"),
        ([b"x", b"PONG"], "no delimiter"),
        ([b"", b"", b"ERROR", b"refused: busy"], "is this where callers connect"),
        (TooLarge([], 9), "too large"),
    ],
)
def test_what_it_cannot_read_is_no_pong_and_it_reconnects(message: list[bytes] | TooLarge, problem: str) -> None:
    port = Port(ping_every=1, ping_attempts=1).open()
    port.side.receive(message, port.now)
    assert problem in port.reconnects[0]
    port.wait(1)
    assert port.side.exit_code == 3


# -------------------------------------------------------------------- work


def test_wake_is_answered_with_give_and_a_job_with_its_result() -> None:
    port = Port().registered_once()
    port.order(b"WAKE")
    assert port.answered() == [(MASTER, b"GIVE")]
    port.order(b"JOB:::42:::the data")
    assert port.runs == [b"the data"]
    assert port.answered() == []
    assert port.side.is_busy
    port.finish(b"the result")
    assert port.answered() == [(MASTER, b"JOBRES:::42:::the result")]
    assert not port.side.is_busy


@pytest.mark.parametrize("data", [b"", b"a:::b", b":::", b"\x00\xff", b":x"])
def test_data_may_be_anything(data: bytes) -> None:
    port = Port()
    port.order(b"JOB:::id:::" + data)
    assert port.runs == [data]
    port.finish(data)
    assert port.answered() == [(MASTER, b"JOBRES:::id:::" + data)]


def test_a_job_without_a_wake_is_done_too() -> None:
    port = Port()
    port.order(b"JOB:::1:::x")
    assert port.runs == [b"x"]


@pytest.mark.parametrize("word", [b"", b"HELLO", b"WAKE:::now", b"JOB", b"JOB:::1", b"JOBS:::1:::x", b"PING", b"wake"])
def test_anything_else_is_answered_with_error(word: bytes) -> None:
    """Silence would jam the REP."""
    port = Port()
    port.order(word)
    assert port.answered() == [(MASTER, b"ERROR")]
    port.order(b"WAKE")
    assert port.answered() == [(MASTER, b"GIVE")]


@pytest.mark.parametrize("message", [[b"", b"WAKE", b"x"], [b"WAKE"], [b"x", b"WAKE"], TooLarge([b""], 1 << 30)])
def test_what_has_no_shape_is_answered_with_error(message: list[bytes] | TooLarge) -> None:
    port = Port()
    port.side.order(MASTER, message, port.now)
    assert port.answered() == [(MASTER, b"ERROR")]


def test_busy_with_one_masters_job_it_refuses_another() -> None:
    port = Port()
    port.order(b"JOB:::1:::x")
    port.order(b"WAKE", OTHER)
    port.order(b"JOB:::2:::y", OTHER)
    assert port.answered() == [(OTHER, b"ERROR"), (OTHER, b"ERROR")]
    assert port.runs == [b"x"]
    port.finish(b"r")
    assert port.answered() == [(MASTER, b"JOBRES:::1:::r")]
    port.order(b"WAKE", OTHER)
    assert port.answered() == [(OTHER, b"GIVE")]


def test_a_give_holds_its_place_for_a_second() -> None:
    port = Port().registered_once()
    port.order(b"WAKE")
    port.order(b"WAKE", OTHER)
    assert port.answered() == [(MASTER, b"GIVE"), (OTHER, b"ERROR")]
    port.order(b"WAKE")
    assert port.answered() == [(MASTER, b"GIVE")]
    port.wait(1)
    port.order(b"WAKE", OTHER)
    assert port.answered() == [(OTHER, b"GIVE")]
    port.order(b"JOB:::1:::late")
    assert port.answered() == [(MASTER, b"ERROR")]
    port.side.hung_up(OTHER, port.now)
    port.order(b"WAKE")
    assert port.answered() == [(MASTER, b"GIVE")]


def test_a_result_whose_master_has_gone_is_dropped() -> None:
    port = Port()
    port.order(b"JOB:::1:::x")
    port.side.hung_up(MASTER, port.now)
    assert not port.side.is_busy
    port.order(b"WAKE", OTHER)
    assert port.answered() == [(OTHER, b"ERROR")], "its job still runs here"
    port.finish(b"r")
    assert port.answered() == []
    port.order(b"WAKE", OTHER)
    assert port.answered() == [(OTHER, b"GIVE")]


def test_a_word_that_comes_while_its_job_runs_ends_the_connection() -> None:
    """An ERROR would be taken for the job's answer."""
    port = Port()
    port.order(b"JOB:::1:::x")
    port.order(b"WAKE")
    assert port.hang_ups == [MASTER]
    port.finish(b"r")
    assert port.answered() == []


# -------------------------------------------------------------------- failure


def test_a_failure_closes_the_connection_and_says_nothing() -> None:
    """The wire has no word for it. The master sees that no result is coming."""
    port = Port().registered_once()
    port.order(b"JOB:::1:::x")
    port.fail()
    assert port.hang_ups == [MASTER]
    assert port.answered() == []
    assert not port.side.is_busy


def test_after_a_failure_it_registers_again_as_soon_as_the_master_has_hung_up() -> None:
    port = Port(ping_every=5).registered_once()
    port.order(b"JOB:::1:::x")
    port.wait(1)
    port.fail()
    assert port.said() == [], "the master would not know yet that it has lost us"
    port.side.hung_up(MASTER, port.now)
    assert port.said() == [PING]
    port.receive(b"PONG")
    port.wait(5)
    assert port.said() == [PING]


def test_after_a_failure_it_does_not_ping_while_a_pong_is_due() -> None:
    port = Port().open()
    port.order(b"JOB:::1:::x")
    port.fail()
    port.side.hung_up(MASTER, port.now)
    assert port.said() == [PING]
    assert port.reconnects == []


def test_the_failure_of_a_job_that_nobody_waits_for_is_nobodys_business() -> None:
    port = Port().registered_once()
    port.order(b"JOB:::1:::x")
    port.side.hung_up(MASTER, port.now)
    port.fail()
    assert port.hang_ups == []
    port.order(b"WAKE", OTHER)
    assert port.answered() == [(OTHER, b"GIVE")]


# -------------------------------------------------------------------- stopping


def test_stopping_says_remove_and_is_over_when_removed_comes() -> None:
    port = Port().registered_once()
    port.stop()
    assert port.said() == [REMOVE]
    assert not port.is_over
    port.receive(b"REMOVED")
    assert port.is_over
    assert port.side.exit_code == 0
    assert port.side.tick(port.now) == inf


def test_a_master_that_does_not_say_removed_is_not_waited_for_long() -> None:
    port = Port().registered_once()
    port.stop()
    port.wait(0.9)
    assert not port.is_over
    port.wait(0.2)
    assert port.is_over


def test_a_pong_that_was_still_due_is_not_taken_for_removed() -> None:
    port = Port().open()
    port.stop()
    port.receive(b"PONG")
    assert not port.is_over
    port.receive(b"REMOVED")
    assert port.is_over


def test_without_a_connection_there_is_nobody_to_tell() -> None:
    port = Port()
    port.stop()
    assert port.said() == []
    assert port.is_over


def test_a_connection_that_is_lost_ends_the_wait_for_removed() -> None:
    port = Port().registered_once()
    port.stop()
    port.side.lost()
    assert port.is_over


def test_the_job_in_hand_is_finished_first() -> None:
    """R58: the master says REMOVED, and may have its result."""
    port = Port().registered_once()
    port.order(b"JOB:::1:::x")
    port.stop()
    assert port.said() == [REMOVE]
    port.receive(b"REMOVED")
    assert not port.is_over
    port.wait(60)
    assert port.said() == [], "a PING would register us again"
    port.finish(b"r")
    assert port.answered() == [(MASTER, b"JOBRES:::1:::r")]
    assert port.is_over


def test_a_job_in_hand_that_nobody_waits_for_is_not_finished() -> None:
    port = Port().registered_once()
    port.order(b"JOB:::1:::x")
    port.stop()
    port.receive(b"REMOVED")
    port.side.hung_up(MASTER, port.now)
    assert port.is_over


def test_stopping_it_refuses_whoever_asks() -> None:
    port = Port().registered_once()
    port.stop()
    port.order(b"WAKE")
    port.order(b"JOB:::1:::x", OTHER)
    assert port.answered() == [(MASTER, b"ERROR"), (OTHER, b"ERROR")]
    assert port.runs == []


def test_a_job_that_was_promised_is_taken_even_then() -> None:
    """GIVE and the signal crossed: to refuse the job now would cost an attempt."""
    port = Port().registered_once()
    port.order(b"WAKE")
    port.stop()
    port.receive(b"REMOVED")
    assert not port.is_over
    port.order(b"JOB:::1:::x")
    port.finish(b"r")
    assert port.answered() == [(MASTER, b"GIVE"), (MASTER, b"JOBRES:::1:::r")]
    assert port.is_over


def test_a_promise_that_nobody_takes_up_does_not_keep_it() -> None:
    port = Port().registered_once()
    port.order(b"WAKE")
    port.stop()
    port.receive(b"REMOVED")
    port.wait(1)
    assert port.is_over


def test_a_connection_that_comes_while_it_leaves_hears_remove() -> None:
    port = Port()
    port.order(b"JOB:::1:::x")
    port.stop()
    port.open()
    assert port.said() == [REMOVE]


def test_suicide_with_a_job_in_hand_finishes_it_first() -> None:
    """Its master's other connection stands, and there the result is waited for."""
    port = Port(ping_every=1, ping_attempts=2)
    port.order(b"JOB:::1:::x")
    port.wait(2)
    assert port.side.exit_code == 3
    assert not port.is_over
    port.finish(b"r")
    assert port.answered() == [(MASTER, b"JOBRES:::1:::r")]
    assert port.is_over


# -------------------------------------------------------------------- the client


class Calls:
    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.answers: list[tuple[Any, ...]] = []
        self.side = ClientSide(ClientOptions(), self)

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.append([bytes(frame) for frame in frames])

    def answered(self, job_ref: Hashable, result: bytes) -> None:
        self.answers.append((job_ref, bytes(result)))

    def ended(
        self, job_ref: Hashable, outcome: Outcome | None, reason: str, failure: Any = None, refusal: str = ""
    ) -> None:
        self.answers.append((job_ref, outcome, reason))


def test_a_call_is_one_frame_and_so_is_its_result() -> None:
    calls = Calls()
    calls.side.call("t", "default", b"data", None, 0.0)
    assert calls.sent == [[b"", b"data"]]
    calls.side.receive([b"", b"result"], 1.0)
    assert calls.answers == [("t", b"result")]


def test_a_call_that_ends_otherwise_says_why() -> None:
    calls = Calls()
    calls.side.call("t", "default", b"data", None, 0.0)
    calls.side.receive([b"", b"", b"ERROR", b"lost: its worker vanished"], 1.0)
    assert calls.answers == [("t", Outcome.LOST, "its worker vanished")]


def test_a_call_at_the_place_of_workers_is_told_so() -> None:
    calls = Calls()
    calls.side.call("t", "default", b"data", None, 0.0)
    with pytest.raises(Malformed, match="a worker's place") as raised:
        calls.side.receive([b"", b"ERROR"], 1.0)
    assert "callers use the frontend" in raised.value.detail
