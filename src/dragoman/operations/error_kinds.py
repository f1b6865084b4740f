"""Error kinds of the core's refusals."""

from __future__ import annotations

from typing import Final

from dragoman.core.states import RefusalReason

ERROR_KINDS: Final = {
    RefusalReason.NO_SUCH_SERVICE: "no such service",
    RefusalReason.BUSY: "busy",
    RefusalReason.DRAINING: "draining",
    RefusalReason.KEY_REUSED: "key reused",
    RefusalReason.STORE_UNAVAILABLE: "store unavailable",
    RefusalReason.INVALID: "invalid",
    RefusalReason.FORBIDDEN: "forbidden",
    RefusalReason.TOO_LARGE: "too large",
    RefusalReason.PARTITIONED: "partitioned",
}
