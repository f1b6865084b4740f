"""What calls ask for by their headers, read once for all calls that say the same."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from dragoman.core.options import DEFAULT_PRIORITY, JobOptions
from dragoman.http.headers import Header
from dragoman.http.options import ListenerOptions
from dragoman.http.problems import HttpError, problem_response
from dragoman.operations.schemas import Attempts, ErrorView, JobTimeout, Key, Priority
from dragoman.operations.validation import explain

if TYPE_CHECKING:
    from starlette.types import Scope

MOST_PLANS = 1024  # different sets of wishes that are remembered
LONGEST_PLAN = 256  # bytes of one that is

HEADERS = (
    Header("Dragoman-Timeout", JobTimeout | None, "The caller's patience over everything, in seconds; null: no limit."),
    Header("Dragoman-Job-Timeout", JobTimeout | None, "How long one attempt may run, in seconds; null: no limit."),
    Header("Dragoman-Priority", Priority, "The higher the sooner; a step is worth a minute of waiting."),
    Header("Dragoman-Attempts", Attempts, "How many workers it may be given to, one after the other."),
    Header("Dragoman-Wait-For-Worker", bool, "Wait for a worker, even if none offers the service."),
    Header("Idempotency-Key", Key, "A call of the same key joins the first one."),
)
KINDS = {header.name.lower().encode(): header for header in HEADERS}
KEY = b"idempotency-key"


class CallHeaders:
    """What the headers of a call ask for."""

    __slots__ = ("key", "options", "patience")

    def __init__(self, said: dict[bytes, Any], options: ListenerOptions) -> None:
        self.patience: float = said.get(b"dragoman-timeout") or inf
        self.key: str | None = said.get(KEY)
        default = inf if b"dragoman-timeout" in said else options.job_timeout  # a deadline alone judges
        self.options = JobOptions(
            queue_timeout=options.queue_timeout or inf,
            job_timeout=said.get(b"dragoman-job-timeout", default) or inf,
            attempts=said.get(b"dragoman-attempts", options.attempts),
            priority=said.get(b"dragoman-priority", DEFAULT_PRIORITY),
            waits=said.get(b"dragoman-wait-for-worker", False),
        )


class CallHeadersCache:
    """The plans of calls, each read once."""

    def __init__(self, options: ListenerOptions) -> None:
        self._options = options
        self._known: dict[tuple[tuple[bytes, bytes], ...], CallHeaders] = {}

    def of(self, scope: Scope) -> CallHeaders:
        said = tuple(each for each in scope["headers"] if each[0] in KINDS)
        plan = self._known.get(said)
        if plan is None:
            plan = CallHeaders(_read(said), self._options)
            if plan.key is None and sum(len(value) for _, value in said) <= LONGEST_PLAN:
                if len(self._known) >= MOST_PLANS:
                    self._known.clear()
                self._known[said] = plan
        return plan


def _read(said: tuple[tuple[bytes, bytes], ...]) -> dict[bytes, Any]:
    words: dict[bytes, Any] = {}
    for name, word in said:
        header = KINDS[name]
        if name in words:
            _object(header, "say it once")
        try:
            words[name] = msgspec.convert(word.decode(), header.kind, strict=False)
        except UnicodeDecodeError:
            _object(header, "it is not UTF-8")
        except msgspec.ValidationError as error:
            _object(header, explain(error, header.kind))
    return words


def _object(header: Header, detail: str) -> NoReturn:
    raise HttpError(problem_response(ErrorView(kind="invalid", detail=f"{header.name}: {detail}")))
