"""`dragoman tail`: print events of jobs and workers as they happen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import click

from dragoman.cli.broker_http import BrokerHttp, ServerEvent, http_option
from dragoman.cli.client import json_option
from dragoman.cli.event_lines import EventLines
from dragoman.cli.exit_codes import USAGE, ending_errors, fail
from dragoman.cli.lasting_stream import lasting_events
from dragoman.cli.tables import ascii_json
from dragoman.cli.terminal import coloured, time_text
from dragoman.http.event_filters import EventState

MOST = 50  # events a second, without --all
STATES = [each for each in get_args(EventState) if each != "undone"]


@click.command(
    epilog="""\b
Examples:
  dragoman tail
  dragoman tail --service ocr --failed
  dragoman tail --ladder 0197f3a2c4d87b12a9e05c61f38d2b74 --save story.svg
  dragoman tail --json | jq -r 'select(.outcome == "lost") | .id'
""",
)
@click.option("--service", metavar="NAME", help="Only events of this service.")
@click.option("--worker", metavar="NAME", help="Only events of this worker: its name, or its id.")
@click.option("--state", type=click.Choice(STATES), help="Only events of this state or outcome.")
@click.option("--failed", is_flag=True, help="Only ends of jobs that are not done.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Print every event, not only the first {MOST} of each second. Other brokers of a cluster send at most 500.",
)
@click.option(
    "--ladder",
    "target",
    metavar="JOB|WORKER",
    help="Print the messages of this job or worker as they come, as `dragoman ladder --follow` does.",
)
@click.option("--save", metavar="FILE", help="With --ladder: keep the picture in a file: .svg, .mmd, .txt or .json.")
@http_option
@json_option
def tail(
    service: str | None,
    worker: str | None,
    state: str | None,
    failed: bool,
    everything: bool,
    target: str | None,
    save: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Print events of jobs and workers as they happen, one a line, until Ctrl-C.

    A line has the time, the first 12 digits of the job's id, the service, the new state or the outcome, and the worker.
    In a cluster, the events are those of all brokers, and the second column has the broker that owns the job. If more
    events happen than can be read, some are left out, and a line has their number.
    """
    if target is not None:
        others = (service, worker, state, failed or None, everything or None, as_json or None)
        if any(each is not None for each in others):
            fail("--ladder shows one conversation: only --save and --connect go with it", USAGE)
        _follow(target, save, url)
        return
    if save is not None:
        fail("--save needs --ladder JOB or --ladder WORKER", USAGE)
    if failed and state is not None:
        fail("--failed and --state exclude each other; leave one out", USAGE)
    printer = Printer(as_json, everything=everything)
    query: dict[str, object] = {
        "service": service,
        "worker": worker,
        "state": "undone" if failed else state,
        "max_rate": None if everything else MOST,
    }
    with ending_errors(url):
        broker = BrokerHttp(url)
        for event in lasting_events(broker, "/v1/events", **query):
            printer.receive(event, time.monotonic())


def _follow(target: str, save: str | None, url: str | None) -> None:
    """Print the messages of a job or a worker as they come."""
    from dragoman.cli.client import connected
    from dragoman.cli.ladder import follow_ladder, form_of

    form_of(save)
    with connected(url) as client:
        for line in follow_ladder(client, target, save):
            click.echo(line)


class Printer:
    """Prints the events of a stream."""

    def __init__(self, as_json: bool, write: Callable[[str], object] = click.echo, *, everything: bool = False) -> None:
        """`everything`: all events were requested."""
        self._as_json = as_json
        self._advice = "" if everything else " (--all to see them)"
        self._write = write
        self._lines = EventLines(coloured)

    def receive(self, event: ServerEvent, now: float) -> None:
        """Print an event. `now`: a monotonic time."""
        if event.name in ("open", "comment", "overflow"):
            return
        fields: Any = json.loads(event.data)
        moment = datetime.now(UTC)
        if self._as_json:
            self._write(ascii_json({"event": event.name, "at": time_text(moment), **fields}))
        elif event.name == "skipped":
            self._write(f"… {fields['count']:,} events left out in the last second{self._advice}")
        else:
            clock = moment.astimezone().strftime("%H:%M:%S.%f")[:-3]
            self._write(self._lines.line(event.name, fields, now, clock))
