"""Recipients: the counterparts of the core, who receive its effects.

They are classes and not protocols, because compiled code calls a class directly. The core never calls them.
"""

from __future__ import annotations

from inspect import isdatadescriptor

from mypy_extensions import mypyc_attr


class Effect:
    """An action that the core asks for. Two are equal when all their facts are, so that tests can compare lists."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Effect) and type(self) is type(other) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={fact!r}' for name, fact in self._facts().items())})"

    def _facts(self) -> dict[str, object]:
        """All it says, by name. Compiled classes have descriptors too, but no slots."""
        return {
            name: getattr(self, name)
            for name, value in vars(type(self)).items()
            if isdatadescriptor(value) and not name.startswith("_")
        }


@mypyc_attr(allow_interpreted_subclasses=True)
class Recipient:
    """Receives the effects that concern its callers and workers."""

    __slots__ = ()

    def execute(self, effect: Effect, now: float) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteWorker:
    """A session's own record of a worker: identities, request ids, what is on its way. The core never looks into it."""

    __slots__ = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class TimedRecipient(Recipient):
    """A recipient that also has work of its own which comes due."""

    __slots__ = ()

    def tick(self, now: float) -> float:
        """Do what is due, and return when to be called again."""
        raise NotImplementedError
