"""First paint of the dashboard in Chromium, on a broker with many idle workers and kept outcomes: each page is opened
in a browser that has no file of it yet. Also the memory of a page, and the time that it needs for each snapshot."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.dashboard import Tell, crowded_broker
from bench.measure import NotMeasured
from bench.table import block

PAGES = {"Overview": "/", "Services": "/services", "Workers": "/workers", "Jobs": "/jobs", "Broker": "/broker"}
SIZE = {"width": 1440, "height": 900}
PAINT_TARGET = 1_000.0  # ms
HEAP_TARGET = 60.0  # MB
SNAPSHOT_TARGET = 8.0  # ms
WATCHED = 5.0  # seconds, with a snapshot in each
PATIENCE_MS = 60_000
WORK = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")  # of a page, without painting

# Keeps the time at which the heading of the page appears: it is drawn with its data.
WATCH = """new MutationObserver((_, watcher) => {
    if (!document.querySelector('main h1')) return;
    watcher.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.shownAt = performance.now(); }));
}).observe(document, {childList: true, subtree: true})"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


@dataclass(frozen=True, slots=True)
class Paint:
    """Medians of one page: milliseconds to the first paint and to the page with its data, its memory in MB, and
    milliseconds of scripts, styles and layout for a snapshot."""

    page: str
    first: float
    shown: float
    heap: float
    snapshot: float


def measure_first_paint(workers: int, outcomes: int, rounds: int, tell: Tell) -> tuple[list[Paint], int]:
    """Open every page a few times. Returns the figures, and the number of outcomes that the broker keeps."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NotMeasured("it needs Playwright, which `make test` installs into .venv-dev") from None
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise NotMeasured("it needs Chromium. On Debian and Ubuntu, as root: apt-get install chromium")
    with crowded_broker(workers, outcomes, tell) as (_, http, kept), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        paints = []
        for name, path in PAGES.items():
            opened = [_open(browser, f"http://127.0.0.1:{http}{path}") for _ in range(rounds + 1)]
            first, shown, heap, snapshot = (median(each) for each in zip(*opened[1:], strict=True))  # one to warm up
            paints.append(Paint(name, first, shown, heap, snapshot))
            tell(f"{name}: {first:.0f} ms to the first paint, {shown:.0f} ms to the data")
        browser.close()
    return paints, kept


def _open(browser: Any, url: str) -> tuple[float, float, float, float]:
    context = browser.new_context(viewport=SIZE)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(url)
    page.locator("#live[data-state=live]").wait_for()
    while page.evaluate("window.shownAt") is None or page.evaluate(PAINTED) is None:
        time.sleep(0.01)
    painted, shown = page.evaluate(PAINTED), page.evaluate("window.shownAt")
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    time.sleep(1.0)
    before = _metrics(session)
    time.sleep(WATCHED)
    after = _metrics(session)
    context.close()
    busy = sum(after[name] - before[name] for name in WORK) / WATCHED
    return painted, shown, after["JSHeapUsedSize"] / 1e6, 1e3 * busy


def _metrics(session: Any) -> dict[str, float]:
    return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}


def first_paint_table(paints: list[Paint], workers: int, outcomes: int) -> str:
    rows = [("page", "first paint ms", "data ms", "heap MB", "ms a snapshot")]
    rows += [
        (each.page, f"{each.first:,.0f}", f"{each.shown:,.0f}", f"{each.heap:.1f}", f"{each.snapshot:.1f}")
        for each in paints
    ]
    is_met = all(
        each.shown <= PAINT_TARGET and each.heap <= HEAP_TARGET and each.snapshot <= SNAPSHOT_TARGET for each in paints
    )
    title = f"first paint: Chromium, {workers:,} idle workers, {outcomes:,} kept outcomes"
    note = (
        f"target ≤ {PAINT_TARGET:,.0f} ms, {HEAP_TARGET:.0f} MB and {SNAPSHOT_TARGET:.0f} ms a snapshot: "
        f"{'yes' if is_met else 'no'}"
    )
    return "\n".join([title, *block("", rows), note])
