"""A worker that makes pictures small. It needs Pillow: pip install pillow

    dragoman worker thumbnails:worker
    python shrink.py pictures small

The first in this folder, as often as you like, also on other machines. The second, in another terminal, sends it all
pictures of a folder; see shrink.py.
"""

import io

from dragoman import Worker
from PIL import Image

worker = Worker("tcp://127.0.0.1:7400")


@worker.service("thumbnail")
def thumbnail(picture: bytes) -> bytes:
    """Any format that Pillow reads goes in; a JPEG of at most 128 × 128 points comes out.

    What this raises, say for a file that is no picture, is raised again where the job came from, as JobFailed. And if
    Pillow ever crashes, that costs this one job: handlers run in child processes, one for each core.
    """
    small = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.thumbnail((128, 128))
        image.convert("RGB").save(small, "JPEG")
    return small.getvalue()
