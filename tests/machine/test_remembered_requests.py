"""Remembered requests against a model that forgets nothing: none is accepted twice, whatever is dropped (R235)."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dragoman.core.commits import PendingCommits
from dragoman.core.policy import Policy
from dragoman.core.remembered import ClientRow, RememberedRequests, RequestId, read_request_id
from dragoman.core.store_entries import StoreRow, StoreValue

CLIENTS = ["1" * 32, "2" * 32, "3" * 32, "4" * 32]
PRINCIPALS = ["ann", "bob"]
POLICY = Policy(max_remembered_requests=3, request_retention=60.0)


class SentRequest:
    """A request of a client, and how often the broker has carried it out."""

    def __init__(self, client: ModelClient, number: int, now: float) -> None:
        self.client = client
        self.number = number
        self.first = now
        self.copies = 0
        self.done = 0
        self.is_open = True  # the client waits for its answer

    def copy(self, now: float) -> RequestId:
        text = f"{self.client.name}/{self.number}/{self.client.oldest}/0"
        self.copies += 1
        return read_request_id(text if self.copies == 1 else f"{text}/{max(0.001, now - self.first):.3f}")


class ModelClient:
    def __init__(self, principal: str, name: str) -> None:
        self.principal = principal
        self.name = name
        self.requests: list[SentRequest] = []

    @property
    def oldest(self) -> int:
        open = [each.number for each in self.requests if each.is_open]
        return min(open, default=len(self.requests) or 1)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.clients = [ModelClient(principal, name) for principal in PRINCIPALS for name in CLIENTS]
        self.late: list[tuple[SentRequest, RequestId]] = []  # copies that are still on their way
        self.notes: dict[str, str] = {}
        self.accepted: list[tuple[SentRequest, ClientRow]] = []  # not committed
        self.start()

    def start(self) -> None:
        self.effects: list[Any] = []
        self.remembered = RememberedRequests(POLICY, PendingCommits(self.effects))
        self.remembered.restore(self.notes, self.now)

    def client_and_request(self, data: st.DataObject) -> SentRequest | None:
        open = [each for client in self.clients for each in client.requests if each.is_open]
        return data.draw(st.sampled_from(open)) if open else None

    def arrive(self, sent: SentRequest, copy: RequestId) -> None:
        principal = sent.client.principal
        try:
            found = self.remembered.find(copy, principal, 0, self.now)
        except ValueError:
            sent.is_open = False  # the client raises an error
            return
        if found is None:
            sent.done += 1
            self.accepted.append((sent, self.remembered.accept(copy, principal, 0, self.now)))
        else:
            assert sent.done == 1, "it is said to be carried out"

    @rule(data=st.data(), arrives=st.booleans())
    def begin(self, data: st.DataObject, arrives: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        sent = SentRequest(client, len(client.requests) + 1, self.now)
        client.requests.append(sent)
        copy = sent.copy(self.now)
        if arrives:
            self.arrive(sent, copy)
        else:
            self.late.append((sent, copy))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        sent = self.client_and_request(data)
        if sent is not None:
            self.arrive(sent, sent.copy(self.now))

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """The client has its answer, or gives up."""
        sent = self.client_and_request(data)
        if sent is not None:
            sent.is_open = False

    @rule(seconds=st.sampled_from([0.001, 1.0, 30.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.remembered.sweep(self.now)

    @rule()
    def commit(self) -> None:
        self.accepted.clear()
        for effect in self.effects:
            entry = effect.entry() if isinstance(effect, StoreRow) else effect
            assert isinstance(entry, StoreValue)
            if entry.value is None:
                self.notes.pop(entry.key, None)
            else:
                self.notes[entry.key] = entry.value
        self.effects.clear()

    @rule()
    def refuse(self) -> None:
        """The disk is full: what was accepted since the last commit is undone, with its job."""
        for sent, row in self.accepted:
            self.remembered.undo(row, sent.number)
            sent.done -= 1
        self.accepted.clear()

    @rule()
    def kill(self) -> None:
        """The broker dies: what is not committed was not carried out."""
        for sent, _ in self.accepted:
            sent.done -= 1
        self.accepted.clear()
        self.late.clear()  # its connections are gone
        self.start()

    @invariant()
    def nothing_is_carried_out_twice(self) -> None:
        for client in self.clients:
            for sent in client.requests:
                assert sent.done in (0, 1), (sent.client.name, sent.number)

    @invariant()
    def rows_are_bounded(self) -> None:
        assert len(self.remembered) <= POLICY.max_remembered_requests


TestRememberedRequests = Machine.TestCase
TestRememberedRequests.settings = settings(
    max_examples=100, stateful_step_count=40, derandomize=True, deadline=None, phases=(Phase.generate,)
)
