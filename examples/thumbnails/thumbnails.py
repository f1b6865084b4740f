"""A worker that shrinks pictures. It needs Pillow: pip install pillow

    dragoman worker thumbnails:worker
    python shrink.py pictures small

Run the first command in this folder, in any number of processes, also on other machines. The second, in another
terminal, sends it all pictures of a folder; see shrink.py.
"""

import io

from dragoman import Worker
from PIL import Image

worker = Worker("tcp://127.0.0.1:7400")


@worker.service("thumbnail")
def thumbnail(picture: bytes) -> bytes:
    """Convert a picture in any format that Pillow reads to a JPEG of at most 128 × 128 pixels.

    An exception, such as for a file that is not a picture, is raised again in the caller, as JobFailed. If Pillow
    crashes, only this job is lost: handlers run in child processes, one for each core.
    """
    small = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.thumbnail((128, 128))
        image.convert("RGB").save(small, "JPEG")
    return small.getvalue()
