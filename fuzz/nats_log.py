"""Fuzz target: answers of JetStream and messages of shard logs. The first byte selects the reader."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats_headers import read_headers
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.epochs import EpochRule
from dragoman.cluster.jetstream import (
    ApiError,
    AppendOutcome,
    StoredMessage,
    StreamState,
    read_account,
    read_append,
    read_message,
    read_purged,
    read_stream,
)
from dragoman.cluster.log_records import encode_record, read_batches, read_record
from dragoman.cluster.requests import Answer, AnswerKind
from fuzz.input import Input

STREAM: Final = "S"


def test_one_input(data: bytes) -> None:
    read = Input(data)
    choice = read.number()
    if choice & 1:
        check_records(read)
    elif choice & 2:
        check_batch(read)
    else:
        check_answer(read)


def check_answer(read: Input) -> None:
    try:
        answer = Answer(AnswerKind.REPLY, read_headers(read.piece()), read.rest())
    except Malformed:
        return
    for each in (read_account(answer), read_purged(answer)):
        assert isinstance(each, int | ApiError)
    assert isinstance(read_stream(answer), StreamState | ApiError)
    message = read_message(answer)
    assert message is None or isinstance(message, StoredMessage | ApiError)
    made = read_append(answer)
    assert (made.outcome is AppendOutcome.STORED) <= (made.sequence != 0)


def check_batch(read: Input) -> None:
    """Check that a batch without a problem has its messages in order."""
    batch = DirectBatch(STREAM)
    while read and not batch.is_done:
        try:
            headers = read_headers(read.piece())
        except Malformed:
            continue
        assert batch.receive(Answer(AnswerKind.REPLY, headers, read.piece()), 0.0) == (not batch.is_done)
    sequences = [each.sequence for each in batch.messages]
    assert sequences == sorted(set(sequences))


def check_records(read: Input) -> None:
    """Check that records are read as they are written, and that the epoch rule accepts any order of them."""
    rule = EpochRule()
    for sequence, piece in enumerate(read.frames(), 1):
        try:
            read_batches(bytes(piece))
        except Malformed:
            pass
        try:
            record = read_record(piece)
        except Malformed:
            continue
        assert read_record(encode_record(record)) == record
        rule.judge(sequence, record)
        assert rule.epoch <= sequence
