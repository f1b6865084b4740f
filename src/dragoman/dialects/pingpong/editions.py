"""Editions of PingPong."""

from __future__ import annotations

from enum import Enum


class Edition(Enum):
    """Format of jobs and results."""

    PLAIN = "plain"  # ["", job] and ["", result], as in the documents
    PACKAGE = "package"  # the job has an envelope with the attempt token, which the worker returns
