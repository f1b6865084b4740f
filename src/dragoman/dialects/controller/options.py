"""What a Worker-Controller URL may say, with the defaults of the dialect's page. Seconds everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dragoman.dialects.controller.editions import SEED, SHIFTED
from dragoman.dialects.option_fields import seconds, time_limit


class EditionName(Enum):
    SEED = SEED.name
    SHIFTED = SHIFTED.name


class OnMismatch(Enum):
    """What a pulse that names a task we do not know of leads to."""

    PROBE = "probe"  # GET_STATUS, and RESTART only if that names it, too (R91)
    ALWAYS = "always"  # RESTART at once, as the document says


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    service: str = "default"
    edition: EditionName | None = None  # none: each worker's own, told by its pulses
    pulse_grace: float = time_limit(2.0)  # R90: so much longer than it promised may a worker's pulse take
    max_pulse: float = seconds(86_400.0)  # R90: the longest promise that is believed
    default_pulse: float = seconds(10.0)  # R90: for workers that promise 0
    socket_wait: float = seconds(5.0)  # R87: how long a new worker's socket is looked for
    control_timeout: float = seconds(10.0)  # R99
    restart_on_mismatch: OnMismatch = OnMismatch.PROBE  # R91
    uid_allow: str = ""  # R84: user ids, with commas between them; empty: our own and root
    mode: str = ""  # of the folder if we make it, octal; empty: 0700
    stuck_timeout: float = seconds(3600.0)  # how long the result of a cancelled job is waited for


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    edition: EditionName = EditionName.SEED
    # Within so many seconds the next pulse is promised, and it comes after half of them. Whole ones on the wire.
    next_pulse: float = seconds(10.0, least=0.01, most=86_400.0)
