"""Notes of imports in the logs. An import marks all shards before it writes the first job, and again at its end.

A broker does not take a shard that has only the first mark: an import that was interrupted must be finished first, so
that nothing of it runs before all of it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "import/"  # and the identity of the file
BEGUN: Final = "begun"
DONE: Final = "done"


def interrupted(notes: Mapping[str, str]) -> str:
    """Return the identity of an import that was not finished; empty: there is none."""
    for key, value in notes.items():
        if key.startswith(PREFIX) and value != DONE:
            return key.removeprefix(PREFIX)
    return ""
