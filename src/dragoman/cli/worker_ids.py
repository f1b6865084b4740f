"""Worker ids as people type them: the last digits of a long number.

Numbers of workers rise over all runs of a broker (R28), so they have ten digits or more. Lists show as many of the last
digits as tell the workers apart; commands take these or the whole number. A number of up to six digits stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dragoman.cli.exit_codes import FAILED, USAGE, fail
from dragoman.operations.list_schemas import ListWorkersRequest
from dragoman.operations.table import WORKERS

if TYPE_CHECKING:
    from dragoman.sdk.client import Client

WHOLE = 6  # digits: a shorter number is never shortened
LEAST = 4  # digits of a shortened number


def short_ids(ids: Iterable[int]) -> dict[int, str]:
    """The text for each id: all long ones have the same number of digits, and no two are equal."""
    texts = {id: str(id) for id in ids}
    digits = LEAST
    while len({text[-digits:] for text in texts.values() if len(text) > WHOLE}) < sum(
        len(text) > WHOLE for text in texts.values()
    ):
        digits += 1
    return {id: text[-digits:] if len(text) > WHOLE else text for id, text in texts.items()}


def worker_id(client: Client[bytes], text: str) -> int:
    """The id of the worker that this text names. An ambiguous text ends the command."""
    if not (text.isascii() and text.isdigit()):
        fail(f"worker {text!r}: a worker's number is digits only, as `dragoman workers` lists it", USAGE)
    whole = int(text)
    if len(text) < LEAST:
        return whole
    ids = [each.id for each in client.operation(WORKERS, ListWorkersRequest()).workers]
    found = [id for id in ids if str(id).endswith(text) and len(str(id)) > WHOLE]
    if whole in ids or not found:
        return whole
    if len(found) > 1:
        names = ", ".join(map(str, found))
        fail(f"worker {text}: {len(found)} workers end with these digits: {names}. Type more digits", FAILED)
    return found[0]
