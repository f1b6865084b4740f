"""A web view that leaves a long computation to a worker, so that the web server stays responsive.

    pip install starlette uvicorn
    uvicorn web_app:app
    curl http://127.0.0.1:8000/factors/1001

With the worker of factors.py in another terminal, the last command prints {"number":1001,"factors":[7,11,13]}.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dragoman import AsyncClient, BrokerUnavailable, Busy, JobFailed, JobLost, JobTimeout, NoSuchService
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    """Open one client for the whole application. All requests share it."""
    async with AsyncClient("tcp://127.0.0.1:7400", codec="json", connect_timeout=2) as client:
        yield {"client": client}


async def factors(request: Request) -> JSONResponse:
    """Call the worker. Meanwhile the server handles other requests."""
    client: AsyncClient[Any] = request.state.client
    number = request.path_params["number"]
    patience = float(request.query_params.get("patience", 10))
    found = await client.call("factors", number, timeout=patience)  # ANSWERS has the errors that this raises
    return JSONResponse({"number": number, "factors": found})


ANSWERS: dict[type[Exception], tuple[int, str]] = {
    NoSuchService: (404, "no worker offers this service"),
    Busy: (429, "too many jobs are waiting; retry later"),
    JobTimeout: (504, "it took too long"),
    JobFailed: (502, "the worker failed"),
    JobLost: (502, "the worker was lost while it ran the job"),
    BrokerUnavailable: (503, "the broker is unavailable; retry later"),
}


async def explain(request: Request, error: Exception) -> JSONResponse:
    """Convert an error to a response. Starlette calls this for the errors in ANSWERS."""
    status, sentence = ANSWERS[type(error)]
    return JSONResponse({"error": sentence, "detail": str(error)}, status)


app = Starlette(
    routes=[Route("/factors/{number:int}", factors)],
    exception_handlers=dict.fromkeys(ANSWERS, explain),
    lifespan=lifespan,
)
