"""Untrusted text on a terminal (T14)."""

from __future__ import annotations

import logging

from dragoman.sdk.current_job import current_job
from dragoman.sdk.printable import PrintableFormatter, printable


def test_nothing_is_left_that_a_terminal_would_obey() -> None:
    assert printable("red \x1b[31m, back \u202e\nnext") == "red \\x1b[31m, back \\u202e\nnext"
    assert printable("one\ntwo", kept="") == "one\\ntwo"
    assert printable("plain ä") == "plain ä"


def test_log_lines_of_a_worker_are_escaped() -> None:
    """A bug: the text of an exception, which may quote a caller's payload, went to the terminal as it was."""
    record = logging.LogRecord("dragoman.worker", logging.ERROR, "", 0, "job failed: %s", ("\x1b[2J",), None)
    assert PrintableFormatter("%(levelname)s %(message)s").format(record) == "ERROR job failed: \\x1b[2J"


def test_log_lines_of_a_handler_carry_the_id_of_its_job() -> None:
    record = logging.LogRecord("app", logging.INFO, "", 0, "page %d", (3,), None)
    formatter = PrintableFormatter("%(levelname)s %(message)s")
    token = current_job.set("01a1")
    try:
        assert formatter.format(record) == "INFO job 01a1: page 3"
    finally:
        current_job.reset(token)
    assert formatter.format(record) == "INFO page 3"
