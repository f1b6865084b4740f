"""The pages for people: login, and the start page. Plain HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from starlette.responses import Response

from dragoman.core.rights import Principal, Right

HTML: Final = "text/html; charset=utf-8"
CSS: Final = "text/css; charset=utf-8"
STYLE_PATH: Final = "/assets/page.css"
STYLE: Final = Path(__file__).with_name("assets").joinpath("page.css").read_bytes()
STYLE_AGE: Final = 3600  # seconds that a browser may keep it

LOGIN_REFUSED: Final = "This token is not valid. Paste the complete token, or ask for a new one."
MEANINGS: Final = {
    Right.CALL: "submit jobs to",
    Right.WORK: "run jobs of",
    Right.SEE: "see jobs and workers of",
    Right.ADMINISTER: "administer",
}
LINKS: Final = (
    ("/v1/health", "Health"),
    ("/v1/services", "Services"),
    ("/v1/jobs", "Jobs"),
    ("/v1/workers", "Workers"),
    ("/v1/schedules", "Schedules"),
    ("/openapi.json", "All operations (OpenAPI)"),
)
METRICS: Final = ("/metrics", "Metrics")


def login_page(status: int = 200, error: str = "", headers: Iterable[tuple[str, str]] = ()) -> Response:
    """Return the page with the login form, with an error message above it."""
    alert = f'<p class="error" role="alert">{escape(error)}</p>\n' if error else ""
    body = f"""<h1>Log in to Dragoman</h1>
{alert}<form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" required autofocus autocomplete="current-password" spellcheck="false">
<button>Log in</button>
</form>
<p class="faint">A token begins with <code>dgm_</code>. <code>dragoman token new NAME</code> makes one.</p>"""
    return _page("Log in", body, status, headers)


def start_page(principal: Principal, *, has_login: bool) -> Response:
    """Return the page with the rights of a principal, and links to the operations. `has_login`: it can log out."""
    rows = "".join(
        f"<tr><th>{meaning}</th><td>{_patterns(principal.rights.patterns(right))}</td></tr>\n"
        for right, meaning in MEANINGS.items()
    )
    links = (*LINKS, METRICS) if principal.rights.sees_all else LINKS
    items = "".join(f'<li><a href="{path}">{name}</a></li>\n' for path, name in links)
    logout = '<form method="post" action="/logout"><button>Log out</button></form>' if has_login else ""
    body = f"""<h1>Dragoman</h1>
<p>You are <strong>{escape(principal.name)}</strong>.</p>
<h2>You may</h2>
<table>
{rows}</table>
<h2>Operations</h2>
<ul>
{items}</ul>
{logout}"""
    return _page("Dragoman", body)


def style() -> Response:
    return Response(STYLE, headers={"content-type": CSS, "cache-control": f"max-age={STYLE_AGE}"})


def _patterns(patterns: Iterable[str]) -> str:
    shown = ["all services" if each == "*" else f"<code>{escape(each)}</code>" for each in patterns]
    return ", ".join(shown) or '<span class="faint">no service</span>'


def _page(title: str, body: str, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    # With the header `Referrer-Policy: no-referrer` alone, browsers would send the forms with `Origin: null`. With this
    # element they send the page's origin to its own server only.
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="same-origin">
<title>{escape(title)}</title>
<link rel="stylesheet" href="{STYLE_PATH}">
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
    return Response(page, status, {"content-type": HTML, **dict(headers)})
