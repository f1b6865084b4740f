"""Numbers of requests, by which a broker knows a repeated one (R235)."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest

from dragoman.core.remembered import WINDOW, read_request_id
from dragoman.operations.schemas import EnqueueRequest, JobRef, PurgeRequest
from dragoman.operations.table import JOB, PURGE
from dragoman.sdk import ids, operation_steps
from dragoman.sdk.errors import BrokerUnavailable, OperationError
from dragoman.sdk.ids import RequestNumbers, new_request
from dragoman.sdk.operation import OperationCall


def parts(text: str) -> tuple[int, int]:
    """Return number and oldest."""
    _, number, oldest, *_ = text.split("/")
    return int(number), int(oldest)


def test_copies_of_a_request_have_one_number_and_say_how_old_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(ids, "_clock", lambda: now)
    request = RequestNumbers().next()
    first = request.text()
    now += 2.5
    again = request.text()
    assert re.fullmatch("[0-9a-f]{32}/1/1/[0-9]{13}", first)
    assert again == f"{first}/2.500"
    assert read_request_id(first).job_id("p") == read_request_id(again).job_id("p")
    assert read_request_id(again).age == 2.5


def test_the_oldest_number_is_that_of_the_first_request_without_an_answer() -> None:
    numbers = RequestNumbers()
    one, two, three = (numbers.next() for _ in range(3))
    assert parts(three.text()) == (3, 1)
    two.end()
    assert parts(three.text()) == (3, 1)
    one.end()
    assert parts(three.text()) == (3, 3)
    three.end()
    assert parts(numbers.next().text()) == (4, 4)


def test_a_request_without_an_answer_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of one client are in a window; those beyond it are of another client."""
    monkeypatch.setattr(ids, "_numbers", RequestNumbers())
    stuck = new_request()
    client = stuck.text().split("/")[0]
    texts = []
    for _ in range(WINDOW + 10):
        request = new_request()
        texts.append(request.text())
        request.end()
    for text in texts:
        read_request_id(text)
    assert {text.split("/")[0] for text in texts} > {client}
    assert stuck.text().split("/")[:3] == [client, "1", "1"]


def test_no_number_is_drawn_twice_by_many_threads() -> None:
    numbers, drawn = RequestNumbers(), list[str]()
    threads = [
        threading.Thread(target=lambda: drawn.extend(numbers.next().text() for _ in range(500))) for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({parts(text)[0] for text in drawn}) == 2_000


FORKING = """
import os
from dragoman.sdk import ids
ids.new_request().text()
reading, writing = os.pipe()
child = os.fork()
text = ids.new_request().text()
if not child:
    os.write(writing, text.encode())
    os._exit(0)
os.waitpid(child, 0)
print(os.read(reading, 200).decode().split("/")[:2], text.split("/")[:2])
"""


def test_a_forked_child_is_another_client() -> None:
    """It would have numbered its requests as its parent does: the broker would have taken one for the other."""
    said = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True).stdout
    (child, one), (parent, two) = re.findall(r"\['(\w+)', '(\d+)'\]", said)
    assert child != parent
    assert (one, two) == ("1", "2")


def test_operations_that_are_carried_out_once_are_numbered_until_they_have_an_answer() -> None:
    begun = operation_steps.perform(PURGE, PurgeRequest(name="s"))
    sent = next(begun)
    assert isinstance(sent, OperationCall)
    assert sent.number is not None
    number = sent.number
    assert number._number in number._numbers._open
    assert begun.throw(OperationError("loading", "in a moment")) == operation_steps.LOADING_DELAY
    assert next(begun) is sent, "the same request again"
    with pytest.raises(BrokerUnavailable):
        begun.throw(BrokerUnavailable("gone"))
    assert number._number not in number._numbers._open
    unnumbered = next(operation_steps.perform(JOB, JobRef(id="0" * 32)))
    assert isinstance(unnumbered, OperationCall)
    assert unnumbered.number is None


def test_a_request_that_nobody_waits_for_any_more_has_ended() -> None:
    begun = operation_steps.enqueue(EnqueueRequest(service="s"), b"")
    sent = next(begun)
    assert isinstance(sent, OperationCall)
    assert sent.number is not None
    begun.close()
    assert sent.number._number not in sent.number._numbers._open
