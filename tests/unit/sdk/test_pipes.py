"""Messages between a worker and its child processes, split at every byte."""

from __future__ import annotations

import socket

import pytest

from dragoman.carriers.carrier import Messages
from dragoman.core.failure import pack_failure
from dragoman.dialects.sides import Failure
from dragoman.sdk.child_main import JobReporter, read_failure
from dragoman.sdk.pipes import CANCEL, DONE, HEAD, JOB, PART, READY, ChildPipe, PipeReader, encode

LARGE = bytes(range(256)) * 1024  # more than a buffer
SAID = [(READY, 0, b"", 0), (DONE, 1, b"result", 1), (PART, 2, LARGE, 0), (DONE, 0xFFFFFFFF, b"", 0)]
STREAM = b"".join(encode(*each) for each in SAID)
HEARD = [[HEAD.pack(0, kind, flag, job)[4:], payload] for kind, job, payload, flag in SAID]


def read(data: bytes, step: int) -> Messages:
    """Feed bytes as a stream does: into the gap while there is one."""
    reader, heard = PipeReader(), []
    position = 0
    while position < len(data):
        piece = data[position : position + step]
        if reader.gap is not None:
            piece = piece[: len(reader.gap)]
            reader.gap[: len(piece)] = piece
            heard += reader.fill(len(piece))
        else:
            heard += reader.feed(piece)
        position += len(piece)
    return heard


@pytest.mark.parametrize("step", [1, 2, 5, 6, 7, 1000, 65_536, 1 << 20])
def test_messages_come_out_whole_however_they_were_cut(step: int) -> None:
    assert read(STREAM, step) == HEARD


def test_a_child_hears_small_and_large_messages_and_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipe = ChildPipe(theirs)
        ours.sendall(encode(JOB, 1, b"one") + encode(CANCEL, 1) + encode(JOB, 2, LARGE[:30_000]))
        assert pipe.receive() == (JOB, 1, b"one")
        assert pipe.receive() == (CANCEL, 1, b"")
        assert pipe.receive() == (JOB, 2, LARGE[:30_000])
        ours.close()
        with pytest.raises(EOFError):
            pipe.receive()


def test_a_child_sees_that_it_was_cancelled_when_it_looks() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipe = ChildPipe(theirs)
        assert not pipe.check_cancelled()
        ours.sendall(encode(CANCEL))
        assert pipe.check_cancelled()
        assert pipe.check_cancelled()


def test_a_failure_survives_the_pipe() -> None:
    failure = Failure("pkg.Error", "with \n lines", "Traceback\0 with anything")
    assert read_failure(pack_failure(failure)) == failure


def test_a_child_sees_a_cancel_that_came_together_with_its_job() -> None:
    """A bug: the message was in the bytes that were read ahead and was not checked: the handler was killed without a
    notice."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipe = ChildPipe(theirs)
        ours.sendall(encode(JOB, 1, b"one") + encode(CANCEL, 1))
        assert pipe.receive() == (JOB, 1, b"one")
        assert pipe.check_cancelled()


def test_what_a_job_leaves_behind_neither_speaks_nor_listens() -> None:
    """A thread of a job that was over reported in the name of the next one, and swallowed the one after that."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipe = ChildPipe(theirs)
        run_once = JobReporter(pipe, 1)
        assert not run_once.is_cancelled()
        run_once.end()
        run_once.report(b"stray", True)
        ours.sendall(encode(JOB, 2, b"two"))
        assert run_once.is_cancelled()
        assert pipe.receive() == (JOB, 2, b"two")
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
