"""Requests over NATS: numbers, replies, statuses and time-outs, with the time as an argument."""

from __future__ import annotations

from dragoman.carriers.nats_headers import write_headers
from dragoman.cluster.requests import Answer, AnswerKind, Requests
from dragoman.core.infinity import inf


class Asker:
    """Collects answers; `more` of them are followed by another."""

    def __init__(self, more: int = 0) -> None:
        self.answers: list[Answer] = []
        self._more = more

    def __call__(self, answer: Answer, now: float) -> bool:
        self.answers.append(answer)
        self._more -= 1
        return self._more >= 0

    @property
    def kinds(self) -> list[AnswerKind]:
        return [each.kind for each in self.answers]


def begin(requests: Requests, asker: Asker, timeout: float = 5.0, now: float = 0.0) -> bytes:
    reply = requests.begin(asker, timeout, now)
    assert reply is not None
    return reply


def test_replies_find_their_requests_by_number() -> None:
    requests, first, second = Requests(b"in.box"), Asker(), Asker()
    assert requests.filter == b"in.box.*"
    assert [begin(requests, first), begin(requests, second)] == [b"in.box.1", b"in.box.2"]
    requests.receive(b"in.box.2", b"", b"two", 1.0)
    requests.receive(b"in.box.1", write_headers([(b"A", b"b")]), bytearray(b"one"), 1.0)
    assert (first.kinds, first.answers[0].payload) == ([AnswerKind.REPLY], b"one")
    assert first.answers[0].headers.get(b"A") == b"b"
    assert (second.kinds, second.answers[0].payload) == ([AnswerKind.REPLY], b"two")
    assert (len(requests), requests.tick(100.0)) == (0, inf)


def test_a_second_reply_is_a_stray_and_numbers_are_never_used_twice() -> None:
    requests, asker = Requests(b"i"), Asker()
    reply = begin(requests, asker)
    for _ in range(2):
        requests.receive(reply, b"", b"x", 1.0)
    assert (asker.kinds, requests.strays) == ([AnswerKind.REPLY], 1)
    assert begin(requests, asker) == b"i.2"
    for subject in (b"i.1", b"i.99", b"i.", b"i", b"", b"i.2.3", b"other.subject"):
        requests.receive(subject, b"", b"x", 1.0)
    assert (asker.kinds, requests.strays) == ([AnswerKind.REPLY], 8)


def test_a_status_without_a_payload_ends_a_request() -> None:
    requests, asker = Requests(b"i"), Asker()
    requests.receive(begin(requests, asker), write_headers([], 503), b"", 0.0)
    requests.receive(begin(requests, asker), write_headers([], 503), b"an answer of its own", 0.0)
    requests.receive(begin(requests, asker), write_headers([], 404, b"Message Not Found"), b"", 0.0)
    assert asker.kinds == [AnswerKind.NO_RESPONDERS, AnswerKind.REPLY, AnswerKind.REPLY]
    assert asker.answers[2].headers.status == 404


def test_requests_time_out_in_the_order_of_their_deadlines() -> None:
    requests, slow, quick = Requests(b"i"), Asker(), Asker()
    begin(requests, slow, 5.0, now=10.0)
    begin(requests, quick, 1.0, now=10.0)
    assert requests.tick(10.5) == 11.0
    assert requests.tick(11.0) == 15.0
    assert (slow.kinds, quick.kinds) == ([], [AnswerKind.TIMED_OUT])
    assert requests.tick(15.0) == inf
    assert slow.kinds == [AnswerKind.TIMED_OUT]


def test_several_replies_begin_the_time_out_anew() -> None:
    requests, asker = Requests(b"i"), Asker(more=2)
    reply = begin(requests, asker, 1.0, now=0.0)
    requests.receive(reply, b"", b"a", 0.9)
    assert requests.tick(1.0) == 1.9
    requests.receive(reply, b"", b"b", 1.8)
    assert requests.tick(1.9) == 2.8
    requests.receive(reply, b"", b"c", 2.7)
    assert requests.tick(5.0) == inf
    requests.receive(reply, b"", b"d", 5.0)
    assert [each.payload for each in asker.answers] == [b"a", b"b", b"c"]
    waiting = Asker(more=9)
    requests.receive(begin(requests, waiting, 1.0, now=6.0), b"", b"a", 6.5)
    requests.tick(7.4)
    requests.tick(7.5)
    assert waiting.kinds == [AnswerKind.REPLY, AnswerKind.TIMED_OUT]


def test_a_reply_with_headers_that_cannot_be_read_is_counted_and_dropped() -> None:
    requests, asker = Requests(b"i"), Asker()
    requests.receive(begin(requests, asker), b"garbage", b"x", 0.0)
    assert (asker.kinds, requests.bad_replies, len(requests)) == ([], 1, 1)


def test_a_reply_over_our_limits_ends_its_request() -> None:
    requests, asker = Requests(b"i"), Asker()
    requests.refuse(begin(requests, asker), 0.0)
    requests.refuse(b"i.77", 0.0)
    assert asker.kinds == [AnswerKind.TOO_LARGE]


def test_all_requests_end_with_the_connection_in_their_order() -> None:
    requests = Requests(b"i")
    order: list[int] = []

    def asker(number: int) -> None:
        def done(answer: Answer, now: float) -> bool:
            order.append(number)
            assert answer.kind is AnswerKind.DISCONNECTED
            if number == 1:
                requests.cancel(b"i.3")
                requests.begin(Asker(), 1.0, now)  # begins a new one, which is not ended
            return True

        requests.begin(done, 1.0, 0.0)

    for number in (1, 2, 3, 4):
        asker(number)
    requests.end_all(AnswerKind.DISCONNECTED, 0.5)
    assert (order, len(requests)) == ([1, 2, 4], 1)


def test_too_many_requests_are_not_begun() -> None:
    requests = Requests(b"i", most=2)
    assert [requests.begin(Asker(), 1.0, 0.0) for _ in range(3)] == [b"i.1", b"i.2", None]
    requests.cancel(b"i.1")
    assert requests.begin(Asker(), 1.0, 0.0) == b"i.3"


def test_a_cancelled_request_is_not_called() -> None:
    requests, asker = Requests(b"i"), Asker()
    reply = begin(requests, asker, 1.0)
    requests.cancel(reply)
    requests.cancel(reply)
    requests.receive(reply, b"", b"x", 0.1)
    assert (asker.kinds, requests.tick(9.0), requests.strays) == ([], inf, 1)


def test_known_and_unknown_ends() -> None:
    unknown = {each for each in AnswerKind if each.is_unknown}
    assert unknown == {AnswerKind.TIMED_OUT, AnswerKind.DISCONNECTED, AnswerKind.TOO_LARGE}
