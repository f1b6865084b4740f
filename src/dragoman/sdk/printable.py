"""Escapes what a terminal would obey, in text that comes from somewhere else (T14)."""

from __future__ import annotations

import logging
import sys


def printable(text: object, kept: str = "\n\t") -> str:
    """The text with every character escaped that is not printable, but for those in `kept`."""
    said = str(text)
    if said.isprintable():
        return said
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in said)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class PrintableFormatter(logging.Formatter):
    """Formats log lines without anything that a terminal would obey: a failure may quote what a caller sent."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_to_stderr(level: int | str, *, force: bool = False) -> None:
    """Set up logging for a program that is a worker, unless somebody has done so; by `force` in any case."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=force)
