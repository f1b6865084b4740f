"""Detects whether a store has lost something that was acknowledged (R129).

SQLite accepts whatever it finds. It creates an empty file if there is none, and reads a damaged log up to the damage.
So two things are compared: the log with its checksums, and the store with the count of acknowledged commits beside it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from time import gmtime, strftime

import apsw

from dragoman.store import statements
from dragoman.store.counter import NAME as COUNTER
from dragoman.store.counter import Count, read_count, sync_folder
from dragoman.store.errors import ADVICE, BACKUP_ADVICE, StoreCorrupted
from dragoman.store.file_names import NAME, log_of, name_in
from dragoman.store.log import HEADER, Log, is_blank
from dragoman.store.salvage import jobs_in, page_size_of
from dragoman.store.schema import COMMITS, damaged, has_bytes, is_new

EPOCH = "epoch"  # the file beside the store that keeps worker numbers of different runs apart
MAX_NAMED = 10  # jobs in one message


@dataclass(frozen=True, slots=True)
class Loss:
    """A detected loss: its cause and the affected jobs."""

    how: str  # a clause of the message
    jobs: list[str] = field(default_factory=list)  # ids of missing jobs, as far as known
    is_short: bool = False  # the store is valid, but more was acknowledged: an older backup looks like this

    def sentence(self) -> str:
        if not self.jobs:
            return self.how
        more = f" and {len(self.jobs) - MAX_NAMED} more" if len(self.jobs) > MAX_NAMED else ""
        return f"{self.how}; affected: {', '.join(self.jobs[:MAX_NAMED])}{more}"

    def error(self, path: Path) -> StoreCorrupted:
        return damaged(path, self.sentence(), BACKUP_ADVICE if self.is_short else ADVICE)


def write_epoch(folder: Path, epoch: int) -> None:
    """Write the epoch; the former one stays if that fails."""
    kept, fresh = folder / EPOCH, folder / f"{EPOCH}.new"
    try:
        with open(fresh, "w", opener=_private) as file:
            file.write(f"{epoch}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, kept)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def is_there(folder: Path) -> bool:
    """True if there is a store, or a file that a lost one left behind."""
    path = folder / name_in(folder)
    return any(each.exists() for each in (path, log_of(path), folder / COUNTER, folder / EPOCH))


def without_store(folder: Path) -> Loss | None:
    """Return a loss if there is an epoch but no store. The epoch is first written after the store was created."""
    if (folder / EPOCH).exists() and not has_bytes(folder / NAME):
        return before_opening(folder) or Loss("the file is gone or empty, but brokers have used it", is_short=True)
    return None


def bad_epoch(folder: Path) -> str | None:
    """Return an error message about the epoch, or None."""
    try:
        read_epoch(folder)
    except FileNotFoundError:
        return None
    except ValueError:
        return f"{folder / EPOCH} does not contain a number"
    return None


def read_epoch(folder: Path) -> int:
    """Raises ValueError if the file does not contain a number."""
    epoch = int((folder / EPOCH).read_text())
    if epoch < 0:
        raise ValueError(epoch)
    return epoch


def before_opening(folder: Path) -> Loss | None:
    """Check the files without SQLite, which would remove the log of an empty file."""
    path = folder / NAME
    log = log_of(path)
    counted, is_clean = read_count(folder) or (Count(), True)
    if not has_bytes(path):
        if counted.commits:
            return Loss(f"the file is gone or empty, but {_counted(counted)}", is_short=is_blank(log))
        if not is_blank(log):
            return Loss("the file is gone or empty, but its log is there")
        return None
    if not is_clean and is_blank(log):
        how = f"its log is gone or empty, but the last run did not end cleanly, and {_counted(counted)}"
        return Loss(how, is_short=True)
    return None if is_blank(log) else _check_header(path)


def after_opening(connection: apsw.Connection, folder: Path) -> Loss | None:
    """Compare what SQLite has read with the log and with the count of acknowledged commits."""
    path = folder / NAME
    if has_bytes(log_of(path)):
        loss = _check_behind_end(connection, path)
        if loss is not None:
            return loss
    counted, _ = read_count(folder) or (Count(), True)
    if not counted.commits:
        return None
    if is_new(connection):
        return Loss(f"nothing is in the file, but {_counted(counted)}", is_short=True)
    try:
        found = Count.of(statements.read_note(connection, COMMITS))
    except (ValueError, UnicodeDecodeError):
        return Loss("the stored number of commits is invalid")
    if found.commits >= counted.commits:
        return None
    missing = counted.jobs - found.jobs
    accepted = f"{missing} jobs that were accepted between these times are missing, and so is " if missing > 0 else ""
    return Loss(
        f"it ends with commit {found.commits} of {_time(found.at)}, but {_counted(counted)}: "
        f"{accepted}every change of {'others' if accepted else 'jobs between these times is missing'}",
        is_short=True,
    )


def has_leftovers(connection: apsw.Connection, path: Path) -> bool:
    """True if a power failure left an incomplete transaction in the log, with its commit frame."""
    if not has_bytes(log_of(path)):
        return False
    with Log(log_of(path)) as log:
        return log.has_header and log.has_later_commit(_end_of_log(connection))


def _check_header(path: Path) -> Loss | None:
    """Check a log with an invalid header. SQLite ignores it, which is right if everything in it is in the file.

    That is so after a power failure while the header was rewritten, because that is done only after a merge.
    """
    with open(path, "rb") as file:
        size = page_size_of(file.read(HEADER))
        with Log(log_of(path), size) as log:
            if log.has_header or log.is_empty:
                return None
            log.adopt_salts()
            missing: dict[int, bytes] = {}
            is_merged = True
            for page, index in log.committed_pages().items():
                file.seek((page - 1) * size)
                known = file.read(size)
                if known != log.page(index):
                    is_merged = False
                    before = jobs_in(known) if len(known) == size else {}
                    missing |= {number: id for number, id in jobs_in(log.page(index)).items() if number not in before}
    if is_merged:
        return None
    return Loss("the header of its log is damaged, so that nothing of the log can be read", _names(missing))


def _check_behind_end(connection: apsw.Connection, path: Path) -> Loss | None:
    with Log(log_of(path)) as log:
        if not log.has_header:
            return None  # everything in it was merged
        end = _end_of_log(connection)
        behind = log.behind(end)
        if not behind:
            return None
        commits = sum(frame.commit > 0 for frame in behind)
        found: dict[int, bytes] = {}
        for frame in behind:
            found |= jobs_in(log.page(frame.index))
    if not is_new(connection):
        found = {number: id for number, id in found.items() if not statements.has_job(connection, number)}
    return Loss(
        f"its log is damaged at frame {end + 1}, and {commits} transactions behind that cannot be read", _names(found)
    )


def _end_of_log(connection: apsw.Connection) -> int:
    """Return the number of frames that SQLite treats as valid."""
    return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]


def _names(jobs: dict[int, bytes]) -> list[str]:
    return [jobs[number].hex() for number in sorted(jobs)]


def _counted(counted: Count) -> str:
    return f"{counted.commits} commits with {counted.jobs} jobs were acknowledged until {_time(counted.at)}"


def _time(at: float) -> str:
    return strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(at)) if at else "an unknown time"
