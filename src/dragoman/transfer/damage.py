"""A damaged place of a log, and the jobs that are lost or changed by it: as a line of the file, and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dragoman.transfer.errors import BadFile

MOST_NAMED: Final = 10  # ids in one sentence; the file has all of them


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of a shard that an export leaves out, or exports as it was before. `reason`: a sentence about it."""

    shard: int
    reason: str
    first: int = 0  # sequences of the messages that are left out; 0: it is not about messages
    last: int = 0
    jobs: tuple[bytes, ...] = ()  # jobs or groups that it is about, as far as their ids are known

    @property
    def messages(self) -> int:
        return self.last - self.first + 1 if self.last else 0

    @property
    def sentence(self) -> str:
        place = f"shard {self.shard}: "
        if self.messages == 1:
            place += f"message {self.first} (1 message): "
        elif self.messages:
            place += f"messages {self.first} to {self.last} ({self.messages} messages): "
        elif self.jobs:
            place += f"{len(self.jobs)} " + ("id: " if len(self.jobs) == 1 else "ids: ")
        names = ", ".join(each.hex() for each in self.jobs[:MOST_NAMED])
        more = len(self.jobs) - MOST_NAMED
        if more > 0:
            names += f" and {more} more, which the file names"
        return f"{place}{self.reason}" + (f": {names}" if names else "")

    def line(self) -> dict[str, Any]:
        """Return it as a JSON object of the file."""
        facts: dict[str, Any] = {"shard": self.shard, "reason": self.reason}
        if self.messages:
            facts |= {"first": self.first, "last": self.last, "messages": self.messages}
        if self.jobs:
            facts["jobs"] = [each.hex() for each in self.jobs]
        return {"damage": facts}


def damage_of(line: dict[str, Any]) -> Damage:
    """Read a line. Raises BadFile."""
    try:
        facts = line["damage"]
        jobs = tuple(bytes.fromhex(each) for each in facts.get("jobs", ()))
        first, last = int(facts.get("first", 0)), int(facts.get("last", 0))
        return Damage(int(facts["shard"]), str(facts["reason"]), first, last, jobs)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise BadFile(f"a damaged place cannot be read: {error}") from None
