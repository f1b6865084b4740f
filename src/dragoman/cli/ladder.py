"""`dragoman ladder`: show the messages of a job or a worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click
import msgspec

from dragoman.cli.client import connect_option, connected, json_option, naming_lists
from dragoman.cli.exit_codes import DISK, USAGE, fail
from dragoman.cli.tables import print_json
from dragoman.cli.worker_ids import worker_id
from dragoman.ladder import as_mermaid, as_text, break_before, heading, text_row
from dragoman.ladder_picture import as_svg
from dragoman.operations.ladder_schemas import ConversationView, LadderRequest, WorkerLadderRequest
from dragoman.operations.table import LADDER, WORKER_LADDER

if TYPE_CHECKING:
    from dragoman.sdk.client import Client

POLL = 0.5  # seconds between two requests of `--follow`

# Forms of a saved ladder, by the end of the file's name.
FORMS: dict[str, Callable[[ConversationView], str]] = {
    ".svg": as_svg,
    ".mmd": as_mermaid,
    ".txt": as_text,
    ".json": lambda view: msgspec.json.encode(view).decode() + "\n",
}


@click.command(
    epilog="""\b
Examples:
  dragoman ladder 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman ladder 0197f3a2c4d87b12a9e05c61f38d2b74 --save story.svg
  dragoman ladder 4711 --follow
""",
)
@click.argument("target", metavar="JOB|WORKER")
@connect_option
@click.option("--worker", "is_worker", is_flag=True, help="Accept only the number of a worker.")
@click.option("--follow", is_flag=True, help="Print messages as they come, until the job ends. Ctrl-C ends it.")
@click.option("--save", metavar="FILE", help="Write to a file; .svg, .mmd (Mermaid), .txt or .json selects the format.")
@json_option
def ladder(target: str, url: str | None, is_worker: bool, follow: bool, save: str | None, as_json: bool) -> None:
    """Show the messages of JOB or WORKER, each in its own dialect.

    The broker records every job while fewer than 50 arrive in a second, and some of more; payloads are not recorded. Of
    other jobs that did not end done, it shows what follows from their history. Messages of a worker are recorded from
    the first request on.
    """
    form_of(save)
    if is_worker and not target.isdigit():
        fail(f"--worker {target}: a worker's number is digits only, as `dragoman workers` lists it", USAGE)
    with connected(url) as client:
        if follow:
            for line in follow_ladder(client, target, save):
                click.echo(line)
            return
        view = ladder_of(client, target)
    save_ladder(view, save)
    if as_json:
        print_json(view)
    elif save is None:
        click.echo(as_text(view), nl=False)


def ladder_of(client: Client[bytes], target: str) -> ConversationView:
    """Return the ladder of a job or a worker, as users name it. An unknown one ends the command."""
    if re.fullmatch("[0-9a-f]{32}", target):
        with naming_lists(LADDER):
            return client.operation(LADDER, LadderRequest(id=target))
    if not (target.isascii() and target.isdigit()):
        fail(f"{target!r} is neither a job nor a worker; a job's id has 32 hex digits, a worker's only digits", USAGE)
    with naming_lists(WORKER_LADDER):
        return client.operation(WORKER_LADDER, WorkerLadderRequest(id=worker_id(client, target)))


def follow_ladder(
    client: Client[bytes], target: str, save: str | None = None, waits: Callable[[], object] = lambda: None
) -> Iterator[str]:
    """Yield the lines of a ladder as its messages come, until the job ends. With `save`, the file is kept current.
    `waits` is called when all messages so far were yielded."""
    shown, more = 0, 0
    while True:
        view = ladder_of(client, target)
        save_ladder(view, save)
        if not shown and view.messages:
            yield heading(view)
        if view.worker is not None:  # the oldest messages of a worker are dropped
            shown, more = max(shown - (view.more - more), 0), view.more
        for index in range(shown, len(view.messages)):
            yield from break_before(view.messages, index)
            yield text_row(view.messages[index], view)
        shown = len(view.messages)
        if view.ended:
            return
        waits()
        sleep(POLL)


def form_of(save: str | None) -> str:
    """Return the suffix of the file, which selects the format. Any other ends the command."""
    suffix = Path(save).suffix if save is not None else ".txt"
    if suffix not in FORMS:
        fail(f"--save {save}: the name of the file must end with one of {', '.join(FORMS)}", USAGE)
    return suffix


def save_ladder(view: ConversationView, save: str | None) -> None:
    """Write a ladder to a file."""
    if save is None:
        return
    try:
        Path(save).write_text(FORMS[form_of(save)](view), encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {save}: {error.strerror}; choose another file with --save", DISK)
