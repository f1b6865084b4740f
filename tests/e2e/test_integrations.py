"""Integrations: ASGI applications, Django and Sentry, each with its own package."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
import sentry_sdk

from dragoman import Context, JobCancelled, JobFailed, LocalBroker, Retry, Worker, task
from dragoman.integrations.asgi import DragomanMiddleware, until_disconnect
from dragoman.integrations.sentry import _hooks as sentry_hooks
from dragoman.integrations.sentry import report_failures
from dragoman.sdk.hooks import remove_hooks
from programs import Programs

Message = MutableMapping[str, Any]


@task
def double(number: int) -> int:
    return 2 * number


@task
def wait_for_cancel(ctx: Context) -> str:
    ctx.progress(1)
    while not ctx.cancelled:
        pass
    return "cancelled"


@task
def fail(word: str) -> None:
    raise Retry(0, word) if word == "again" else LookupError(word)


# -------------------------------------------------------------------- ASGI


class Requests:
    """An application's server: one lifespan, and requests within it."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[str] = []

    async def __aenter__(self) -> Requests:
        self._lifespan = asyncio.create_task(self._app({"type": "lifespan"}, self._events.get, self._note))
        await self._events.put({"type": "lifespan.startup"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.put({"type": "lifespan.shutdown"})
        await self._lifespan

    async def _note(self, message: Message) -> None:
        self.sent.append(message["type"])

    async def get(self, path: str, receive: Any = None) -> bytes:
        body = b""

        async def send(message: Message) -> None:
            nonlocal body
            body += message.get("body", b"")

        await self._app({"type": "http", "path": path}, receive, send)
        return body


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            event = await receive()
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                return
    number = await double.acall(int(scope["path"][1:]))
    assert scope["dragoman"].url
    await send({"type": "http.response.body", "body": b"%d" % number})


def test_tasks_of_an_asgi_application_use_its_client(
    dragoman_broker: LocalBroker, dragoman_worker: Callable[..., Worker]
) -> None:
    dragoman_worker(double)

    async def main() -> None:
        async with Requests(DragomanMiddleware(application, dragoman_broker.url)) as server:
            assert await asyncio.gather(*(server.get(f"/{number}") for number in range(3))) == [b"0", b"2", b"4"]
        assert server.sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    asyncio.run(main())  # an unclosed client would be a warning, and warnings are errors


def test_job_is_cancelled_when_its_request_disconnects(dragoman_worker: Callable[..., Worker]) -> None:
    dragoman_worker(wait_for_cancel, double)

    class Request:
        def __init__(self) -> None:
            self.messages: asyncio.Queue[Message] = asyncio.Queue()
            self.receive = self.messages.get

    async def main() -> None:
        request = Request()
        assert await until_disconnect(request, double.acall(4)) == 8
        job = wait_for_cancel.asubmit()
        waiting = asyncio.create_task(until_disconnect(request, job))
        await request.messages.put({"type": "http.request"})
        await request.messages.put({"type": "http.disconnect"})
        with pytest.raises(JobCancelled, match="the client of the request has disconnected"):
            await waiting
        assert job.cancelled()

    asyncio.run(main())


# -------------------------------------------------------------------- Sentry


def test_failures_are_reported_to_sentry(dragoman_worker: Callable[..., Worker]) -> None:
    events: list[dict[str, Any]] = []

    def keep(event: Any, _: object) -> None:
        events.append(event)  # None is returned, so nothing is sent

    # Integrations change subprocess and other modules for the rest of the process, and so for the tests that follow.
    sentry_sdk.init("https://key@127.0.0.1/1", before_send=keep, default_integrations=False)
    report_failures()
    try:
        dragoman_worker(fail, double)
        assert double.call(1) == 2
        for word in ("again", "lost"):
            with pytest.raises(JobFailed):
                fail.call(word)
    finally:
        remove_hooks(sentry_hooks)
        sentry_sdk.init(default_integrations=False)  # reports nothing
    (event,) = events
    assert event["exception"]["values"][-1]["type"] == "LookupError"
    assert event["tags"]["dragoman.service"] == "fail"
    assert event["contexts"]["dragoman"]["attempt"] == 1


# -------------------------------------------------------------------- Django

SETTINGS = """
SECRET_KEY = "for a test"
INSTALLED_APPS = ["dragoman.integrations.django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE / "shop.sqlite3"}}
DRAGOMAN = {"URL": "URL"}
USE_TZ = True
"""
MODELS = """
from django.db import models

class Order(models.Model):
    name = models.CharField(max_length=50)
    is_packed = models.BooleanField(default=False)
"""
TASKS = """
from dragoman import task
from shop.models import Order

@task
def pack(order: int) -> str:
    found = Order.objects.get(id=order)
    found.is_packed = True
    found.save()
    return found.name
"""
SCRIPT = """
import django
django.setup()
from django.db import connection, transaction
from dragoman.integrations.django import on_commit
from shop.models import Order
from shop.tasks import pack

with connection.schema_editor() as editor:
    editor.create_model(Order)
jobs = []

def enqueue(order):
    jobs.append(pack.enqueue(order))

with transaction.atomic():
    order = Order.objects.create(name="tea")
    on_commit(enqueue, order.id)
    assert jobs == []
try:
    with transaction.atomic():
        on_commit(enqueue, 99)
        raise LookupError
except LookupError:
    pass
assert len(jobs) == 1
print(jobs[0].result(timeout=60), Order.objects.get().is_packed)
with transaction.atomic():
    try:
        on_commit(pack.enqueue)
    except TypeError as error:
        print(error)
"""


def test_django_application(dragoman_broker: LocalBroker, programs: Programs) -> None:
    base = programs.folder
    (base / "shop").mkdir()
    for name, text in (("__init__", ""), ("models", MODELS), ("tasks", TASKS)):
        (base / "shop" / f"{name}.py").write_text(text)
    settings = SETTINGS.replace('"URL": "URL"', f'"URL": "{dragoman_broker.url}"')
    (base / "settings.py").write_text(f"from pathlib import Path\nBASE = Path({str(base)!r})\n{settings}")
    (base / "script.py").write_text(SCRIPT)
    programs.environment |= {"PYTHONPATH": str(base), "DJANGO_SETTINGS_MODULE": "settings"}
    worker = programs.start(sys.executable, "-m", "django", "runworker", "--threads", "2")
    dragoman_broker.wait_for_workers(service="pack", timeout=60)
    script = programs.start(sys.executable, base / "script.py")
    assert (script.ends(), script.out) == (0, "tea True\npack: missing a required argument: 'order'\n"), script.err
    unknown = programs.start(sys.executable, "-m", "django", "runworker", "--service", "ship")
    assert unknown.ends() == 1
    assert "no task 'ship'; tasks found: pack" in unknown.err
    worker.terminate()
    assert worker.ends() == 0, worker.err
