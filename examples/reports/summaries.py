"""A worker that summarises tables in CSV: count, sum, smallest and largest value of each column of numbers.

    dragoman worker summaries:worker

In this folder. The tutorial (docs/tutorial.md) explains it.
"""

import csv
import io
import json

from dragoman import Context, Worker

worker = Worker()  # its broker is that of DRAGOMAN_URL, else tcp://127.0.0.1:7400


@worker.service("summarise")
def summarise(table: bytes, ctx: Context) -> str:
    rows = list(csv.DictReader(io.StringIO(table.decode())))
    columns: dict[str, list[float]] = {}
    for number, row in enumerate(rows):
        if ctx.cancelled:  # the caller does not wait any more
            return ""
        if number % 1000 == 0:
            ctx.progress(number, len(rows))
        for name, text in row.items():
            if is_number(text):
                columns.setdefault(name, []).append(float(text))
    if not columns:
        raise ValueError("no column has numbers")
    return json.dumps({name: describe(values) for name, values in columns.items()}) + "\n"


def describe(values: list[float]) -> dict[str, float]:
    return {"count": len(values), "sum": sum(values), "min": min(values), "max": max(values)}


def is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True
