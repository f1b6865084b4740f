"""Finds the route of a request.

Paths are compared as they were sent, part by part: a service's name may contain a slash, written %2F, which does not
separate parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from dragoman.http.route import Route

Methods = dict[str, Route]


class Routes:
    """The routes of an application, by path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[str, Methods] = {}
        self._open: dict[int, list[tuple[list[str], Methods]]] = {}  # paths with names in them, by number of parts
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
        """Return the routes of a path as sent, by method, and the values of the names in it."""
        try:
            sent = path.decode("ascii")
        except UnicodeDecodeError:
            return None
        if sent in self._fixed:
            return self._fixed[sent], {}
        parts = sent.split("/")
        for pattern, methods in self._open.get(len(parts), ()):
            if all(expected[:1] == "{" or expected == part for expected, part in zip(pattern, parts, strict=True)):
                return self._named(methods, pattern, parts)
        return None

    def _named(self, methods: Methods, pattern: list[str], parts: list[str]) -> tuple[Methods, dict[str, str]] | None:
        names = {}
        for expected, part in zip(pattern, parts, strict=True):
            if expected[:1] == "{":
                try:
                    names[expected[1:-1]] = unquote_to_bytes(part).decode()
                except UnicodeDecodeError:
                    return None
        return (methods, names) if all(names.values()) else None
