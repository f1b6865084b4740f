"""Many jobs in the bytes of one payload, for the operation `enqueue many`.

Each job is, without anything in between:

    16 bytes    its id, chosen by the client; zeros: the broker chooses
    4 bytes     length of its fields, big-endian; 0: it has none of its own
    ...         its fields, a JSON object
    4 bytes     length of its payload, big-endian
    ...         its payload
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

from dragoman.core.parts import Payload

NAME: Final = 16
NO_ID: Final = bytes(NAME)
LENGTH: Final = 4
MOST_FIELDS: Final = 65_536  # bytes of the fields of one job
_length: Final = Struct(">I")

PackedJob = tuple[bytes, bytes, Payload]  # id, fields, payload


def pack_jobs(jobs: Iterable[PackedJob]) -> bytes:
    pieces: list[Payload] = []
    for id, fields, payload in jobs:
        pieces += (id, _length.pack(len(fields)), fields, _length.pack(len(payload)), payload)
    return b"".join(pieces)


def packed_bytes(fields: bytes, payload: Payload) -> int:
    """Return the bytes that a packed job takes."""
    return NAME + 2 * LENGTH + len(fields) + len(payload)


def unpack_jobs(packed: Payload, most: int) -> list[PackedJob]:
    """Return the jobs. Raises ValueError if they are not packed as above, or are more than `most`."""
    found: list[PackedJob] = []
    at, end = 0, len(packed)
    while at < end:
        if len(found) == most:
            raise ValueError(f"there are more than {most} jobs")
        id = bytes(packed[at : at + NAME])
        fields_at = at + NAME + LENGTH
        payload_at = fields_at + _length_at(packed, at + NAME) + LENGTH
        if payload_at - LENGTH - fields_at > MOST_FIELDS:
            raise ValueError(f"job {len(found)} has more than {MOST_FIELDS} bytes of fields")
        at = payload_at + _length_at(packed, payload_at - LENGTH)
        if at > end:
            raise ValueError(f"the payload ends within job {len(found)}")
        found.append((id, bytes(packed[fields_at : payload_at - LENGTH]), bytes(packed[payload_at:at])))
    return found


def hide_packed(packed: Payload, hide_fields: Callable[[bytes], bytes], hide: Callable[[Payload], bytes]) -> bytes:
    """Return the jobs with their payloads replaced, for recordings. Raises ValueError."""
    jobs = unpack_jobs(packed, len(packed))
    return pack_jobs((id, hide_fields(fields) if fields else b"", hide(payload)) for id, fields, payload in jobs)


def _length_at(packed: Payload, at: int) -> int:
    if at + LENGTH > len(packed):
        raise ValueError("the payload ends within the length of a job")
    return int(_length.unpack_from(packed, at)[0])
