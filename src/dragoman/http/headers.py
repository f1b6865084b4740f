"""A header of a request or a response, as data: what the reader checks is what the OpenAPI document says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Header:
    name: str
    kind: Any  # its type, as msgspec knows types
    description: str
    is_required: bool = False
