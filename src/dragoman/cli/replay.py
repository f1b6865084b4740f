"""`dragoman replay`: repeat a recorded run of a broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.exit_codes import FAILED, USAGE, fail, warn

if TYPE_CHECKING:
    from dragoman.core.events import Event
    from dragoman.recording.replay import Replay


@click.command(
    epilog="""\b
Examples:
  dragoman serve --record run.rec
  dragoman replay run.rec
  dragoman replay run.rec --strict --quiet
""",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Check every invariant after every step. Slow.")
@click.option("--quiet", is_flag=True, help="Print the last line only.")
def replay(file: Path, strict: bool, quiet: bool) -> None:
    """Repeat a recorded run of a broker, and compare its decisions.

    Prints one line for each job that ended: seconds since the start, id, service, outcome and reason. No socket is
    opened, and the store is not used. Exits with 1 at the first decision that differs from the recording.
    """
    from dragoman.core.errors import InvariantBroken
    from dragoman.recording.file import RecordingError
    from dragoman.recording.item_reader import Diverged
    from dragoman.recording.replay import Replay

    outcomes = Outcomes(is_quiet=quiet)
    repeated: Replay | None = None
    try:
        repeated = Replay(file, outcomes.published, _log, strict=strict)
        repeated.run()
    except RecordingError as error:
        fail(f"{error}; {_progress(repeated)}", FAILED)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror or error}; name a file that `dragoman serve --record` wrote", USAGE)
    except Diverged as error:
        fail(f"the replay differs from the recording at {error}", FAILED)
    except InvariantBroken as error:
        fail(f"an invariant is broken at {repeated.reader.place if repeated else 'the start'}: {error}", FAILED)
    if not repeated.recording.end:
        warn("the recording is cut off: the broker did not stop in order, or it still runs")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.counts.items())) or "none"
    click.echo(f"same decisions in {repeated.reader.count} items; jobs ended: {counts}")


class Outcomes:
    """Prints and counts the jobs that end."""

    def __init__(self, *, is_quiet: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._is_quiet = is_quiet

    def published(self, event: Event, seconds: float) -> None:
        from dragoman.core.events import JOB_ENDED, JobEvent

        if not isinstance(event, JobEvent) or event.kind != JOB_ENDED:
            return
        outcome = str(event.outcome)
        self.counts[outcome] += 1
        if not self._is_quiet:
            from dragoman.sdk.printable import printable

            reason = f": {event.reason}" if event.reason else ""
            click.echo(printable(f"{seconds:12.6f}  {event.id.hex()}  {event.service}  {outcome}{reason}"))


def _progress(repeated: Replay | None) -> str:
    return f"the replay was the same until {repeated.reader.place}" if repeated is not None else "nothing was replayed"


def _log(level: str, event: str, **fields: Any) -> None:
    """Print internal errors of the broker; all else was in the log of the recorded run."""
    if level == "error":
        warn(f"{event}: {fields.get('error') or fields.get('problem') or ''}")
