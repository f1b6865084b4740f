"""Adding an operation: one row, one function. This toy operation shows that everything else follows from the row."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import click
import pytest
from msgspec import Meta

from command_runner import command_runner
from dragoman import AsyncClient, Client, LocalBroker
from dragoman.cli.operation_commands import commands_from
from dragoman.operations.handlers import FUNCTIONS, OperationHandlers
from dragoman.operations.operation import Operation
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import OperationRequest, View
from dragoman.operations.table import OPERATIONS

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import client_methods
import operations_page


class EchoNoteRequest(OperationRequest):
    title: Annotated[str, Meta(min_length=1, max_length=20, description="Title of the note.")]
    times: Annotated[int, Meta(ge=1, le=5, description="Number of repetitions.")] = 1


class EchoNoteView(View):
    title: str
    text: str


ECHO_NOTE = Operation(
    name="echo note",
    request=EchoNoteRequest,
    view=EchoNoteView,
    summary="Repeat the title of a note.",
    right="see",
    target="service",
    method="POST",
    path="/v1/notes/{title}/echo",
    answered_by="this broker",
)


def echo_note(
    operations: OperationHandlers, form: EchoNoteRequest, payload: bytes, responder: Responder, now: float
) -> None:
    responder.answer(EchoNoteView(title=form.title, text=" ".join([form.title] * form.times)))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    monkeypatch.setitem(OPERATIONS, ECHO_NOTE.name, ECHO_NOTE)
    monkeypatch.setitem(FUNCTIONS, ECHO_NOTE.name, echo_note)
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        yield broker


def fetch(broker: LocalBroker, method: str, path: str, body: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    with urlopen(Request(broker.urls["http"] + path, body, headers, method=method)) as answer:
        return json.load(answer)


def run(url: str, *words: str) -> tuple[int, str]:
    (command,) = commands_from([ECHO_NOTE])
    group = click.Group(commands=[command])
    ran = command_runner().invoke(group, ["echo-note", "--connect", url, *words])
    return ran.exit_code, ran.stdout + ran.stderr


def test_a_toy_operation_is_performed_over_http(broker: LocalBroker) -> None:
    assert fetch(broker, "POST", "/v1/notes/a%2Fb/echo", b'{"times": 2}') == {"title": "a/b", "text": "a/b a/b"}
    assert fetch(broker, "POST", "/v1/notes/tea/echo") == {"title": "tea", "text": "tea"}
    with pytest.raises(HTTPError, match="422") as refused:
        fetch(broker, "POST", "/v1/notes/tea/echo", b'{"times": 6}')
    assert json.load(refused.value)["detail"] == "in the body: times: must be at most 5"


def test_a_toy_operation_is_performed_by_both_native_clients(broker: LocalBroker) -> None:
    request = EchoNoteRequest(title="tea", times=3)
    with Client(broker.urls["native"]) as client:
        view = client.operation(ECHO_NOTE, request)
        with pytest.raises(ValueError, match="echo note: times: must be at most 5"):
            client.operation(ECHO_NOTE, EchoNoteRequest(title="tea", times=6))
    assert view.text == "tea tea tea"

    async def ask() -> EchoNoteView:
        async with AsyncClient(broker.urls["native"]) as client:
            return await client.operation(ECHO_NOTE, request)

    assert asyncio.run(ask()) == view


@pytest.mark.parametrize("dialect", ["http", "native"])
def test_a_toy_operation_is_a_command(broker: LocalBroker, dialect: str) -> None:
    url = broker.urls[dialect]
    assert run(url, "tea", "--times", "2") == (0, "title  tea\ntext   tea tea\n")
    assert run(url, "tea", "--json") == (0, '{"title":"tea","text":"tea"}\n')
    code, told = run(url, "tea", "--times", "6")
    assert (code, "'--times': '6': must be at most 5" in told) == (2, True)
    code, told = run(url, "--help")
    assert "Repeat the title of a note." in told
    assert "Number of repetitions.  [1 to 5; default: 1]" in told


def test_a_toy_operation_is_in_the_openapi_document(broker: LocalBroker) -> None:
    told = fetch(broker, "GET", "/openapi.json")["paths"]["/v1/notes/{title}/echo"]["post"]
    assert (told["operationId"], told["summary"]) == ("echoNote", "Repeat the title of a note")
    assert told["parameters"][0]["schema"]["maxLength"] == 20
    assert {"200", "400", "403", "413", "415", "422"} == set(told["responses"])


def test_a_toy_operation_is_on_the_reference_page() -> None:
    page = operations_page.page([ECHO_NOTE])
    assert "| [echo note](#echo-note) | `POST /v1/notes/{title}/echo` | `echo_note(title, …)` | `echo-note` |" in page
    assert "| `times` | integer | 1 to 5 | 1 | Number of repetitions. |" in page


def test_a_toy_operation_becomes_a_method_of_both_clients() -> None:
    for client in client_methods.CLIENTS:
        written = client_methods.source(client, [ECHO_NOTE])
        compile(written, client.file, "exec")
        assert f"{client.async_}def echo_note(self, title: str, times: int = 1) -> EchoNoteView:" in written
        assert "- `times`: Number of repetitions. [1 to 5; default: 1]" in written
