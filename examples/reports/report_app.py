"""A web application for summaries of tables: short ones at once, long ones as background jobs.

    uvicorn report_app:app

In this folder, with the worker of summaries.py in another terminal. The tutorial (docs/tutorial.md) explains it.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dragoman import AsyncClient, BrokerUnavailable, JobError, NoSuchJob
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with AsyncClient() as client:  # one client for all requests
        yield {"client": client}


async def preview(request: Request) -> Response:
    """A call: the result is the response."""
    client: AsyncClient[bytes] = request.state.client
    summary = await client.call("summarise", await request.body(), timeout=5)
    return Response(summary, media_type="application/json")


async def submit(request: Request) -> Response:
    """A background job: on disk before the response is sent. The same table a second time is the same job."""
    client: AsyncClient[bytes] = request.state.client
    table = await request.body()
    job = await client.enqueue("summarise", table, key=hashlib.sha256(table).hexdigest(), timeout=3600)
    return JSONResponse({"report": f"/reports/{job}"}, 202)


async def report(request: Request) -> Response:
    """The state of a background job, or its result."""
    client: AsyncClient[bytes] = request.state.client
    job = await client.job(request.path_params["job"].hex)
    if job.state != "ended":
        return JSONResponse({"state": job.state, "why": await client.why(job.id)}, 202)
    return Response(await client.result(job.id), media_type="application/json")


async def explain(request: Request, error: Exception) -> Response:
    """Starlette calls this for the errors below."""
    return JSONResponse({"error": str(error)}, STATUS.get(type(error), 502))


STATUS: dict[type[Exception], int] = {NoSuchJob: 404, BrokerUnavailable: 503}

app = Starlette(
    routes=[
        Route("/preview", preview, methods=["POST"]),
        Route("/reports", submit, methods=["POST"]),
        Route("/reports/{job:uuid}", report),
    ],
    exception_handlers={JobError: explain, NoSuchJob: explain, BrokerUnavailable: explain},
    lifespan=lifespan,
)
