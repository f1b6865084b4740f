"""Types of functions that `task` decorates, for type checkers.

`Callable[Concatenate[Context, P], R]` also matches a function whose first parameter is Any or object, and
`Callable[P, Coroutine[Any, Any, R]]` one that returns Any. The protocols here have a second signature that only such
functions fit, so that overloads with them come first. mypy finds several overloads for a function with Any in these two
places, and takes its task for Any.
"""

from __future__ import annotations

from typing import Any, ParamSpec, Protocol, TypeVar, overload

from dragoman.sdk.context import Context

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Unrelated:
    """A type that no function of a user names."""


class TakesAnything(Protocol[P, R_co]):
    """A function whose first parameter takes an object of any type. It is no Context."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, first: Unrelated, /, *args: Any, **kwargs: Any) -> Any: ...


class ReturnsAny(Protocol[P]):
    """A function that returns Any. It is no coroutine function."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Unrelated: ...


class TakesContextReturnsAny(Protocol[P]):
    @overload
    def __call__(self, context: Context, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Unrelated: ...


class TakesAnythingReturnsAny(Protocol[P]):
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __call__(self, first: Unrelated, /, *args: Any, **kwargs: Any) -> Unrelated: ...
