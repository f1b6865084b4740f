"""The story of `dragoman demo`: one broker, every pair of dialects, and some accidents."""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from dragoman import __version__
from dragoman.cli.broker_http import BrokerHttp
from dragoman.cli.build_info import how_built
from dragoman.cli.program_name import program_name
from dragoman.cli.progress_bar import ProgressBar
from dragoman.cli.terminal import has_colours, title
from dragoman.demo.broker import CALLERS, WORKERS, DemoBroker
from dragoman.demo.load import SERVICES, keep_busy
from dragoman.demo.matrix import Cell, matrix_lines, run_matrix
from dragoman.demo.processes import DemoError, ProcessTree
from dragoman.demo.scenes import RESCUE, explain_waiting, rescue_job, retry_from_quarantine, run_background_jobs
from dragoman.demo.workers import REVERSE, Languages, start_reversing
from dragoman.dialects.catalogue import DIALECTS

LONGEST_PLACE = 40  # characters
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of jobs, and the delay of retries in seconds."""

    calls: int = 200  # of each pair
    background: int = 500
    retry_delay: float = 0.5


QUICK = Sizes(calls=5, background=20, retry_delay=0.05)


def tell(sizes: Sizes, stays: bool) -> bool:
    """Run the demo. True if everything went as it should."""
    with tempfile.TemporaryDirectory(prefix="dragoman-demo-", dir=_place()) as name:
        folder = Path(name)
        tree = ProcessTree(folder)
        try:
            return _tell(tree, folder, sizes, stays)
        except DemoError as error:
            _show(_wrong(f"The demo has failed: {error}"))
            return False
        finally:
            tree.close()


def _place() -> str:
    """The folder for temporary files, or /tmp if its path is too long for Unix sockets below it."""
    place = tempfile.gettempdir()
    return place if len(place) <= LONGEST_PLACE else "/tmp"  # noqa: S108


def _tell(tree: ProcessTree, folder: Path, sizes: Sizes, stays: bool) -> bool:
    languages = Languages(folder)
    with DemoBroker(tree, _services(stays)) as broker:
        dialects = NUMBERS[len(DIALECTS)]
        _show(f"Dragoman {__version__} ({how_built()}) listens in {dialects} dialects. Dashboard: {broker.dashboard}")
        start_reversing(broker, languages, WORKERS)
        _show(title("\nWorkers"))
        for each in WORKERS:
            _show(f"  {DIALECTS[each].title} worker, {languages.of(each)}")

        cells = _matrix(broker, sizes.calls)
        added = broker_time(broker)
        done = sum(len(cell.times) for cell in cells)
        _show(title("\nBackground jobs"))
        done += run_background_jobs(broker, WORKERS, sizes.background, _show)
        _show(title("\nA worker is killed"))
        done += rescue_job(broker, languages, sizes.retry_delay, _show)
        _show(title("\nA service without a worker"))
        done += explain_waiting(broker, _show)
        _show(title("\nA job that fails"))
        done += retry_from_quarantine(broker, sizes.retry_delay, _show)

        is_right = sum_up(broker, cells, done, added)
        if stays:
            _show(title("\nThe demo goes on until Ctrl-C: 20 jobs a second, of which 2 % fail"))
            _show_commands(broker)
            try:
                keep_busy(broker)
            except KeyboardInterrupt:
                _show("")
        else:
            _show(title("\nTry next"))
            for line in next_commands(program_name()):
                _show(line)
        return is_right


def _services(stays: bool) -> dict[str, list[str]]:
    """The services of the dialects that have no service names on the wire."""
    reversing = [REVERSE + each for each in WORKERS]
    found = {"pingpong": [*reversing, RESCUE], "powerhose": reversing, "controller": [REVERSE + "controller"]}
    if stays:
        for service in SERVICES:
            for dialect in service.dialects:
                if dialect in found:
                    found[dialect] = [*found[dialect], service.name]
    return found


def _matrix(broker: DemoBroker, calls: int) -> list[Cell]:
    _show(title("\nEvery dialect calls every other"))
    _show(f"Median milliseconds of a call, of {calls} calls from each dialect (left) to the workers of each (above):")
    with ProgressBar("calling", "calls") as bar:
        cells = run_matrix(broker, CALLERS, WORKERS, calls, bar.update)
    for line in matrix_lines(cells, _wrong):
        _show(line)
    for cell in cells:
        if cell.problem:
            _show(_wrong(f"{DIALECTS[cell.caller].title} to {DIALECTS[cell.worker].title}: {cell.problem}"))
    return cells


def broker_time(broker: DemoBroker) -> float | None:
    """The mean seconds from the submit of a call to its dispatch, in the last 10 seconds; None if it is not known."""
    flow = BrokerHttp(broker.url("http")).get("/v1/overview")["flow"]
    calls = sum(rate for _, _, rate, _ in flow)
    return sum(rate * added for _, _, rate, added in flow) / calls if calls else None


def sum_up(broker: DemoBroker, cells: list[Cell], done: int, added: float | None) -> bool:
    """Print the sum. True if every pair is right, and the broker has done as many jobs as callers have results."""
    right = [cell for cell in cells if not cell.problem]
    _show(title("\nSum"))
    _show(f"{len(right)} of {len(cells)} pairs are right.")
    if right:
        middle = statistics.median(cell.median for cell in right) * 1000
        of_broker = f" A call waits {added * 1000:.2f} ms in the broker on average." if added is not None else ""
        _show(f"Median of the medians: {middle:.2f} ms a call.{of_broker}")
    counted = sum(each.ended.get("done", 0) for each in broker.http.services())
    if counted == done:
        _show(f"{done:,} jobs are done. Every caller got exactly one answer.")
    else:
        _show(_wrong(f"The broker has done {counted:,} jobs, and callers got {done:,} results."))
    return len(right) == len(cells) and counted == done


def next_commands(program: str) -> list[str]:
    """Three commands to try after the demo, with what they do."""
    commands = {
        f"{program} demo --stay": "keep the broker of the demo running, with a dashboard",
        f"{program} serve": "run a broker of your own",
        f"{program} worker --exec 'tr a-z A-Z' --service shout": f"a worker for it; then `{program} call shout hello`",
    }
    width = max(map(len, commands))
    return [f"  {command:<{width}}  # {text}" for command, text in commands.items()]


def _show_commands(broker: DemoBroker) -> None:
    program, url = program_name(), broker.dashboard.removesuffix("/")
    _show(f"  {broker.dashboard}")
    _show(f"  {program} top --connect {url}")
    _show(f"  {program} tail --connect {url}")


def _show(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _wrong(text: str) -> str:
    """The text in red on a terminal."""
    return click.style(text, fg="red") if has_colours() else text
