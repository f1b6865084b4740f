"""Makes the pictures of the dashboard in docs/pictures, from `dragoman demo --stay` with real jobs.

    .venv-dev/bin/python docs/pictures.py [--seconds 315] [--folder docs/pictures] [PAGE]...

It needs Chromium. Without the name of a page it takes all of them, and the ladder of the rescued job. The overview is
taken in light and dark, each other page in light, at 1440 × 900. The program fails if a page has an error in its
console, if a request of a page fails, or if a picture has more than 200 KB.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, Response, ViewportSize, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from dragoman import Client

FOLDER = Path(__file__).with_name("pictures")
WIDTH, HEIGHT = 1440, 900
MOST_BYTES = 200_000
COLOURS = 256
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
PAGES = {
    "overview": "/",
    "service": "/service/ocr",
    "workers": "/workers",
    "jobs": "/jobs",
    "job": "/job/{rescued}",
    "quarantine": "/quarantine",
    "schedules": "/schedules",
    "broker": "/broker",
}
START = 120.0  # seconds that the demo may take until its load starts


@contextmanager
def demo() -> Iterator[str]:
    """Run the demo. Yields the address of its dashboard once the load has started."""
    words = [sys.executable, "-m", "dragoman", "demo", "--quick", "--stay"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdout is not None
    try:
        url, deadline = "", time.monotonic() + START
        for line in process.stdout:
            found = re.search(r"Dashboard: (http://\S+?)/?$", line)
            url = found[1] if found else url
            if "until Ctrl-C" in line:
                break
            if time.monotonic() > deadline:
                break
        else:
            raise SystemExit("the demo has ended: run `dragoman demo` to see why")
        yield url
    finally:
        process.terminate()
        process.wait()


def pages(url: str) -> dict[str, str]:
    """The paths of the pages, by the names of their pictures."""
    with Client(url) as client:
        (rescued,) = (job.id for job in client.jobs(service="rescue"))
    return {name: path.format(rescued=rescued) for name, path in PAGES.items()}


def take(page: Page, url: str, problems: list[str]) -> bytes:
    """Open a page, wait until it shows data, and return the picture."""

    def answered(response: Response) -> None:
        if response.status >= 400:
            problems.append(f"{response.url}: {response.status}")

    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", answered)
    page.goto(url)
    try:
        page.wait_for_selector("main h1, main h2, main table, main svg")
    except PlaywrightError:
        problems.append(f"{url} shows nothing")
    page.wait_for_timeout(3_000)  # charts get their first points with the snapshots of these seconds
    return page.screenshot()


def smaller(picture: bytes) -> bytes:
    """The same picture with a palette: a third of the size. Rare colours, such as those of dialects, are kept."""
    written = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(
        COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(written, "PNG", optimize=True)
    return written.getvalue()


def ladder(url: str, path: str) -> str | None:
    """The ladder of the rescued job as SVG; None if this broker has recorded none."""
    job = path.rpartition("/")[2]
    try:
        with urllib.request.urlopen(f"{url}/v1/jobs/{job}/ladder?format=svg") as answer:  # noqa: S310
            text: str = answer.read().decode()
            return text
    except OSError:
        return None


def make(folder: Path, seconds: float, names: list[str]) -> list[str]:
    """Make the ladder, and the pictures of the named pages. Returns the problems."""
    problems: list[str] = []
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        return ["Chromium is missing. On Debian and Ubuntu, as root: apt-get install chromium"]
    folder.mkdir(exist_ok=True)
    with demo() as url, sync_playwright() as playwright:
        known = pages(url)
        # The job first: the broker keeps the messages of the last 5,000 jobs only.
        job = {name: known[name] for name in names if name == "job"}
        chosen = {name: known[name] for name in names if name != "job"}
        drawn = ladder(url, known["job"])
        if drawn is None:
            problems.append(f"{url}{known['job']} has no ladder")
        else:
            (folder / "rescue.svg").write_text(drawn)
        with playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]) as browser:
            take_all(browser, url, job, folder, problems)
            time.sleep(seconds)
            take_all(browser, url, chosen, folder, problems)
    return problems


def take_all(browser: Browser, url: str, paths: dict[str, str], folder: Path, problems: list[str]) -> None:
    """Take these pages, the overview in dark, too."""
    size: ViewportSize = {"width": WIDTH, "height": HEIGHT}
    for name, path in paths.items():
        for scheme in SCHEMES if name == "overview" else SCHEMES[:1]:
            with browser.new_page(viewport=size, color_scheme=scheme) as page:
                picture = smaller(take(page, url + path, problems))
            file = folder / f"{name}-{scheme}.png"
            file.write_bytes(picture)
            print(f"{file.name}: {len(picture):,} bytes")
            if len(picture) > MOST_BYTES:
                problems.append(f"{file.name} has {len(picture):,} bytes, more than {MOST_BYTES:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the dashboard.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"one of {', '.join(PAGES)}  [default: all]")
    parser.add_argument("--seconds", type=float, default=315.0, help="seconds of load before the pictures")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    names = options.pages or [*PAGES]
    if not {*names} <= {*PAGES}:
        parser.error(f"{' '.join(names)}: the pages are {', '.join(PAGES)}")
    problems = make(options.folder, options.seconds, names)
    for each in problems:
        print(each, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
