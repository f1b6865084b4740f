"""Declaration of a header, used for parsing and for the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a request or a response."""

    name: str
    kind: Any  # a type of msgspec
    description: str
    is_required: bool = False
