"""Responses with a ladder: a picture, or text."""

from __future__ import annotations

from starlette.responses import Response

from dragoman.http.route import TEXT
from dragoman.ladder import as_mermaid, as_text
from dragoman.ladder_picture import as_svg
from dragoman.operations.ladder_schemas import ConversationView

SVG = "image/svg+xml"


def ladder_response(view: ConversationView, format: str) -> Response:
    """Return a ladder in a format other than JSON."""
    if format == "svg":
        # Saved, and not shown: the content security policy of all responses forbids styles within a document.
        headers = {"content-disposition": f'attachment; filename="{view.job or view.worker}.svg"'}
        return Response(as_svg(view), headers=headers, media_type=SVG)
    return Response(as_mermaid(view) if format == "mermaid" else as_text(view), media_type=TEXT)
