"""Types of ids."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", bytes)  # 16 bytes in UUIDv7 layout, shown as 32 lower-case hex digits
WorkerId = NewType("WorkerId", int)
Token = NewType("Token", bytes)  # 16 random bytes that name one attempt
