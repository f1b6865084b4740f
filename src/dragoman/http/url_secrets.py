"""Secrets in URLs: they would end up in histories, logs and proxies, so such a request is rejected (R161)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

KEYS: Final = ("token", "access_token")
TOKEN_PREFIX: Final = "dgm_"  # noqa: S105
USER_INFO: Final = re.compile(rb"[a-z][a-z0-9+.-]*://[^/?#]*@", re.IGNORECASE)


def has_secret(target: bytes) -> bool:
    """Tell if the target of a request has a token in its query, or a user name or password before its host."""
    if b"?" not in target:
        return target[:1] != b"/" and USER_INFO.match(target) is not None
    query = target.partition(b"?")[2].decode("latin-1")
    if USER_INFO.match(target) is not None:
        return True
    pairs = parse_qsl(query, keep_blank_values=True, encoding="latin-1")
    return any(name.lower() in KEYS or value.startswith(TOKEN_PREFIX) for name, value in pairs)
