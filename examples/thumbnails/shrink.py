"""Thumbnails of all pictures in a folder, made by the workers of thumbnails.py.

    python shrink.py pictures small

The first folder is read, the second is written.
"""

import sys
from pathlib import Path

from dragoman import Client, JobFailed

SUFFIXES = {".gif", ".jpeg", ".jpg", ".png", ".webp"}


def shrink(source: Path, target: Path) -> None:
    pictures = sorted(path for path in source.iterdir() if path.suffix.lower() in SUFFIXES)
    target.mkdir(exist_ok=True)
    with Client("tcp://127.0.0.1:7400") as client:
        # Results arrive in the order of the pictures. Files are read only a little ahead of the results, so that a
        # folder may be larger than memory.
        thumbnails = client.map("thumbnail", (path.read_bytes() for path in pictures))
        for path, thumbnail in zip(pictures, thumbnails, strict=True):
            (target / f"{path.stem}.jpg").write_bytes(thumbnail)
            print(f"{path.name}: {path.stat().st_size} bytes, now {len(thumbnail)}")


if __name__ == "__main__":
    try:
        shrink(Path(sys.argv[1]), Path(sys.argv[2]))
    except JobFailed as error:  # the worker's function raised an exception
        sys.exit(f"cannot shrink a picture: {error.remote_message}")
