"""`dragoman replay`: repeat a recorded run of a broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.exit_codes import FAILED, USAGE, fail, warn

if TYPE_CHECKING:
    from dragoman.core.events import Event
    from dragoman.core.model import JobId
    from dragoman.recording.replay import Replay


@click.command(
    epilog="""\b
Examples:
  dragoman serve --record run.rec
  dragoman replay run.rec
  dragoman replay run.rec --strict --quiet
  dragoman replay run.rec --ladder 0190f3a2c4d87b3e9f10aabbccddeeff
""",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Check every invariant after every step. Slow.")
@click.option("--quiet", is_flag=True, help="Print the last line only.")
@click.option("--ladder", metavar="JOB", help="Print the messages of this job at the end, instead of all outcomes.")
def replay(file: Path, strict: bool, quiet: bool, ladder: str | None) -> None:
    """Repeat a recorded run of a broker, and compare its decisions.

    Prints one line for each job that ended: seconds since the start, id, service, outcome and reason. No socket is
    opened, and the store is not used. Exits with 1 at the first decision that differs from the recording.
    """
    from dragoman.core.errors import InvariantBroken
    from dragoman.recording.file import RecordingError
    from dragoman.recording.item_reader import Diverged
    from dragoman.recording.replay import Replay

    job = None if ladder is None else _job_id(ladder)
    outcomes = Outcomes(is_quiet=quiet or ladder is not None)
    try:
        repeated = Replay(file, outcomes.published, _log, strict=strict, ladder=job)
    except RecordingError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror or error}; name a file that `dragoman serve --record` wrote", USAGE)
    try:
        repeated.run(outcomes.write)
    except RecordingError as error:
        outcomes.write()
        fail(f"{error}; the replay was the same until {repeated.reader.place}", FAILED)
    except Diverged as error:
        outcomes.write()
        fail(f"the replay differs from the recording at {error}", FAILED)
    except InvariantBroken as error:
        outcomes.write()
        fail(f"an invariant is broken at {repeated.reader.place}: {error}", FAILED)
    outcomes.write()
    if not repeated.recording.end:
        warn("the recording is cut off: the broker did not stop in order, or it still runs")
    if ladder is not None:
        _print_ladder(repeated, ladder)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.counts.items())) or "none"
    click.echo(f"same decisions in {repeated.reader.count} items; jobs ended: {counts}")


def _job_id(text: str) -> JobId:
    from dragoman.core.model import JobId

    try:
        id = bytes.fromhex(text)
    except ValueError:
        id = b""
    if len(id) != 16:
        fail(f"--ladder {text}: a job's id has 32 hex digits, as `dragoman replay` prints it", USAGE)
    return JobId(id)


def _print_ladder(repeated: Replay, job: str) -> None:
    from dragoman.ladder import as_text
    from dragoman.operations.ladder_views import conversation_view
    from dragoman.sdk.printable import printable

    conversation = repeated.conversation()
    if conversation is None:
        fail(f"--ladder {job}: the recording has no such job; `dragoman replay FILE` prints those that ended", USAGE)
    view = conversation_view(conversation, 0.0, repeated.broker.principals.local, repeated.broker)
    click.echo(printable(as_text(view), "\n"))


class Outcomes:
    """Counts and prints the jobs that end."""

    def __init__(self, *, is_quiet: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._is_quiet = is_quiet
        self._lines: list[str] = []

    def write(self) -> None:
        """Print the lines since the last call."""
        for line in self._lines:
            click.echo(line)
        self._lines.clear()

    def published(self, event: Event, seconds: float) -> None:
        from dragoman.core.events import JOB_ENDED, JobEvent

        if not isinstance(event, JobEvent) or event.kind != JOB_ENDED:
            return
        outcome = str(event.outcome)
        self.counts[outcome] += 1
        if not self._is_quiet:
            from dragoman.sdk.printable import printable

            reason = f": {event.reason}" if event.reason else ""
            self._lines.append(printable(f"{seconds:12.6f}  {event.id.hex()}  {event.service}  {outcome}{reason}"))


def _log(level: str, event: str, **fields: Any) -> None:
    """Print internal errors of the broker; all else was in the log of the recorded run."""
    if level == "error":
        warn(f"{event}: {fields.get('error') or fields.get('problem') or ''}")
