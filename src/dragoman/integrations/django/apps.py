"""The application: sets the address of the broker for tasks, and finds the tasks of all applications."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_module, module_has_submodule

from dragoman.tasks.clients import set_default_url

KNOWN = {"URL": "", "TASKS": "tasks"}


class DragomanConfig(AppConfig):  # type: ignore[misc]
    name = "dragoman.integrations.django"
    label = "dragoman"
    verbose_name = "Dragoman"

    def ready(self) -> None:
        url = setting("URL")
        if url:
            set_default_url(url)


def setting(name: str) -> str:
    """Return a setting of DRAGOMAN. Raises ImproperlyConfigured."""
    given: Any = getattr(settings, "DRAGOMAN", {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured('DRAGOMAN must be a dict, such as {"URL": "tcp://broker:7400"}')
    unknown = next((each for each in given if each not in KNOWN), None)
    if unknown is not None:
        raise ImproperlyConfigured(f"DRAGOMAN has an unknown key {unknown!r}; known keys: {', '.join(KNOWN)}")
    return str(given.get(name, KNOWN[name]))


def task_modules() -> list[ModuleType]:
    """Import and return the modules of tasks of all installed applications: `tasks`, or DRAGOMAN["TASKS"]."""
    name = setting("TASKS")
    return [
        import_module(f"{each.name}.{name}")
        for each in apps.get_app_configs()
        if module_has_submodule(each.module, name)
    ]
