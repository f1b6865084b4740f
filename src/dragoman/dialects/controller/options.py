"""Options of Worker-Controller URLs, with the defaults of the dialect's page. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dragoman.dialects.controller.editions import SEED, SHIFTED
from dragoman.dialects.option_fields import seconds, time_limit


class EditionName(Enum):
    """Edition, as named in URLs."""

    SEED = SEED.name
    SHIFTED = SHIFTED.name


class OnMismatch(Enum):
    """Reaction to a pulse with a task that the controller did not assign."""

    PROBE = "probe"  # GET_STATUS, and RESTART only if the response names it, too (R91)
    ALWAYS = "always"  # RESTART at once, as in the document


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    service: str = "default"
    edition: EditionName | None = None  # None: found by each worker's pulses
    pulse_grace: float = time_limit(2.0)  # R90: time by which a pulse may be late
    max_pulse: float = seconds(86_400.0)  # R90: maximum of the announced time
    default_pulse: float = seconds(10.0)  # R90: for workers that announce 0
    socket_wait: float = seconds(5.0)  # R87: time for a new worker to open its socket
    control_timeout: float = seconds(10.0)  # R99
    restart_on_mismatch: OnMismatch = OnMismatch.PROBE  # R91
    uid_allow: str = ""  # R84: user ids, separated by commas; empty: the broker's own and root
    mode: str = ""  # of the folder if the broker creates it, octal; empty: 0700
    stuck_timeout: float = seconds(3600.0)  # wait for the result of a cancelled job


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    service: str = "default"
    edition: EditionName = EditionName.SEED
    # The announced time of the next pulse, which is sent after half of it. Whole seconds on the wire.
    next_pulse: float = seconds(10.0, least=0.01, most=86_400.0)
