"""`dragoman top`: show the broker's services, workers and jobs in the terminal."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from dragoman.cli.broker_http import BrokerHttp, http_option
from dragoman.cli.client import json_option
from dragoman.cli.event_lines import duration
from dragoman.cli.exit_codes import ending_errors
from dragoman.cli.lasting_stream import lasting_events
from dragoman.cli.tables import ascii_json
from dragoman.cli.terminal import COLOURS, has_colours, is_terminal, terminal_width
from dragoman.cli.top_format import Paint, plain_paint
from dragoman.cli.top_model import Model, Row
from dragoman.cli.top_screen import frame
from dragoman.sdk.errors import DragomanError

WIDTH = 120  # columns of a frame that is not for a terminal
REFRESH = 2.0  # seconds between two requests for workers; the list of jobs stands still
LONGEST_DELAY = 15.0  # seconds between two attempts to open the stream


@click.command(
    epilog="""\b
Examples:
  dragoman top
  dragoman top --connect http://127.0.0.1:7480
  dragoman top --json | jq .totals.waiting
""",
)
@http_option
@json_option
def top(url: str | None, as_json: bool) -> None:
    """Show services, workers and jobs, what needs attention, and what has changed. Press ? for the keys.

    In a cluster, all brokers are shown, whichever is asked.

    If standard output is not a terminal, print one frame. With --json, print a snapshot a second, one a
    line. A stream that is lost is opened again.
    """
    with ending_errors(url):
        broker = BrokerHttp(url)
        if as_json:
            for event in lasting_events(broker, "/v1/live", page="overview"):
                if event.name == "snapshot":
                    click.echo(ascii_json(json.loads(event.data)))
        elif is_terminal() and is_terminal(sys.stdin):
            _Top(broker).run()
        else:
            _print_frame(broker)


def _print_frame(broker: BrokerHttp) -> None:
    model = Model()
    _introduce(model, broker)
    overview = broker.get("/v1/overview", range="5m")
    model.take_snapshot(overview, time.monotonic())
    model.take_series(overview["series"]["services"])
    width = terminal_width()
    for line in frame(model, time.monotonic(), datetime.now(UTC), WIDTH if width > 1000 else int(width)):
        click.echo(line)


def _introduce(model: Model, broker: BrokerHttp) -> None:
    """Fetch what does not change while the broker runs."""
    model.version = broker.get("/v1/health")["version"]
    with contextlib.suppress(DragomanError):  # the operation needs the right to see everything
        model.started = datetime.fromisoformat(broker.get("/v1/broker")["started"])


class _Stream(threading.Thread):
    """Reads snapshots, and opens the stream again when it is lost. Only the latest snapshot is kept."""

    def __init__(self, broker: BrokerHttp, wake: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._wake = wake
        self.latest: Row | None = None
        self.problem = ""

    def run(self) -> None:
        delay = 1.0
        while True:
            try:
                for event in self._broker.events("/v1/live", page="overview"):
                    if event.name == "snapshot":
                        self.latest = json.loads(event.data)
                        self.problem = ""
                        delay = 1.0
                        self._wake()
            except DragomanError as error:
                self.problem = str(error)
                self._wake()
            time.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)


class _Top:
    """The program: frames out, keys in, requests to the broker."""

    def __init__(self, broker: BrokerHttp) -> None:
        self._broker = broker
        self._model = Model()
        self._fetched = 0.0
        _introduce(self._model, broker)

    def run(self) -> None:
        """Run until `q` is pressed."""
        from dragoman.cli.full_screen import FullScreen

        paint: Paint = _painted if has_colours() else plain_paint
        with FullScreen() as screen:
            stream = _Stream(self._broker, screen.wake)
            stream.start()
            while True:
                self._take(stream)
                now = time.monotonic()
                if self._model.page == "workers" and now - self._fetched >= REFRESH:
                    self._fetch()
                columns, lines = screen.size
                screen.draw(frame(self._model, now, datetime.now().astimezone(), columns, lines, paint))
                for key in screen.keys(1.0):
                    if self._handle(self._model.press(key)):
                        return

    def _take(self, stream: _Stream) -> None:
        model, latest = self._model, stream.latest
        model.problem = stream.problem
        if latest is not None and latest is not model.snapshot:
            if model.take_snapshot(latest, time.monotonic()):
                self._try(self._restart_history)

    def _restart_history(self) -> None:
        _introduce(self._model, self._broker)
        self._model.take_series(self._broker.get("/v1/overview", range="5m")["series"]["services"])

    def _handle(self, wish: str) -> bool:
        """Do what a key has asked for. True at the end."""
        if wish == "fetch":
            self._fetch()
        elif wish == "open":
            self._try(self._open)
        elif wish == "act":
            self._act()
        return wish == "quit"

    def _fetch(self) -> None:
        model = self._model
        self._fetched = time.monotonic()
        text = model.text or None
        if model.page == "workers":
            self._try(lambda: self._rows("workers", sort=model.sort, text=text, service=model.service))
        elif model.page == "jobs":
            self._try(lambda: self._rows("jobs", text=text, service=model.service))

    def _rows(self, page: str, **query: object) -> None:
        self._model.rows = self._broker.get(f"/v1/{page}", limit=50, **query)[page]

    def _open(self) -> None:
        chosen = self._model.chosen
        if chosen is None:
            return
        if self._model.page == "jobs":
            self._model.detail = self._job_lines(chosen["id"])
        else:
            self._model.detail = worker_lines(self._broker.get(f"/v1/workers/{chosen['id']}"))

    def _job_lines(self, id: str) -> list[str]:
        lines = [f"Job {id}", "", self._broker.get(f"/v1/jobs/{id}/why")["why"], ""]
        lines += attempt_lines(self._broker.get(f"/v1/jobs/{id}"))
        with contextlib.suppress(DragomanError):  # the conversations of most jobs are not recorded
            lines += ["", *self._broker.text(f"/v1/jobs/{id}/ladder", format="text").splitlines()]
        return lines

    def _act(self) -> None:
        act, self._model.act = self._model.act, None
        if act is not None and self._try(lambda: self._broker.post(act.path, **act.fields)):
            self._model.message = act.done
            self._fetch()

    def _try(self, request: Callable[[], Any]) -> bool:
        """Send a request. An error is shown in the last line."""
        try:
            request()
        except DragomanError as error:
            self._model.message = str(error)
            return False
        return True


def attempt_lines(job: Row) -> list[str]:
    """Lines about the attempts of a job."""
    lines = []
    for each in job["attempts"]:
        took = ""
        if each["started"] and each["ended"]:
            seconds = datetime.fromisoformat(each["ended"]) - datetime.fromisoformat(each["started"])
            took = f" after {duration(seconds.total_seconds())}"
        reason = f": {each['reason']}" if each["reason"] else ""
        lines.append(f"Attempt {each['number']}: {each['outcome'] or 'running'}{took} at {each['worker']}{reason}")
    return lines


def worker_lines(worker: Row) -> list[str]:
    """Lines about a worker."""
    lease = f"{worker['lease']:g} s" if worker["lease"] is not None else "none"
    return [
        f"Worker {worker['id']} ({worker['name']})",
        "",
        f"{worker['state']}, dialect {worker['dialect']}, services {', '.join(worker['services'])}",
        f"holds {len(worker['running'])} of {worker['capacity']} jobs",
        f"silent for {duration(worker['silent'])}, lease {lease}",
        *(f"  job {each}" for each in worker["running"]),
    ]


def _painted(style: str, text: str) -> str:
    """The text in the style of the terminal: the colour of a state, bold, or reversed."""
    if style == "selected":
        return click.style(text, reverse=True)
    if style == "bold":
        return click.style(text, bold=True)
    return click.style(text, fg=COLOURS.get(style))
