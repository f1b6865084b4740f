"""Names of clusters and brokers, and the NATS subjects that are made from them.

Names of services and keys are any text, and never appear in a subject.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
ALLOWED: Final = "1 to 32 letters, digits, '_' and '-' are allowed"


def check_name(kind: str, name: str) -> None:
    """Raise ValueError if a cluster or a broker cannot have this name."""
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{kind} name {name!r}: {ALLOWED}")


@dataclass(frozen=True, slots=True)
class Subjects:
    """Subjects of one cluster."""

    cluster: str

    @property
    def gossip(self) -> bytes:
        return f"dgm.{self.cluster}.gossip".encode()

    def broker(self, name: str, incarnation: str) -> bytes:
        """The subject of one run of one broker."""
        return f"dgm.{self.cluster}.b.{name}.{incarnation}".encode()
