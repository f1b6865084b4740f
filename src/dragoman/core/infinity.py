"""`inf` as a constant: compiled code reads it without the dictionary lookup that `math.inf` costs."""

from __future__ import annotations

from typing import Final

inf: Final = float("inf")
