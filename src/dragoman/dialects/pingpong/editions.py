"""The variants of PingPong, as data."""

from __future__ import annotations

from enum import Enum


class Edition(Enum):
    PLAIN = "plain"  # ["", job] and ["", result], as the documents have it
    PACKAGE = "package"  # the job travels with an envelope that the worker sends back: our attempt token
