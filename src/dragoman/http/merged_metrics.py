"""Metrics of several brokers as one text: each metric has one head, and the samples of all brokers below it."""

from __future__ import annotations

from typing import Final

from dragoman.core.model import Payload

EOF: Final = b"# EOF\n"
HEAD: Final = b"# HELP "


class MergedMetrics:
    """Texts of one format, whose samples differ by a label. One text is added at a time, so that jobs pass between."""

    def __init__(self) -> None:
        self._families: dict[bytes, list[bytes]] = {}

    def add(self, text: Payload) -> None:
        """Add the metrics of one broker."""
        # A line of a sample cannot begin with this: line ends in labels are escaped.
        first, *others = bytes(text).removesuffix(EOF).split(b"\n" + HEAD)
        for block in (first.removeprefix(HEAD), *others):
            if block:
                self._add(block.removesuffix(b"\n") + b"\n")

    def _add(self, block: bytes) -> None:
        """Add one metric of one broker: its meaning, its type and its samples, as they follow `HEAD`."""
        help_end = block.index(b"\n") + 1
        type_end = block.index(b"\n", help_end) + 1
        name = block[: block.index(b" ")]
        if name not in self._families:
            self._families[name] = [HEAD, block[:type_end]]
        self._families[name].append(block[type_end:])

    def text(self, is_openmetrics: bool) -> bytes:
        parts = [part for family in self._families.values() for part in family]
        return b"".join([*parts, EOF] if is_openmetrics else parts)
