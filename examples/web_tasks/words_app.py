"""A web application that calls tasks. It needs Starlette or FastAPI; the middleware is the same for both.

    uvicorn words_app:app
    curl --data "to be or not to be" http://127.0.0.1:8000/words
    curl http://127.0.0.1:8000/book/600

With the worker of words.py in another terminal, the first request prints {"to":2,"be":2,"or":1,"not":1}. Press Ctrl-C
during the second one: the job is cancelled, and the worker prints that it has stopped.
"""

import json
from collections.abc import AsyncIterator

from dragoman import JobCancelled
from dragoman.integrations.asgi import DragomanMiddleware, until_disconnect
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from words import count_words, lines, print_book


async def words(request: Request) -> Response:
    """Within a request, tasks use the client of the application."""
    text = (await request.body()).decode()
    return JSONResponse(await count_words.with_options(timeout=10).acall(text))


async def book(request: Request) -> Response:
    """The job ends with the request, if the browser disconnects first."""
    return PlainTextResponse(await until_disconnect(request, print_book.acall(request.path_params["pages"])))


async def stream(request: Request) -> Response:
    """The response begins with the first part of the result."""
    text = (await request.body()).decode()

    async def encoded() -> AsyncIterator[str]:
        async for line in lines.astream(text):
            yield json.dumps(line) + "\n"

    return StreamingResponse(encoded(), media_type="application/jsonl")


async def gone(request: Request, error: Exception) -> Response:
    """Nobody reads this response. 499 is what nginx writes into its log."""
    return PlainTextResponse(str(error), 499)


app = Starlette(
    routes=[
        Route("/words", words, methods=["POST"]),
        Route("/book/{pages:int}", book),
        Route("/lines", stream, methods=["POST"]),
    ],
    middleware=[Middleware(DragomanMiddleware, url="tcp://127.0.0.1:7400")],
    exception_handlers={JobCancelled: gone},
)
