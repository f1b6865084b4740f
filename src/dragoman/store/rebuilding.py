"""Merges a file and its log without SQLite, past damage in the log.

SQLite reads a log up to the first invalid frame. Here every valid frame of a committed transaction counts, also behind
damage. The resulting tree of pages may be inconsistent, so it is only used for salvage: rows are read one by one, and
those whose checksum does not match are left out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dragoman.store.file_names import log_of
from dragoman.store.log import Log, last_size
from dragoman.store.salvage import page_size_of
from dragoman.store.schema import has_bytes

DEFAULT_PAGE = 4_096


def rebuild(path: Path, target: Path) -> None:
    """Write the merged content of `path` and its log to `target`. Raises OSError."""
    size = DEFAULT_PAGE
    if has_bytes(path):
        shutil.copyfile(path, target)
        with open(path, "rb") as file:
            size = page_size_of(file.read(100))
    else:
        target.write_bytes(b"")
    target.chmod(0o600)
    if not has_bytes(log_of(path)):
        return
    with Log(log_of(path), size) as log, open(target, "r+b") as file:
        if not log.has_header:
            log.adopt_salts()
        for page, index in sorted(log.committed_pages().items()):
            file.seek((page - 1) * log.page_size)
            file.write(log.page(index))
        pages = last_size(log)
        if pages:
            file.truncate(pages * log.page_size)
