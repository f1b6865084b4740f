"""Jobs that are enqueued when the transaction is committed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec

P = ParamSpec("P")


def on_commit(enqueue: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Call this when the current transaction is committed; at once if there is none, and never if it is rolled back.

        on_commit(send_mail.enqueue, user.id)

    The worker then sees what the transaction has written. Arguments are checked now, if `enqueue` is of a task.
    """
    from django.db import transaction

    task = getattr(enqueue, "__self__", None)
    check = getattr(task, "check_arguments", None)
    if check is not None:
        check(*args, **kwargs)
    transaction.on_commit(partial(enqueue, *args, **kwargs))
