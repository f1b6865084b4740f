"""Finds the access folder of a broker, and opens its table. A table that has vanished never means open access.

The folder is the setting `access`; else `access` beside the configuration file or in the data folder. Without any of
these there is no table. The data folder remembers that there was one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dragoman.access.folder import load_folder
from dragoman.access.private_files import remove_file, write_file
from dragoman.access.problems import access_error
from dragoman.access.table import AccessTable

FOLDER = "access"
MARKER = "access-required"  # in the data folder: a broker had a table; has the path of its folder


@dataclass(frozen=True, slots=True)
class AccessPlaces:
    """The places in which the access folder of a broker may be."""

    setting: str = ""  # the setting `access`
    config: Path | None = None  # the configuration file
    data: Path | None = None  # the data folder; None: the broker has none

    def find(self, *, to_create: bool = False) -> Path | None:
        """The access folder, or None if there is none. Raises AccessError if there are two, and if the setting names a
        folder that does not exist, unless the caller intends to create it."""
        if self.setting:
            named = Path(self.setting).expanduser()
            if not _exists(named):
                if to_create:
                    return None
                raise access_error(
                    named,
                    "does not exist, and the setting access names it; create it (an empty one admits no principal)",
                )
            return named
        found = [each for each in self._defaults() if _exists(each)]
        if len(found) > 1:
            raise access_error(
                found[0], f"is an access folder, and so is {found[1]}; remove one, or name one in the setting access"
            )
        return found[0] if found else None

    def place_for_new(self) -> Path:
        """The folder to create if there is none. Raises AccessError if no place is known."""
        if self.setting:
            return Path(self.setting).expanduser()
        if not self._defaults():
            raise access_error(
                FOLDER, "has no place: there is neither a configuration file nor a data folder; name it with --access"
            )
        return self._defaults()[0]

    def _defaults(self) -> list[Path]:
        beside = [self.config.parent / FOLDER] if self.config is not None else []
        return beside + ([self.data / FOLDER] if self.data is not None else [])


def open_table(places: AccessPlaces, uid: int, *, no_access: bool = False) -> AccessTable | None:
    """The table that a broker must use; None if it has none, and every peer that reaches it has all rights.

    Writes to the data folder that there is a table. If there was one and is none now, raises AccessError, unless
    `no_access`, by which the operator confirms that there is none. `no_access` with a table is an error, too.
    """
    folder = places.find()
    if folder is None:
        if no_access and places.data is not None and _exists(places.data / MARKER):
            remove_file(places.data / MARKER)
        check_never_had(places.data)
        return None
    if no_access:
        raise access_error(folder, "exists, and --no-access was given; remove the one or the other")
    table = load_folder(folder, uid)
    if places.data is not None:
        _remember(places.data / MARKER, folder)
    return table


def check_never_had(data: Path | None) -> None:
    """Raise AccessError if a broker with this data folder had a table."""
    if data is None or not _exists(data / MARKER):
        return
    former = (data / MARKER).read_text("utf-8", "replace").strip()
    raise access_error(
        former or data / FOLDER,
        f"is missing: the last broker with the data folder {data} had its principals there. Restore it, name another "
        "in the setting access, or start once with --no-access to let every peer do everything",
    )


def _remember(marker: Path, folder: Path) -> None:
    content = f"{folder.absolute()}\n".encode("utf-8", "surrogateescape")
    if not _exists(marker) or marker.read_bytes() != content:
        write_file(marker, content)


def _exists(path: Path) -> bool:
    """True if there is a file, folder or link of this name. Raises AccessError if that cannot be found out: a folder
    that must not be read is not one that is missing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise access_error(path, f"cannot be looked at: {getattr(error, 'strerror', None) or error}") from None
    return True
