"""Fuzz target: messages of the native dialect. All readers get the same frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, Final

from dragoman.carriers.carrier import Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import Failure, decision_text, retry_text
from dragoman.core.job_extras import JobExtras
from dragoman.dialects.native import codec, extras
from dragoman.dialects.native.messages import ACK, Failed, Role
from fuzz.input import Input


def _extras(read: JobExtras | None) -> bytes:
    return extras.write_extras(read, extras.OF_SUBMIT) if read is not None else b"{}"


def _in_milliseconds(failed: Failed) -> Failed:
    """Return the message as it is written: with the delay of a retry in milliseconds."""
    if failed.retry_in is None or failed.retry_in == inf:
        return failed
    return replace(failed, retry_in=float(retry_text(failed.retry_in)))


def _decision(failed: Failed) -> str:
    return decision_text(
        Failure(failed.type, failed.message, failed.detail, failed.retry_in, failed.unknown, failed.known)
    )


# A reader, and a function that encodes its result; None: the result does not have all of the message.
READERS: Final[dict[str, tuple[Callable[[Message], Any], Callable[[Any], Message] | None]]] = {
    "HELLO": (codec.read_hello, codec.write_hello),
    "WELCOME": (codec.read_welcome, lambda welcome: codec.write_welcome(welcome, Role.CLIENT)),
    "ERROR": (codec.read_error, lambda read: codec.write_error(*read)),
    "BYE": (codec.read_bye, lambda read: codec.write_bye(read[1], is_final=read[0])),
    "SUBMIT": (lambda frames: codec.read_order(frames[0]), lambda order: [codec.write_order(order)]),
    "extras of SUBMIT": (lambda frames: extras.read_extras(frames[-1]), lambda read: [_extras(read)]),
    "JOB": (codec.read_jobs, None),
    "RECALL": (codec.read_recall, lambda read: codec.write_recall(*read)),
    "RESULT": (codec.read_result, lambda names: codec.write_result(names, [b""] * len(names))),
    "FAILED": (
        lambda frames: _in_milliseconds(codec.read_failed(frames)),
        lambda read: codec.write_failed(read.outcome, read.name, read.type, read.message, read.detail, _decision(read)),
    ),
    "PART": (codec.read_report, lambda read: codec.write_report(*read, is_part=True)),
    "number of PART": (lambda frames: codec.read_report_number(frames[0]), None),
    "ASK": (codec.read_ask, lambda read: codec.write_ask(*read)),
    "TELL": (codec.read_tell, lambda read: codec.write_tell(*read)),
    "OBJECT": (codec.read_object, lambda read: codec.write_object(*read)),
    "ACK": (codec.read_list, lambda names: codec.write_list(ACK, names)),
}


def test_one_input(data: bytes) -> None:
    frames = Input(data).frames()
    if not frames or not frames[0]:  # the broker side checks the first byte before any reader
        return
    for name, (read, write) in READERS.items():
        try:
            message = read(frames)
        except Malformed as error:
            assert error.reason in ("malformed", "version"), name
            assert len(error.detail) < 200, name
            continue
        assert read([bytearray(frame) for frame in frames]) == message, name
        if write is not None and len(data) < 20_000:  # longer texts are cut off
            assert read(write(message)) == message, name
