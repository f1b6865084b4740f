"""Host names that the listener serves, so that a foreign page cannot use it through a browser (T12)."""

from __future__ import annotations

import re
from collections.abc import Iterable

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
PAGE_PATHS = (  # of the dashboard
    "/",
    "/services",
    "/service/{name}",
    "/workers",
    "/worker/{id}",
    "/jobs",
    "/job/{id}",
    "/quarantine",
    "/schedules",
    "/broker",
)
# Other sites may link to the pages for people, for example a chat.
PAGES = frozenset(path.encode() for path in (*PAGE_PATHS, "/login", "/account") if "{" not in path)
PAGE_PREFIXES = tuple(path.partition("{")[0].encode() for path in PAGE_PATHS if "{" in path)
CACHE_SIZE = 64
AUTHORITY = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?")
ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)


class Hosts:
    """Allowed names, in any case and with any port. Accepted spellings are cached."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._names = {_bare(name) for name in (*LOOPBACK_NAMES, *more)}
        self._good: set[bytes] = set()
        self._addresses: set[str] = set()
        self.is_tls = False  # the listener has TLS

    def allow(self, name: str) -> None:
        self._names.add(_bare(name))

    def allow_address(self, address: str) -> None:
        """Allow an address of this machine at which a connection has arrived, as a listener on 0.0.0.0 has several. No
        name of an attacker is spelled so (T12)."""
        if address not in self._addresses:
            self._addresses.add(address)
            self.allow(address.partition("%")[0].removeprefix("::ffff:"))

    def allows(self, host: bytes) -> bool:
        if host in self._good:
            return True
        found = AUTHORITY.fullmatch(host.lower())
        if found is None or found[1].removesuffix(b".") not in self._names:
            return False
        if len(self._good) < CACHE_SIZE:
            self._good.add(host)
        return True

    def allows_target(self, target: bytes) -> bool:
        """Tell if a URL as target is for this server: its host counts, not the field Host (RFC 9112, 3.2.2)."""
        found = ABSOLUTE.match(target)
        return found is not None and self.allows(found[1])


def is_own_origin(origin: bytes, host: bytes, *, is_tls: bool) -> bool:
    """Tell if the requesting page was served under this name and port. Without TLS here, the scheme may be a proxy's.
    With it, a page without TLS is foreign: anybody on the way may have written it."""
    origin, host = origin.lower(), host.lower()
    return host != b"" and (origin == b"https://" + host or (not is_tls and origin == b"http://" + host))


def is_foreign_page(site: bytes, method: bytes, target: bytes) -> bool:
    """Tell if a page of another site sends this request, by its Sec-Fetch-Site. It may link to the pages for people."""
    if site != b"cross-site":
        return False
    path = target.partition(b"?")[0]
    return method not in (b"GET", b"HEAD") or not (path in PAGES or path.startswith(PAGE_PREFIXES))


def _bare(name: str) -> bytes:
    """Normalise a name as in Host: lower case, without port; an IPv6 address has brackets."""
    name = name.strip().lower()
    if name.count(":") == 1:
        name = name.partition(":")[0]
    elif ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return name.removesuffix(".").encode("ascii" if name.isascii() else "idna")


def is_local(host: str) -> bool:
    """Tell if the address of a connection is on this machine. Empty: a Unix socket."""
    return host in ("", "::1") or host.startswith(("127.", "::ffff:127."))
