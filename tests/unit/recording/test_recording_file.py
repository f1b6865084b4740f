"""The file of a recording: created once, for one user, up to a size; damage is found, and a cut is not damage."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_IMODE
from zlib import crc32

import pytest

from dragoman.core.restore import StoredJob
from dragoman.recording.file import FULL, HEAD, STOPPED, TITLE, Recording, RecordingError, RecordingWriter
from dragoman.recording.items import Item
from dragoman.recording.recorded_store import STORED_FIELDS
from dragoman.recording.replay import Replay

ITEMS: list[Item] = [("begin", {"release": "1"}), ("c", 1.5), ("arrived", 1, [b"\xff" * 40]), ("w", 1, 2, 3, False)]


def written(file: Path, items: list[Item] = ITEMS) -> bytes:
    """Write a recording with one chunk for each item. Returns its bytes."""
    writer = RecordingWriter(file)
    for item in items:
        writer.add(item)
        writer.flush()
    writer.close()
    return file.read_bytes()


def test_items_are_read_as_they_were_written(tmp_path: Path) -> None:
    written(tmp_path / "run.rec")
    recording = Recording(tmp_path / "run.rec")
    assert list(recording) == ITEMS
    assert recording.end == STOPPED


def test_a_flipped_bit_of_a_length_is_damage(tmp_path: Path) -> None:
    """A length beyond the end of the file looked like a file that is cut off, and the replay ended with 0."""
    file = tmp_path / "run.rec"
    whole = written(file)
    place, lengths = whole.index(b"\n") + 1, []
    while place < len(whole):
        lengths.append(place)
        place += HEAD.size + HEAD.unpack(whole[place : place + HEAD.size])[0]
    assert len(lengths) == len(ITEMS) + 1
    for start in lengths:
        for bit in range(32):
            damaged = bytearray(whole)
            damaged[start + bit // 8] ^= 0x80 >> bit % 8
            file.write_bytes(damaged)
            with pytest.raises(RecordingError, match=f"damaged at byte {start}"):
                list(Recording(file))


@pytest.mark.parametrize("chunk", [b"\x91\x91\xa2\xff\xff", b"\x91\x90", b"\x91\x91\x01"])
def test_damage_with_a_valid_checksum_is_named(tmp_path: Path, chunk: bytes) -> None:
    """Text that is no Unicode gave a traceback."""
    file = tmp_path / "run.rec"
    file.write_bytes(TITLE + b"1\n" + HEAD.pack(len(chunk), crc32(chunk)) + chunk)
    with pytest.raises(RecordingError, match="damaged at byte"):
        list(Recording(file))


@pytest.mark.parametrize("settings", [{}, {"policy": {"no_such": 1}, "limits": {}, "first_worker": 1}, {"policy": 1}])
def test_settings_that_cannot_be_read_are_an_error(tmp_path: Path, settings: dict[str, object]) -> None:
    written(tmp_path / "run.rec", [("begin", settings)])
    with pytest.raises(RecordingError, match="the settings of its broker cannot be read"):
        Replay(tmp_path / "run.rec")


def test_only_its_user_may_read_it(tmp_path: Path) -> None:
    written(tmp_path / "run.rec")
    assert S_IMODE((tmp_path / "run.rec").stat().st_mode) == 0o600


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    file, link = tmp_path / "run.rec", tmp_path / "link"
    file.write_text("kept")
    link.symlink_to(tmp_path / "nowhere")
    for each in (file, link):
        with pytest.raises(FileExistsError):
            RecordingWriter(each)
    assert file.read_text() == "kept"
    assert not (tmp_path / "nowhere").exists()


def test_a_full_disk_at_the_start_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        RecordingWriter(Path("/dev/full"))


def test_a_full_disk_later_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.rec")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._file)
    os.close(full)
    writer.add(ITEMS[0])
    writer.flush()
    assert writer.problem == "No space left on device"
    writer.add(ITEMS[1])
    writer.flush()
    writer.close()
    assert writer.problem == "No space left on device"


def test_an_item_that_cannot_be_written_ends_the_recording(tmp_path: Path) -> None:
    file = tmp_path / "run.rec"
    for number, fact in enumerate(("\ud800", object(), 1 << 70)):
        writer = RecordingWriter(file.with_suffix(f".{number}"))
        writer.add(("w", fact))
        writer.flush()
        writer.close()
        assert writer.problem is not None
        assert writer.problem.startswith("an item cannot be written: ")


def test_every_field_of_a_stored_job_is_recorded() -> None:
    assert StoredJob.__slots__ == STORED_FIELDS


def test_a_recording_ends_at_its_maximum_size(tmp_path: Path) -> None:
    file = tmp_path / "run.rec"
    writer = RecordingWriter(file, 2000)
    for number in range(200):
        writer.add(("w", number, 0, 0, False))
        writer.flush()
    assert writer.problem == FULL
    assert 1900 < file.stat().st_size < 2200
    recording = Recording(file)
    read = list(recording)
    assert [item[1] for item in read] == list(range(len(read)))
    assert recording.end == FULL


def test_a_recording_that_is_cut_anywhere_has_its_first_items(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.rec")
    file = tmp_path / "cut.rec"
    counts = []
    for size in range(len(TITLE) + 2, len(whole), 5):
        file.write_bytes(whole[:size])
        recording = Recording(file)
        read = list(recording)
        assert read == ITEMS[: len(read)]
        assert recording.end == ""
        counts.append(len(read))
    assert counts == sorted(counts)
    assert set(counts) == set(range(len(ITEMS) + 1))


def problem_of(recording: Recording) -> str:
    """Read all items, which are those that were written. Returns the error, or an empty string."""
    read = []
    try:
        for item in recording:
            read.append(item)
    except RecordingError as error:
        return str(error)
    finally:
        assert read == ITEMS[: len(read)]
    return ""


def test_damage_is_reported_with_its_place(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.rec")
    file = tmp_path / "damaged.rec"
    start = len(TITLE) + 2
    for place in range(start, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        file.write_bytes(changed)
        recording = Recording(file)
        message = problem_of(recording)
        assert "damaged at byte" in message or recording.end == ""  # a length that became too large looks like a cut


def test_a_missing_chunk_is_damage(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.rec")
    start = len(TITLE) + 2
    second = start + HEAD.size + HEAD.unpack(whole[start : start + HEAD.size])[0]
    third = second + HEAD.size + HEAD.unpack(whole[second : second + HEAD.size])[0]
    file = tmp_path / "short.rec"
    file.write_bytes(whole[:second] + whole[third:])
    with pytest.raises(RecordingError, match=f"damaged at byte {second}: the checksum is wrong"):
        list(Recording(file))


def test_other_files_and_other_versions_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other"
    for content, message in (
        (b"", "is not a recording"),
        (b"#!/bin/sh\n", "is not a recording"),
        (TITLE + b"9\n", "has version 9; this program reads version 1"),
    ):
        file.write_bytes(content)
        with pytest.raises(RecordingError, match=message):
            Recording(file)
