"""The idle workers of a service, longest idle first (D7).

A linked list of nodes and a dictionary that finds them: taking the first, appending, removing and moving to the end
have constant cost. Compiled code has direct access to both, but not to an OrderedDict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

W = TypeVar("W")


class Node(Generic[W]):
    """The list entry of one worker."""

    __slots__ = ("after", "before", "worker")

    def __init__(self, worker: W) -> None:
        self.worker = worker
        self.before: Node[W] | None = None
        self.after: Node[W] | None = None


class IdleList(Generic[W]):
    """Ordered set of idle workers."""

    __slots__ = ("_first", "_last", "_nodes", "length")

    def __init__(self) -> None:
        self.length = 0
        self._nodes: dict[W, Node[W]] = {}
        self._first: Node[W] | None = None
        self._last: Node[W] | None = None

    def first(self) -> W | None:
        """Return the worker that has been idle longest."""
        return self._first.worker if self._first is not None else None

    def append(self, worker: W) -> None:
        """Add a worker at the end. A worker that is already in the list keeps its place."""
        if worker not in self._nodes:
            node = self._nodes[worker] = Node(worker)
            self.length += 1
            self._link_last(node)

    def prepend(self, worker: W) -> None:
        """Move or add a worker to the front."""
        self.remove(worker)
        node = self._nodes[worker] = Node(worker)
        self.length += 1
        first = self._first
        node.after = first
        if first is not None:
            first.before = node
        else:
            self._last = node
        self._first = node

    def move_to_end(self, worker: W) -> bool:
        """Move a worker to the end. Returns whether it is in the list."""
        node = self._nodes.get(worker)
        if node is None:
            return False
        if node is not self._last:
            self._unlink(node)
            self._link_last(node)
        return True

    def remove(self, worker: W) -> None:
        """Remove a worker, if it is in the list."""
        node = self._nodes.get(worker)
        if node is not None:
            del self._nodes[worker]
            self.length -= 1
            self._unlink(node)

    def __len__(self) -> int:
        return self.length

    def __contains__(self, worker: object) -> bool:
        return worker in self._nodes

    def __iter__(self) -> Iterator[W]:
        """Iterate over the workers, longest idle first. The list must not change meanwhile."""
        node = self._first
        while node is not None:
            yield node.worker
            node = node.after

    def _link_last(self, node: Node[W]) -> None:
        last = self._last
        node.before = last
        if last is not None:
            last.after = node
        else:
            self._first = node
        self._last = node

    def _unlink(self, node: Node[W]) -> None:
        before, after = node.before, node.after
        if before is not None:
            before.after = after
        else:
            self._first = after
        if after is not None:
            after.before = before
        else:
            self._last = before
        node.before = node.after = None
