"""The matrix of the demo: calls from every dialect of callers to every dialect of workers."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

from dragoman.demo.broker import PATIENCE, DemoBroker
from dragoman.demo.workers import REVERSE
from dragoman.dialects.catalogue import DIALECTS
from dragoman.sdk.client import Client
from dragoman.sdk.errors import DragomanError

SIZE = 200  # bytes of a payload


@dataclass(slots=True)
class Cell:
    """The calls from one dialect to the workers of another."""

    caller: str
    worker: str
    times: list[float] = field(default_factory=list)  # seconds of each call that returned the right result
    problem: str = ""  # the first problem, one sentence

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def run_matrix(
    broker: DemoBroker, callers: Sequence[str], workers: Sequence[str], calls: int, progress: Callable[[int, int], None]
) -> list[Cell]:
    """Make this number of calls, one after the other, from each dialect of callers to each dialect of workers."""
    cells = []
    total = len(callers) * len(workers) * calls
    for caller in callers:
        for worker in workers:
            service = REVERSE + worker
            cell = Cell(caller, worker)
            cells.append(cell)
            client = broker.client(caller, service)
            for payload in payloads(f"{caller} {worker}", calls):
                if not cell.problem:
                    _call(client, service, payload, cell)
                progress(sum(len(each.times) for each in cells), total)
    return cells


def payloads(seed: str, count: int) -> Iterator[bytes]:
    """Yield different payloads of any bytes, the same in each run."""
    chance = random.Random(seed)  # noqa: S311
    for number in range(count):
        yield f"{number}:".encode() + chance.randbytes(SIZE)


def _call(client: Client[bytes], service: str, payload: bytes, cell: Cell) -> None:
    start = time.perf_counter()
    try:
        result = client.submit(service, payload).result(PATIENCE)
    except (DragomanError, TimeoutError, CancelledError) as error:
        cell.problem = str(error) or f"no answer within {PATIENCE:g} s"
        return
    if result != payload[::-1]:
        cell.problem = f"a call returned {result[:20]!r}…, which is not its payload backwards"
        return
    cell.times.append(time.perf_counter() - start)


def matrix_lines(cells: Sequence[Cell], wrong: Callable[[str], str] = str) -> list[str]:
    """The table of medians in milliseconds: a line for each dialect of callers, a column for each dialect of workers.
    `wrong` marks the text of a cell with a problem."""
    callers = list(dict.fromkeys(cell.caller for cell in cells))
    workers = list(dict.fromkeys(cell.worker for cell in cells))
    found = {(cell.caller, cell.worker): cell for cell in cells}
    titles = [DIALECTS[name].title for name in workers]
    first = max(len(DIALECTS[name].title) for name in callers)
    widths = [max(len(title), len("00.00")) for title in titles]
    lines = [" ".join(["".ljust(first), *(map(str.rjust, titles, widths))])]
    for caller in callers:
        row = [found[caller, worker] for worker in workers]
        texts = [_text(cell).rjust(width) for cell, width in zip(row, widths, strict=True)]
        marked = [wrong(text) if cell.problem else text for cell, text in zip(row, texts, strict=True)]
        lines.append(" ".join([DIALECTS[caller].title.ljust(first), *marked]))
    return lines


def _text(cell: Cell) -> str:
    return "wrong" if cell.problem else f"{cell.median * 1000:.2f}"
