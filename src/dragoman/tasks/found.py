"""Finds the tasks of a module."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dragoman.tasks.task import Task


def tasks_in(module: ModuleType) -> list[Task[Any, Any]]:
    """Return the tasks at the top level of a module, in the order of their definition. Imported ones count, too."""
    found = [each for each in vars(module).values() if isinstance(each, Task)]
    return list({id(each): each for each in found}.values())
