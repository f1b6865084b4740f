"""Editions of Majordomo: the frames that each uses on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Edition(Enum):
    """Variant of Majordomo, as named in URLs."""

    RFC7 = "0.1"
    RFC18 = "0.2"
    DELIMITED = "0.2-delimited"  # the same after an empty frame, as from a REQ socket
    FIELD = "0.2-field"  # the reading of RFC 18 in common packages


@dataclass(frozen=True, slots=True, kw_only=True)
class EditionFrames:
    """Constant frames and command numbers of an edition. None: there is no such frame."""

    edition: Edition
    client_head: tuple[bytes, ...]  # beginning of every message from and to a client
    client_request: bytes | None
    client_partial: bytes | None
    client_final: bytes | None
    names_service: bool  # in replies to clients
    worker_head: tuple[bytes, ...]
    ready: bytes = b"\x01"
    request: bytes = b"\x02"
    partial: bytes | None = b"\x03"
    final: bytes = b"\x04"
    heartbeat: bytes = b"\x05"
    disconnect: bytes = b"\x06"

    @property
    def reply_name(self) -> str:
        """Name of the message that ends a job."""
        return "REPLY" if self.partial is None else "FINAL"


RFC7: Final = EditionFrames(
    edition=Edition.RFC7,
    client_head=(b"", b"MDPC01"),
    client_request=None,
    client_partial=None,
    client_final=None,
    names_service=True,
    worker_head=(b"", b"MDPW01"),
    partial=None,
    final=b"\x03",
    heartbeat=b"\x04",
    disconnect=b"\x05",
)

RFC18: Final = EditionFrames(
    edition=Edition.RFC18,
    client_head=(b"MDPC02",),
    client_request=b"\x01",
    client_partial=b"\x02",
    client_final=b"\x03",
    names_service=True,
    worker_head=(b"MDPW02",),
)

DELIMITED: Final = EditionFrames(
    edition=Edition.DELIMITED,
    client_head=(b"", b"MDPC02"),
    client_request=b"\x01",
    client_partial=b"\x02",
    client_final=b"\x03",
    names_service=True,
    worker_head=(b"", b"MDPW02"),
)

FIELD: Final = EditionFrames(
    edition=Edition.FIELD,
    client_head=(b"", b"MDPC02"),
    client_request=b"\x02",
    client_partial=b"\x03",
    client_final=b"\x04",
    names_service=False,
    worker_head=(b"", b"MDPW02"),
)

WIRES: Final[Mapping[Edition, EditionFrames]] = {wire.edition: wire for wire in (RFC7, RFC18, DELIMITED, FIELD)}
