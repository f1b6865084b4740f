"""Django: an application for INSTALLED_APPS, with settings, tasks of all applications, and `manage.py runworker`.

INSTALLED_APPS = [..., "dragoman.integrations.django"]
DRAGOMAN = {"URL": "tcp://broker:7400"}
"""

from __future__ import annotations

from dragoman.integrations.django.transactions import on_commit

__all__ = ["on_commit"]
