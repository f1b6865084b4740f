"""`manage.py runworker`: a worker of the tasks of all installed applications."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections

from dragoman.integrations.django.apps import setting, task_modules
from dragoman.sdk.context import Context
from dragoman.sdk.hooks import JobHooks, add_hooks
from dragoman.sdk.worker import Worker


class OldConnections(JobHooks):
    """Closes database connections that are broken or too old, as Django does around requests."""

    def before(self, job: Context) -> None:
        close_old_connections()

    def after(self, job: Context) -> None:
        close_old_connections()

    def failed(self, job: Context, error: BaseException) -> None:
        close_old_connections()


class Command(BaseCommand):  # type: ignore[misc]
    help = "Run a Dragoman worker that offers the tasks of all installed applications, in threads."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--connect", metavar="URL", help="Address of the broker. [default: DRAGOMAN['URL']]")
        parser.add_argument("--threads", type=int, default=4, help="Jobs at the same time. [default: 4]")
        parser.add_argument("--service", action="append", default=[], help="Only these services; may be repeated.")

    def handle(self, *args: Any, **options: Any) -> None:
        worker = Worker(options["connect"] or setting("URL") or None, threads=options["threads"])
        worker.include(*task_modules())
        chosen = options["service"] or list(worker.services)
        unknown = [each for each in chosen if each not in worker.services]
        if unknown:
            raise CommandError(f"no task {unknown[0]!r}; tasks found: {', '.join(worker.services) or 'none'}")
        if not worker.services:
            raise CommandError("no tasks found: decorate functions with @dragoman.task in APPLICATION/tasks.py")
        worker.services = {name: worker.services[name] for name in chosen}
        add_hooks(OldConnections())
        code = worker.run()
        if code:
            raise CommandError(f"the worker ended with code {code}", returncode=code)
