"""The payload of a job as a file, whole or in part; and views of jobs without content, for listeners that show none."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace
from starlette.responses import Response

from dragoman.core.model import Payload
from dragoman.http.headers import Header
from dragoman.http.outcomes import JOB
from dragoman.http.problems import problem
from dragoman.http.route import BYTES
from dragoman.operations.schemas import JobView

RANGE: Final = Header("Range", str, "`bytes=0-4095`: only these bytes. Several ranges are not supported.")
CONTENT_RANGE: Final = Header("Content-Range", str, "`bytes 0-4095/428113`: the bytes of this response, and the size.")
ONE_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
HIDDEN: Final = (
    "This listener has payloads=false: it shows the sizes of payloads only. Use another listener, or "
    "`dragoman job --payload` on another address."
)


def payload_response(id: str, payload: Payload, wanted: str | None) -> Response:
    """Return the bytes of a payload, which a browser saves and never shows. `wanted`: the header Range of the request.
    A range that cannot be read is ignored, as RFC 9110 demands."""
    size = len(payload)
    headers = {
        JOB: id,
        "Content-Disposition": f'attachment; filename="{id}.payload"',
        "Accept-Ranges": "bytes",
    }
    found = _bounds(wanted, size) if wanted is not None else None
    if found is None:
        return Response(bytes(payload), headers=headers, media_type=BYTES)
    first, last = found
    if first >= size:
        detail = f"The payload has {size} bytes; the range {wanted!r} begins behind them."
        return problem(416, "no-such-range", "No such range", detail, [("Content-Range", f"bytes */{size}")])
    headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return Response(bytes(payload[first : last + 1]), 206, headers, media_type=BYTES)


def hidden_payload() -> Response:
    return problem(403, "payloads-hidden", "Payloads are hidden", HIDDEN)


def without_content(view: JobView) -> JobView:
    """Return the view with the sizes of payload and result, and without their bytes. Progress is content, too, and so
    is the worker's error: it may have values of the payload, and the lines of its traceback."""
    return replace(view, payload=None, result=None, result_base64=None, progress=None, error=None)


def _bounds(wanted: str, size: int) -> tuple[int, int] | None:
    """Return the first and the last byte of a range; None: it is not one range of bytes."""
    found = ONE_RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        last_bytes = int(found[2])
        return (size - min(last_bytes, size), size - 1) if last_bytes else (size, size)
    first, last = int(found[1]), int(found[2] or size)
    return (first, min(last, size - 1)) if first <= last else None
