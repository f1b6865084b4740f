"""Tasks for the web application in words_app.py.

    dragoman worker words --connect tcp://127.0.0.1:7400

Run it in this folder, in any number of processes.
"""

import time
from collections import Counter
from collections.abc import Iterator

from dragoman import Context, task


@task
def count_words(text: str) -> dict[str, int]:
    return dict(Counter(text.lower().split()))


@task
def print_book(ctx: Context, pages: int) -> str:
    """Takes a tenth of a second for each page, and stops when nobody wants the book any more."""
    for page in range(pages):
        if ctx.cancelled:
            print(f"stopped after {page} of {pages} pages", flush=True)
            break
        time.sleep(0.1)
    return f"{pages} pages"


@task
def lines(text: str) -> Iterator[str]:
    """Each value is sent as soon as it is there."""
    yield from text.splitlines()
