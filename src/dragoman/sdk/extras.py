"""Packages that only parts of Dragoman need, and the extras that install them; modules that not every system has.

`pip install dragoman` is the client side. Whatever needs one of these packages imports it when it is used; without the
package it ends with one sentence that says what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

# The extra of each package, by the name under which it is imported. pyproject.toml has the same, by distribution.
EXTRAS: Final = {
    "apsw": "broker",
    "httptools": "broker",
    "starlette": "broker",
    "structlog": "broker",
    "tzdata": "broker",
    "uvicorn": "broker",
    "cbor2": "cbor",
    "nacl": "curve",
    "uvloop": "uvloop",
    "django": "django",
    "opentelemetry": "opentelemetry",
    "sentry_sdk": "sentry",
}

# Modules of Python on Linux and macOS that it does not have on Windows (R265).
SYSTEM_MODULES: Final = ("fcntl", "grp", "pwd", "resource", "termios", "tty")


class MissingPackage(ModuleNotFoundError):
    """A part of Dragoman needs the package of an extra that is not installed, or a module that this system does not
    have."""


@contextmanager
def needed_by(subject: str) -> Iterator[None]:
    """Raise MissingPackage for an import in this block that fails because the package of an extra is not installed, or
    because this system does not have the module.

    `subject`: the part that needs it, such as `LocalBroker` or `dragoman serve`.
    """
    try:
        yield
    except MissingPackage:
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in SYSTEM_MODULES:
            sentence = f"{subject} needs Python's module {package!r}, which this system does not have. "
            raise MissingPackage(f"{sentence}Run it on Linux", name=error.name) from error
        if package not in EXTRAS:
            raise
        sentence = f"{subject} needs the package {package!r}, which is not installed. Install it with the extra "
        extra = EXTRAS[package]
        raise MissingPackage(f"{sentence}{extra!r}: pip install 'dragoman[{extra}]'", name=error.name) from error


def require(extra: str) -> None:
    """Import the packages of an extra, for a command that starts other processes with them."""
    for package, its_extra in EXTRAS.items():
        if its_extra == extra:
            import_module(package)
