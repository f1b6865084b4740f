"""Finds the route of a request.

Paths are compared as they were sent, part by part: a service's name may have a slash in it, written %2F, and that is
none of the path's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from dragoman.http.route import Route

Methods = dict[str, Route]


class Routes:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[str, Methods] = {}
        self._open: dict[int, list[tuple[list[str], Methods]]] = {}  # with names in them, by how many parts
        seen: dict[str, Methods] = {}
        for route in routes:
            path = route.path
            if path not in seen:
                seen[path] = {}
                parts = path.split("/")
                if "{" in path:
                    self._open.setdefault(len(parts), []).append((parts, seen[path]))
                else:
                    self._fixed[path] = seen[path]
            assert route.method not in seen[path], f"two routes are {route.method} {path}"
            seen[path][route.method] = route

    def find(self, path: bytes) -> tuple[Methods, dict[str, str]] | None:
        """The routes of a path as it was sent, by method, and what stands for the names in it."""
        try:
            sent = path.decode("ascii")
        except UnicodeDecodeError:
            return None
        if sent in self._fixed:
            return self._fixed[sent], {}
        parts = sent.split("/")
        for wanted, methods in self._open.get(len(parts), ()):
            if all(want[:1] == "{" or want == part for want, part in zip(wanted, parts, strict=True)):
                return self._named(methods, wanted, parts)
        return None

    def _named(self, methods: Methods, wanted: list[str], parts: list[str]) -> tuple[Methods, dict[str, str]] | None:
        names = {}
        for want, part in zip(wanted, parts, strict=True):
            if want[:1] == "{":
                try:
                    names[want[1:-1]] = unquote_to_bytes(part).decode()
                except UnicodeDecodeError:
                    return None
        return (methods, names) if all(names.values()) else None
