"""Recipients: broker sides that receive the core's effects.

They are classes and not protocols, because compiled code calls a class directly. The core never calls them.
"""

from __future__ import annotations

from inspect import isdatadescriptor

from mypy_extensions import mypyc_attr


class Effect:
    """An action that the core requests. Effects with equal fields are equal, so that tests can compare lists."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Effect) and type(self) is type(other) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={fact!r}' for name, fact in self._facts().items())})"

    def _facts(self) -> dict[str, object]:
        """Return all fields by name. Compiled classes have descriptors too, but no slots."""
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

    def unsent(self, remote: RemoteWorker) -> int:
        """Return the bytes that wait to be sent to a worker. If there are many, an iteration follows when they have
        become few."""
        return 0


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteWorker:
    """A broker side's record of a worker: identities, request ids, unsent messages. The core never reads it."""

    __slots__ = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class TimedRecipient(Recipient):
    """A recipient that also has timers of its own."""

    __slots__ = ()

    def tick(self, now: float) -> float:
        """Handle what is due, and return the time of the next call."""
        raise NotImplementedError


def dialect_of(recipient: Recipient) -> str:
    """Return the name of a broker side's dialect, for labels and events."""
    dialect: str = getattr(recipient, "dialect", "?")
    return dialect
