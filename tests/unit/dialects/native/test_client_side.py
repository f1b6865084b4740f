"""The client side of the native dialect: its messages, and its reaction to every message type."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from itertools import count
from math import inf
from typing import Any

import pytest

from dragoman.carriers.carrier import Frame, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.states import Outcome
from dragoman.dialects.native.client_side import ACK_AFTER, BATCH_BYTES, ClientSide
from dragoman.dialects.native.codec import read_order
from dragoman.dialects.native.messages import OUTCOMES
from dragoman.dialects.native.options import ClientOptions
from dragoman.dialects.native.waiting import NO_WELCOME
from dragoman.dialects.sides import Failure, JobExtras, JobId, SubmitOptions

SESSION = "5f" * 16
ECHO = SubmitOptions("echo")
WELCOME, ERROR, HEARTBEAT, BYE = b"\x02\x01", b"\x03", b"\x04", b"\x06\x00"
ACCEPTED, MISSING, RESULT, FAILED, PROGRESS, PART = b"\x11", b"\x15", b"\x20", b"\x21", b"\x22", b"\x23"


class Port:
    def __init__(self) -> None:
        self.sent: list[list[Frame]] = []
        self.answers: list[tuple[Any, ...]] = []
        self.failures: list[Failure | None] = []
        self.refusals: list[str] = []
        self.reports: list[tuple[Any, ...]] = []
        self.views: list[tuple[Any, ...]] = []
        self.reconnects: list[str] = []

    def send(self, frames: Sequence[Frame]) -> None:
        self.sent.append(list(frames))

    def answered(self, job_ref: Hashable, result: Frame) -> None:
        self.answers.append((job_ref, bytes(result)))

    def ended(
        self,
        job_ref: Hashable,
        outcome: Outcome | None,
        reason: str,
        failure: Failure | None = None,
        refusal: str = "",
    ) -> None:
        self.answers.append((job_ref, outcome, reason))
        self.failures.append(failure)
        self.refusals.append(refusal)

    def abandoned(self, job_ref: Hashable, reason: str) -> None:
        self.answers.append((job_ref, "abandoned", reason))

    def reported(self, job_ref: Hashable, payload: Frame, is_part: bool, attempt: int) -> None:
        self.reports.append((job_ref, bytes(payload), is_part, attempt))

    def told(self, job_ref: Hashable, view: bytes, payload: Frame) -> None:
        self.views.append((job_ref, view, bytes(payload)))

    def operation_failed(self, job_ref: Hashable, kind: str, detail: str) -> None:
        self.views.append((job_ref, kind, detail))

    def reconnect(self, reason: str) -> None:
        self.reconnects.append(reason)

    def take(self) -> list[list[Frame]]:
        sent, self.sent = self.sent, []
        return sent


class World:
    """A client side, its I/O, and a broker by hand."""

    def __init__(self, options: ClientOptions | None = None) -> None:
        self.port = Port()
        self.side = ClientSide(options or ClientOptions(), self.port, SESSION)
        self.now = 100.0
        self._numbers = count(1)

    def connect(self, **about: Any) -> None:
        self.side.opened(self.now)
        self.port.take()
        self.welcome(**about)

    def welcome(self, **about: Any) -> None:
        usual = {"heartbeat": 2.5, "lease": 10, "max_payload": 1 << 20, "window": 1000, "resume": 30}
        self.receive(WELCOME, json.dumps(usual | about).encode())

    def receive(self, *frames: bytes) -> None:
        self.side.receive(list(frames), self.now)
        self.side.flush(self.now)

    def submit(self, job_ref: Hashable, payload: bytes = b"p", submit_options: SubmitOptions = ECHO) -> bytes:
        id = next(self._numbers).to_bytes(16, "big")
        self.side.submit(job_ref, submit_options, payload, id, self.now)
        return id

    def ask(self, job_ref: Hashable, question: str = "why", payload: bytes = b"") -> bytes:
        """Send an operation. Returns its request number."""
        id = next(self._numbers).to_bytes(16, "big")
        self.side.ask(job_ref, question, b"{}", payload, id, self.now)
        self.side.flush(self.now)
        return id[8:]

    def sent_job(self, job_ref: Hashable, payload: bytes = b"p") -> bytes:
        id = self.submit(job_ref, payload)
        self.side.flush(self.now)
        self.port.take()
        return id


@pytest.fixture
def world() -> World:
    world = World()
    world.connect()
    return world


HEAD = b"\x10\x00\xff\x00" + bytes(12) + b"echo"


# -------------------------------------------------------------------- how it begins


def test_the_first_word_is_hello_with_session_and_window() -> None:
    world = World(ClientOptions(window=77))
    world.side.opened(world.now)
    ((head, about),) = world.port.take()
    assert head == b"\x01\x01\x01"
    assert json.loads(about) == {"session": SESSION, "window": 77, "edition": 3, "extras": True}


def test_without_resume_no_session_is_named() -> None:
    world = World(ClientOptions(resume=False))
    world.side.opened(world.now)
    assert json.loads(world.port.take()[0][1]) == {"window": 256, "edition": 3, "extras": True}


def test_nothing_is_sent_before_welcome() -> None:
    world = World()
    world.side.opened(world.now)
    world.port.take()
    world.submit("a")
    world.side.flush(world.now)
    assert not world.side.is_ready
    assert world.port.take() == []
    world.welcome()
    assert world.side.is_ready
    assert world.port.take() == [[HEAD, (1).to_bytes(16, "big"), b"p"]]


def test_another_version_is_not_understood() -> None:
    world = World()
    world.side.opened(world.now)
    with pytest.raises(Malformed, match="version 9"):
        world.side.receive([b"\x02\x09", b"{}"], world.now)


# -------------------------------------------------------------------- submit


def test_jobs_that_ask_for_the_same_leave_in_one_message(world: World) -> None:
    ids = [world.submit(job_ref, job_ref.encode()) for job_ref in ("a", "b", "c")]
    assert world.port.take() == []
    world.side.flush(world.now)
    assert world.port.take() == [[HEAD, b"".join(ids), b"a", b"b", b"c"]]


def test_jobs_that_ask_for_different_things_leave_in_different_messages_and_in_order(world: World) -> None:
    other = SubmitOptions("other")
    for submit_options in (ECHO, ECHO, other, ECHO):
        world.submit("x", submit_options=submit_options)
    world.side.flush(world.now)
    assert [(read_order(head).service, len(rest)) for head, _, *rest in world.port.take()] == [
        ("echo", 2),
        ("other", 1),
        ("echo", 1),
    ]


def test_a_head_says_all_options(world: World) -> None:
    world.submit("x", submit_options=SubmitOptions("echo", 5.0, 2.0, 1.0, 9, 3, True))
    world.side.flush(world.now)
    order = read_order(world.port.take()[0][0])
    assert (order.priority, order.attempts, int(order.flags)) == (9, 3, 1)
    assert order.deadline == pytest.approx(5, abs=0.01)
    assert order.job_timeout == pytest.approx(2, abs=0.01)
    assert order.queue_timeout == pytest.approx(1, abs=0.01)


def test_for_ever_is_as_long_as_can_be_said(world: World) -> None:
    world.submit("x", submit_options=SubmitOptions("echo", inf))
    world.side.flush(world.now)
    assert read_order(world.port.take()[0][0]).deadline > 40 * 86_400


def test_heads_are_written_once_and_not_kept_without_end(world: World) -> None:
    for number in range(3000):
        world.submit("x", submit_options=SubmitOptions(f"s{number}"))
    assert len(world.side._heads) <= 1024


def test_a_result_that_is_wanted_whole_is_asked_for_with_flag_8(world: World) -> None:
    """The broker then joins the parts: a client that joins them itself misses those sent while it was not connected."""
    for is_whole, flags in ((False, 0), (True, 8)):
        world.submit(is_whole, submit_options=SubmitOptions("echo", is_whole=is_whole))
        world.side.flush(world.now)
        ((head, *_),) = world.port.take()
        assert head[1] == flags


def test_a_message_has_at_most_so_many_bytes_of_payloads() -> None:
    world = World(ClientOptions(window=1000))
    world.connect(max_payload=64 << 20)
    for _ in range(5):
        world.submit("x", bytes(BATCH_BYTES // 2))
    world.side.flush(world.now)
    assert [len(message) - 2 for message in world.port.take()] == [2, 2, 1]


def test_a_batch_keeps_to_the_brokers_max_payload() -> None:
    """A bug: a batch of small payloads over max_payload was refused as a whole."""
    world = World()
    world.connect(max_payload=100)
    for _ in range(5):
        world.submit("x", bytes(40))
    world.side.flush(world.now)
    assert [len(message) - 2 for message in world.port.take()] == [2, 2, 1]


def test_a_payload_over_max_payload_is_refused_here(world: World) -> None:
    world.submit("big", bytes((1 << 20) + 1))
    world.side.flush(world.now)
    ((job_ref, outcome, reason),) = world.port.answers
    assert (job_ref, outcome, world.port.refusals) == ("big", Outcome.REFUSED, ["too large"])
    assert reason == "a payload of 1048577 bytes is over the broker's max_payload 1048576"
    assert world.port.take() == []


def test_no_more_than_the_window_is_under_way() -> None:
    world = World()
    world.connect(window=3)
    ids = [world.submit(number) for number in range(5)]
    world.side.flush(world.now)
    assert [message[1] for message in world.port.take()] == [b"".join(ids[:3])]
    world.receive(RESULT + ids[1], b"r")
    assert [message[1] for message in world.port.take()] == [ids[3]]
    world.receive(FAILED + b"\x01" + ids[0], b"", b"no", b"")
    assert [message[1] for message in world.port.take()] == [ids[4]]
    assert world.port.answers == [(1, b"r"), (0, Outcome.FAILED, "no")]


def test_a_message_names_at_most_1024_jobs() -> None:
    world = World()
    world.connect(window=5000)
    for number in range(2500):
        world.submit(number)
    world.side.flush(world.now)
    assert [len(message) - 2 for message in world.port.take()] == [1024, 1024, 452]


# -------------------------------------------------------------------- outcomes and other words


@pytest.mark.parametrize(
    ("number", "texts", "failure", "refusal"),
    [
        (1, (b"ValueError", b"no", b"Traceback"), Failure("ValueError", "no", "Traceback"), ""),
        (1, (b"", b"its answer is too large", b""), None, ""),
        (3, (b"", b"its process died", b"core dumped"), Failure("", "its process died", "core dumped"), ""),
        (5, (b"busy", b"5 jobs are present", b""), None, "busy"),
    ],
    ids=["failed", "failed without a failure", "lost", "refused"],
)
def test_a_failure_and_the_kind_of_a_refusal_come_apart_from_the_reason(
    world: World, number: int, texts: tuple[bytes, bytes, bytes], failure: Failure | None, refusal: str
) -> None:
    id = world.sent_job("t")
    world.receive(FAILED + bytes((number,)) + id, *texts)
    assert world.port.answers == [("t", OUTCOMES[number], texts[1].decode())]
    assert (world.port.failures, world.port.refusals) == ([failure], [refusal])


def test_several_results_in_one_message(world: World) -> None:
    one, two = world.sent_job("one"), world.sent_job("two")
    world.receive(RESULT + two + one, b"2", b"1")
    assert world.port.answers == [("two", b"2"), ("one", b"1")]


@pytest.mark.parametrize(
    ("number", "outcome"), [(1, "failed"), (2, "timed out"), (3, "lost"), (4, "cancelled"), (5, "refused")]
)
def test_every_outcome_has_its_word(world: World, number: int, outcome: str) -> None:
    id = world.sent_job("t")
    world.receive(FAILED + bytes((number,)) + id, b"T", b"why", b"more")
    assert world.port.answers == [("t", outcome, "why")]


def test_an_outcome_comes_once_and_strangers_are_passed_over(world: World) -> None:
    id = world.sent_job("t")
    for name in (id, id, bytes(16)):
        world.receive(RESULT + name, b"r")
    assert world.port.answers == [("t", b"r")]


def test_progress_and_parts_are_reported_while_it_runs(world: World) -> None:
    id = world.sent_job("t")
    world.receive(PROGRESS + id + b"\x00\x01", b"{}")
    world.receive(PART + id + b"\x00\x02", b"part")
    world.receive(RESULT + id, b"")
    world.receive(PART + id + b"\x00\x02", b"late")
    assert world.port.reports == [("t", b"{}", False, 1), ("t", b"part", True, 2)]


def test_words_that_say_nothing_to_us_are_passed_over(world: World) -> None:
    for frames in ([HEARTBEAT], [ACCEPTED, bytes(16)], [b"\x7f"], [b"\x30echo", bytes(38), b"p"]):
        world.receive(*frames)
    assert (world.port.sent, world.port.answers, world.port.reconnects) == ([], [], [])


def test_what_cannot_be_understood_is_said() -> None:
    world = World()
    world.side.opened(world.now)
    with pytest.raises(Malformed, match="7f came before WELCOME"):
        world.side.receive([b"\x7f"], world.now)
    with pytest.raises(Malformed, match="hello first, please"):
        world.side.receive([ERROR + b"\x10", b"hello first", b"hello first, please"], world.now)
    with pytest.raises(Malformed, match="over this client's limit"):
        world.side.receive(TooLarge([], 1 << 31), world.now)


def test_bye_of_the_broker_asks_for_a_new_connection(world: World) -> None:
    world.receive(BYE, b"stopping")
    assert world.port.reconnects == ["the broker sent BYE: stopping"]


def test_our_bye_is_for_good_and_cancels_what_runs(world: World) -> None:
    id = world.sent_job("sent")
    world.submit("unsent")
    world.side.bye()
    assert world.port.take() == [[b"\x12", id], [b"\x06\x01", b"the client is closed"]]
    world.side.lost()
    world.side.bye()
    assert world.port.take() == []


# -------------------------------------------------------------------- cancel and forget


def test_an_unsent_job_is_cancelled_here() -> None:
    world = World()
    world.connect(window=1)
    world.sent_job("first")
    id = world.submit("second")
    assert not world.side.is_sent(id)
    world.side.cancel(id, world.now)
    assert world.port.answers == [("second", Outcome.CANCELLED, "the job had not been sent yet")]
    world.side.flush(world.now)
    assert world.port.take() == []


def test_of_a_job_that_was_sent_the_broker_decides(world: World) -> None:
    id = world.sent_job("t")
    assert world.side.is_sent(id)
    world.side.cancel(id, world.now)
    assert world.port.take() == [[b"\x12", id]]
    assert world.port.answers == []
    world.receive(RESULT + id, b"was faster")
    assert world.port.answers == [("t", b"was faster")]
    world.side.cancel(id, world.now)
    assert world.port.take() == []


def test_a_forgotten_job_is_cancelled_and_counts_until_the_broker_has_answered() -> None:
    world = World()
    world.connect(window=1)
    id = world.sent_job("t")
    world.side.forget("t", id, world.now)
    assert world.port.take() == [[b"\x12", id]]
    second = world.submit("second")
    world.side.flush(world.now)
    assert world.port.take() == []
    world.receive(FAILED + b"\x04" + id, b"", b"cancelled by its caller", b"")
    assert world.port.take() == [[HEAD, second, b"p"]]
    assert world.port.answers == []


def test_a_forgotten_job_that_was_not_sent_leaves_no_trace(world: World) -> None:
    id = world.submit("t")
    world.side.forget("t", id, world.now)
    world.side.flush(world.now)
    assert world.port.take() == []
    assert world.port.answers == []


# -------------------------------------------------------------------- acknowledging


def test_outcomes_are_acknowledged_after_so_many_bytes(world: World) -> None:
    ids = [world.sent_job(number) for number in range(3)]
    world.receive(RESULT + ids[0], bytes(ACK_AFTER // 2))
    assert world.port.take() == []
    world.receive(RESULT + ids[1], bytes(ACK_AFTER // 2))
    assert world.port.take() == [[b"\x13", ids[0] + ids[1]]]
    world.receive(RESULT + ids[2], b"")
    assert world.port.take() == []


def test_without_a_session_nothing_is_acknowledged() -> None:
    world = World(ClientOptions(resume=False))
    world.connect()
    world.receive(RESULT + world.sent_job("t"), bytes(ACK_AFTER))
    assert world.port.take() == []


# -------------------------------------------------------------------- resuming


def test_after_a_broken_connection_it_asks_for_what_it_misses(world: World) -> None:
    done, open = world.sent_job("done"), world.sent_job("open")
    world.receive(RESULT + done, b"")
    world.side.lost()
    unsent = world.submit("unsent")
    world.side.opened(world.now)
    assert world.port.take()[0][0] == b"\x01\x01\x01"
    world.welcome(resumed=True)
    assert world.port.take() == [[b"\x14", open], [HEAD, unsent, b"p"]]
    world.receive(RESULT + open, b"kept")
    assert world.port.answers == [("done", b""), ("open", b"kept")]


def test_what_never_came_to_the_broker_is_sent_again_in_order(world: World) -> None:
    one, two, three = (world.sent_job(name) for name in ("one", "two", "three"))
    world.side.lost()
    world.side.opened(world.now)
    world.port.take()
    world.welcome(resumed=True)
    assert world.port.take() == [[b"\x14", one + two + three]]
    world.receive(MISSING, one + three)
    assert world.port.take() == [[HEAD, one + three, b"p", b"p"]]
    world.receive(MISSING, bytes(16))
    assert world.port.take() == []


def test_many_are_asked_for_in_several_messages() -> None:
    world = World()
    world.connect(window=3000)
    for number in range(2100):
        world.submit(number)
    world.side.flush(world.now)
    world.side.lost()
    world.side.opened(world.now)
    world.port.take()
    world.welcome(resumed=True, window=3000)
    assert [(head, len(ids) // 16) for head, ids in world.port.take()] == [
        (b"\x14", 1024),
        (b"\x14", 1024),
        (b"\x14", 52),
    ]


def test_a_broker_that_does_not_know_us_any_more_has_lost_what_was_sent(world: World) -> None:
    world.sent_job("sent")
    world.side.lost()
    unsent = world.submit("unsent")
    assert world.port.answers == []
    world.side.opened(world.now)
    world.port.take()
    world.welcome(resumed=False)
    assert world.port.answers == [("sent", "abandoned", "the broker lost the client's session; the job may have run")]
    assert world.port.take() == [[HEAD, unsent, b"p"]]


@pytest.mark.parametrize(("options", "about"), [(ClientOptions(resume=False), {}), (ClientOptions(), {"resume": 0})])
def test_where_nothing_can_be_resumed_what_was_sent_ends_with_the_connection(
    options: ClientOptions, about: dict[str, Any]
) -> None:
    world = World(options)
    world.connect(**about)
    world.sent_job("sent")
    world.side.lost()
    assert world.port.answers == [("sent", "abandoned", "the connection to the broker ended; the job may have run")]


def test_a_cancel_while_there_is_no_connection_is_said_when_there_is(world: World) -> None:
    id = world.sent_job("t")
    world.side.lost()
    world.side.cancel(id, world.now)
    assert world.port.take() == []
    world.side.opened(world.now)
    world.port.take()
    world.welcome(resumed=True)
    assert world.port.take() == [[b"\x14", id], [b"\x12", id]]


def test_a_cancelled_job_that_never_came_is_not_sent_again(world: World) -> None:
    id, forgotten = world.sent_job("t"), world.sent_job("forgotten")
    world.side.lost()
    world.side.cancel(id, world.now)
    world.side.forget("forgotten", forgotten, world.now)
    world.side.opened(world.now)
    world.welcome(resumed=True)
    world.port.take()
    world.receive(MISSING, id + forgotten)
    assert world.port.take() == []
    assert world.port.answers == [("t", Outcome.CANCELLED, "the job never reached the broker")]


def test_the_window_counts_what_was_resumed() -> None:
    world = World()
    world.connect(window=2)
    first = world.sent_job("first")
    world.side.lost()
    ids = [world.submit(number) for number in range(2)]
    world.side.opened(world.now)
    world.port.take()
    world.welcome(resumed=True, window=2)
    assert world.port.take() == [[b"\x14", first], [HEAD, ids[0], b"p"]]


# -------------------------------------------------------------------- life signs


def test_it_says_something_once_a_heartbeat(world: World) -> None:
    assert world.side.tick(world.now) == world.now + 2.5
    assert world.side.tick(world.now + 2.5) == world.now + 5
    assert world.port.take() == [[HEARTBEAT]]


def test_what_was_said_puts_the_heartbeat_off(world: World) -> None:
    world.now += 2
    world.sent_job("t")
    assert world.side.tick(world.now) == world.now + 2.5
    assert world.port.take() == []


def test_a_silent_broker_is_left(world: World) -> None:
    assert world.side.tick(world.now + 10) == inf
    assert world.port.reconnects == ["nothing received from the broker for 10 s"]


def test_a_peer_that_never_welcomes_us_speaks_another_dialect() -> None:
    world = World()
    world.side.opened(world.now)
    world.side.tick(world.now + 5)
    assert world.port.reconnects == [NO_WELCOME]


def test_whatever_is_heard_proves_the_broker_alive(world: World) -> None:
    world.now += 9
    world.receive(HEARTBEAT)
    world.side.tick(world.now + 9)
    assert world.port.reconnects == []


def test_without_a_connection_nothing_is_due(world: World) -> None:
    world.side.lost()
    assert world.side.tick(world.now + 100) == inf
    assert world.port.take() == []


# -------------------------------------------------------------------- questions


def test_a_question_is_asked_and_told(world: World) -> None:
    number = world.ask("mine", "enqueue", b"payload")
    assert world.port.take() == [[b"\x40" + number + b"enqueue", b"{}", b"payload"]]
    world.receive(b"\x41" + number, b'{"id":"x"}', b"body")
    assert world.port.views == [("mine", b'{"id":"x"}', b"body")]


def test_an_objection_is_passed_on(world: World) -> None:
    number = world.ask("mine")
    world.receive(b"\x42" + number, b"not found", b"no such job")
    assert world.port.views == [("mine", "not found", "no such job")]


def test_an_answer_that_nobody_waits_for_is_passed_over(world: World) -> None:
    number = world.ask("mine")
    world.side.forget("mine", bytes(8) + number, world.now)
    world.receive(b"\x41" + number, b"{}", b"")
    world.receive(b"\x41" + number, b"{}", b"")
    world.receive(b"\x42" + b"stranger", b"busy", b"no")
    assert world.port.views == []


def test_questions_wait_for_the_welcome_and_are_asked_again_on_every_connection() -> None:
    world = World()
    first, second = world.ask("first"), world.ask("second")
    assert world.port.take() == []
    world.connect()
    assert [frames[0] for frames in world.port.take()] == [b"\x40" + first + b"why", b"\x40" + second + b"why"]
    world.receive(b"\x41" + second, b"{}", b"")
    world.side.lost()
    third = world.ask("third")
    world.connect(resumed=False)
    assert [frames[0][1:9] for frames in world.port.take()] == [first, third]
    assert world.port.views == [("second", b"{}", b"")]


def test_a_question_that_was_dropped_while_away_is_not_asked_again(world: World) -> None:
    number = world.ask("mine")
    world.side.lost()
    world.side.forget("mine", bytes(8) + number, world.now)
    world.port.take()
    world.connect(resumed=True)
    assert world.port.take() == []


def test_no_more_questions_are_under_way_than_the_window_has_room_for() -> None:
    """A forgotten one still counts until its response has come."""
    world = World()
    world.connect(window=2)
    numbers = [world.ask(job_ref) for job_ref in range(4)]
    assert [frames[0][1:9] for frames in world.port.take()] == numbers[:2]
    world.side.forget(0, bytes(8) + numbers[0], world.now)
    world.side.forget(2, bytes(8) + numbers[2], world.now)
    world.side.flush(world.now)
    assert world.port.take() == []
    world.receive(b"\x41" + numbers[0], b"{}", b"")
    assert [frames[0][1:9] for frames in world.port.take()] == [numbers[3]]


def test_a_question_that_the_broker_would_not_take_is_not_sent(world: World) -> None:
    world.ask("mine", payload=bytes((1 << 20) + 1))
    assert world.port.take() == []
    ((job_ref, kind, _),) = world.port.views
    assert (job_ref, kind) == ("mine", "too large")


# -------------------------------------------------------------------- extras


PARENT = JobExtras(parent=JobId(b"p" * 16))
OTHER = JobExtras(parent=JobId(b"q" * 16))


def submit_with(world: World, job_ref: str, extras: JobExtras | None) -> bytes:
    id = next(world._numbers).to_bytes(16, "big")
    world.side.submit(job_ref, ECHO, job_ref.encode(), id, world.now, extras)
    return id


def extras_of(frames: list[Frame]) -> tuple[int, str | None, list[Frame]]:
    """Return the flags of a SUBMIT, the parent in its extras, and its payloads."""
    flags = frames[0][1]
    if not flags & 16:
        return flags, None, frames[2:]
    return flags, json.loads(frames[2])["parent"], frames[3:]


def test_jobs_with_the_same_extras_go_in_one_message() -> None:
    world = World()
    world.connect(extras=["parent", "traceparent"])
    for name, extras in (("a", None), ("b", PARENT), ("c", JobExtras(parent=JobId(b"p" * 16))), ("d", OTHER)):
        submit_with(world, name, extras)
    world.side.flush(world.now)
    assert [extras_of(each) for each in world.port.take()] == [
        (0, None, [b"a"]),
        (16, "70" * 16, [b"b", b"c"]),
        (16, "71" * 16, [b"d"]),
    ]


def test_extras_are_left_out_for_a_broker_that_does_not_know_them() -> None:
    """An earlier broker would take them for a payload, or refuse the request."""
    world = World()
    world.connect()
    submit_with(world, "a", PARENT)
    world.side.ask("b", "enqueue", b'{"service":"s"}', b"", bytes(16), world.now, PARENT)
    world.side.flush(world.now)
    submit, ask = world.port.take()
    assert extras_of(submit) == (0, None, [b"a"])
    assert ask[1] == b'{"service":"s"}'
    world.side.lost()
    world.connect(extras=["parent"], resumed=True)
    (again,) = [each for each in world.port.take() if each[0][0] == 0x40]
    assert json.loads(again[1]) == {"service": "s", "parent": "70" * 16}, "the next broker knows them"


def test_job_with_a_tenant_is_refused_if_the_broker_does_not_know_tenants() -> None:
    """R185: without it, the job would take the turns of others. Jobs before and after it are sent."""
    options = SubmitOptions("echo", tenant="acme")
    for understood, ended in (((), [("b", Outcome.REFUSED)]), (("parent", "tenant"), [])):
        world = World()
        world.connect(extras=list(understood))
        for number, (job_ref, each) in enumerate((("a", ECHO), ("b", options), ("c", ECHO)), 1):
            world.side.submit(job_ref, each, job_ref.encode(), number.to_bytes(16, "big"), world.now, None)
        world.side.flush(world.now)
        sent = world.port.take()
        payloads = [bytes(frame) for frames in sent for frame in frames[3 if frames[0][1] & 16 else 2 :]]
        assert payloads == ([b"a", b"c"] if ended else [b"a", b"b", b"c"])
        assert [(each[0], each[1]) for each in world.port.answers] == ended
        if not ended:
            assert json.loads(sent[1][2]) == {"tenant": "acme"}


def test_tenant_and_parent_go_in_the_same_extras() -> None:
    world = World()
    world.connect(extras=["parent", "tenant"])
    world.side.submit("a", SubmitOptions("echo", tenant="acme"), b"x", bytes(16), world.now, PARENT)
    world.side.flush(world.now)
    (frames,) = world.port.take()
    assert json.loads(frames[2]) == {"parent": "70" * 16, "tenant": "acme"}
