"""Event streams of commands that are opened again when they are lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from command_runner import command_runner
from dragoman.cli import lasting_stream
from dragoman.cli.broker_http import ServerEvent
from dragoman.cli.lasting_stream import lasting_events
from dragoman.cli.top import top
from dragoman.sdk.errors import BrokerUnavailable, DragomanError, NotAllowed

OPEN, SNAPSHOT = ServerEvent("open", ""), ServerEvent("snapshot", '{"ready": true}')


class ScriptedHttp:
    """A broker whose streams are given: events, then an error or the end."""

    def __init__(self, *streams: list[ServerEvent | Exception]) -> None:
        self._streams = list(streams)

    def events(self, path: str, **query: object) -> Iterator[ServerEvent]:
        for each in self._streams.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting_stream.time, "sleep", lambda seconds: None)


def test_a_stream_that_is_lost_or_closed_is_opened_again_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    lost, gone = BrokerUnavailable("the connection is lost"), BrokerUnavailable("no broker answers")
    broker: Any = ScriptedHttp([OPEN, lost], [gone], [OPEN, SNAPSHOT], [OPEN])
    assert list(islice(lasting_events(broker, "/v1/live"), 4)) == [OPEN, OPEN, SNAPSHOT, OPEN]
    said = capsys.readouterr().err
    assert said.count("the connection is lost; trying again until Ctrl-C") == 1
    assert said.count("the broker has closed the stream; opening it again") == 1
    assert "no broker answers" not in said, "one warning is enough"


@pytest.mark.parametrize("error", [BrokerUnavailable("no broker answers"), DragomanError("invalid")])
def test_a_stream_that_cannot_be_opened_at_first_is_an_error(error: DragomanError) -> None:
    broker: Any = ScriptedHttp([error])
    with pytest.raises(type(error)):
        next(lasting_events(broker, "/v1/live"))


def test_a_stream_that_is_not_allowed_any_more_is_an_error() -> None:
    broker: Any = ScriptedHttp([OPEN], [NotAllowed("the token is not valid")])
    with pytest.raises(NotAllowed):
        list(lasting_events(broker, "/v1/live"))


def test_top_with_json_survives_the_end_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with exit code 0 and without a word when the broker was killed."""
    broker = ScriptedHttp([OPEN, SNAPSHOT], [OPEN, SNAPSHOT, NotAllowed("enough")])
    monkeypatch.setattr("dragoman.cli.top.BrokerHttp", lambda url: broker)
    result = command_runner().invoke(top, ["--json"])
    assert result.stdout.count('"ready"') == 2
    assert "the broker has closed the stream; opening it again" in result.stderr
    assert result.exit_code != 0
