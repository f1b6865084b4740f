"""Items of a recording: inputs of the broker, values that it read, and its journal.

The order is that of the run. An *input* is a call of the broker; the items up to the next input are what the broker
read and did during it. `docs/recordings.md` lists their fields.
"""

from __future__ import annotations

from typing import Any, Final

Item = tuple[Any, ...]  # the kind, then the facts

BEGIN: Final = "begin"  # settings, limits, first worker id, version, whether payloads are in it
END: Final = "end"

# Inputs: from connections and from the host.
LISTEN: Final = "listen"
NOT_OPENED: Final = "not opened"
ITERATION: Final = "iteration"
CONNECTED: Final = "connected"
ARRIVED: Final = "arrived"
ENDED: Final = "ended"
DIALLED: Final = "dialled"
LATER: Final = "later"
PROCESS_ENDED: Final = "process ended"
PAUSED: Final = "paused"
SENT: Final = "sent"  # bytes that the kernel has taken since

# Inputs: from the store.
RESTORED: Final = "restored"
LOADED: Final = "loaded"
ALL_LOADED: Final = "all loaded"
SAVED: Final = "saved"
FETCHED: Final = "fetched"

# Inputs: from the server and its operators.
ACT: Final = "act"
ACCESS: Final = "access"
CLOSED: Final = "closed"

# Inputs: requests of HTTP, parsed.
HTTP: Final = "http"
ASK: Final = "ask"
LEAVE: Final = "leave"

# Values that the broker read, in the order of its reads.
CLOCK: Final = "c"
OFFSET: Final = "o"
JOB_ID: Final = "id"
TOKEN: Final = "token"  # noqa: S105  # of an attempt; tokens of HTTP workers are zeros
JITTER: Final = "jitter"
WRITE: Final = "w"
UNREAD: Final = "unread"
READ_DRY: Final = "read dry"
READ: Final = "read"  # the end of READ_DRY
IDENTIFIED: Final = "identified"
REACH: Final = "reach"
DIAL: Final = "dial"
WATCH: Final = "watch"
PROBLEM: Final = "problem"  # of the store
APPLY: Final = "apply"
APPLIED: Final = "applied"
FETCH: Final = "fetch"
SLICE: Final = "slice"  # of a long operation: whether it was the last
TEXT: Final = "text"  # a fact about hidden texts: whether a reason matches a filter, or the id of its group
RELOAD: Final = "reload"
RELOADED: Final = "reloaded"

DIGEST: Final = "digest"  # of a stored payload that has occurred again: as it was recorded, and as it is in the replay

# The journal: what the broker decided.
JOURNAL: Final = "j"

STRAY: Final = (CLOCK, OFFSET, PROBLEM)  # read outside of inputs, too, for the log and for metrics
