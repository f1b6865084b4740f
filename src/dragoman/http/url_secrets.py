"""Secrets in URLs: they would end up in histories, logs and proxies, so such a request is rejected (R161)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

KEYS: Final = ("token", "access_token")
TOKEN_PREFIX: Final = "dgm_"  # noqa: S105
TOKEN: Final = re.compile(rb"dgm_[\w-]{8}")  # in a path a service may begin like one
USER_INFO: Final = re.compile(rb"[a-z][a-z0-9+.-]*://[^/?#]*@", re.IGNORECASE)


def has_secret(target: bytes) -> bool:
    """Tell if the target of a request has a token in its path or query, or a user name or password before its host."""
    if target[:1] == b"/" and b"?" not in target and b"dgm_" not in target and b"%" not in target:
        return False  # nearly every request
    path, question, query_bytes = target.partition(b"?")
    if (path[:1] != b"/" and USER_INFO.match(target) is not None) or TOKEN.search(unquote_to_bytes(path)) is not None:
        return True
    if not question:
        return False
    query = query_bytes.decode("latin-1")
    pairs = parse_qsl(query, keep_blank_values=True, encoding="latin-1")
    return any(name.lower() in KEYS or value.startswith(TOKEN_PREFIX) for name, value in pairs)
