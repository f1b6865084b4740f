"""Baseline of HTTP calls: a plain Starlette application that echoes bodies, without any code of Dragoman.

python -m bench.httpecho PORT
"""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def repeat(request: Request) -> Response:
    return Response(await request.body(), media_type="application/octet-stream")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/v1/call/{service}", repeat, methods=["POST"])])
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="warning")
