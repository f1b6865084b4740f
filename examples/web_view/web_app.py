"""A web view that lets a worker do what would keep the web server from everything else.

    pip install starlette uvicorn
    uvicorn web_app:app
    curl http://127.0.0.1:8000/factors/1001

With the worker of factors.py in another terminal, the last says {"number":1001,"factors":[7,11,13]}.
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
    """One client for the whole application: it is opened with it, closed with it, and shared by all requests."""
    async with AsyncClient("tcp://127.0.0.1:7400", codec="json", connect_timeout=2) as client:
        yield {"client": client}


async def factors(request: Request) -> JSONResponse:
    """While this waits, the server goes on with other requests."""
    client: AsyncClient[Any] = request.state.client
    number = request.path_params["number"]
    patience = float(request.query_params.get("patience", 10))
    found = await client.call("factors", number, timeout=patience)  # raises what ANSWERS has a word for
    return JSONResponse({"number": number, "factors": found})


ANSWERS: dict[type[Exception], tuple[int, str]] = {
    NoSuchService: (404, "nobody offers this service at the moment"),
    Busy: (429, "too much to do, please come back"),
    JobTimeout: (504, "it took too long"),
    JobFailed: (502, "the worker could not do it"),
    JobLost: (502, "the worker vanished while it was at it"),
    BrokerUnavailable: (503, "the broker is away"),
}


async def explain(request: Request, error: Exception) -> JSONResponse:
    """Starlette calls this for the errors it is told of below, so that no view has to catch them."""
    status, sentence = ANSWERS[type(error)]
    return JSONResponse({"error": sentence, "detail": str(error)}, status)


app = Starlette(
    routes=[Route("/factors/{number:int}", factors)],
    exception_handlers=dict.fromkeys(ANSWERS, explain),
    lifespan=lifespan,
)
