"""Hooks: functions of a program that are called before and after each job of its workers, and on failure."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.sdk.context import Context

log = logging.getLogger("dragoman.worker")
registered: list[JobHooks] = []  # in the order of registration


class JobHooks:
    """Base class of hooks. Override the methods you need, and pass an object to `add_hooks`.

        class Timing(JobHooks):
            def before(self, job: Context) -> None: ...

    They run where the handler runs: in its child process, thread or event loop, so a module that the handler's module
    imports must add them. For one job, `before` of all hooks is called in the order of registration, and `after` or
    `failed` in the reverse order. An exception of a hook is logged and does not change the job.
    """

    def before(self, job: Context) -> None:
        """Receive a job whose handler will be called."""

    def after(self, job: Context) -> None:
        """Receive a job whose handler has returned a result that can be encoded."""

    def failed(self, job: Context, error: BaseException) -> None:
        """Receive a job that failed: the handler's exception, or the one of its arguments or its result."""


def add_hooks(hooks: JobHooks) -> None:
    """Call these hooks for every job that workers of this process run from now on. Adding them twice has no effect."""
    if hooks not in registered:
        registered.append(hooks)


def remove_hooks(hooks: JobHooks) -> None:
    """Call these hooks no more."""
    if hooks in registered:
        registered.remove(hooks)


@contextmanager
def around(job: Context) -> Iterator[None]:
    """Call the hooks of a job that runs within this block."""
    hooks = list(registered)
    for each in hooks:
        _call(each, "before", job)
    try:
        yield
    except BaseException as error:
        for each in reversed(hooks):
            _call(each, "failed", job, getattr(error, "cause", None) or error)
        raise
    for each in reversed(hooks):
        _call(each, "after", job)


def _call(hooks: JobHooks, name: str, *args: Any) -> None:
    try:
        getattr(hooks, name)(*args)
    except BaseException:  # SystemExit, too: it would end the thread or the event loop that runs the handlers
        log.exception("the hook %s.%s failed", type(hooks).__qualname__, name)
