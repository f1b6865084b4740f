"""Checks of a page as it is drawn: names of its controls and pictures, its structure, the contrast of its texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from playwright.sync_api import Page, ViewportSize

WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
THEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
LEAST_CONTRAST = 4.5  # WCAG 2, level AA

# Returns sentences about what is wrong. Colours are read from a canvas, so every form of a colour is understood. Texts
# of disabled controls may have any contrast.
CHECK = """least => {
    const problems = [], all = (selector) => [...document.querySelectorAll(selector)];
    const isShown = (each) => each.checkVisibility({visibilityProperty: true});
    const labelOf = (each) => (each.labels ?? []).length ? each.labels[0].textContent : '';
    const nameOf = (each) => [each.getAttribute('aria-label'), each.textContent, each.title, labelOf(each)]
        .map((text) => (text ?? '').trim()).find(Boolean);
    const told = (each) => each.outerHTML.slice(0, 120).replace(/\\s+/g, ' ');

    for (const each of all('a[href], button, input, select, [role=img], [role=group], dialog[open]'))
        if (isShown(each) && !nameOf(each)) problems.push(`no name: ${told(each)}`);
    for (const each of all('svg')) {
        const isTold = each.closest('[role=img], [aria-hidden=true], svg svg');
        if (!isTold) problems.push(`neither named nor hidden: ${told(each)}`);
    }
    for (const each of all('table')) if (!each.querySelector('th')) problems.push(`no heads: ${told(each)}`);
    for (const each of all('[tabindex]')) if (each.tabIndex > 0) problems.push(`tabindex: ${told(each)}`);
    const ids = all('[id]').map((each) => each.id), twice = ids.filter((each, i) => ids.indexOf(each) !== i);
    if (twice.length) problems.push(`ids that are there twice: ${twice}`);
    if (all('h1').length !== 1) problems.push(`${all('h1').length} headings of the first level`);
    if (!document.documentElement.lang) problems.push('no language');

    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const known = new Map();
    function rgba(color) {
        if (!known.has(color)) {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
            known.set(color, [r, g, b, a / 255]);
        }
        return known.get(color);
    }
    const over = ([r, g, b, a], ground) => [r, g, b].map((each, i) => each * a + ground[i] * (1 - a));
    function groundOf(element) {
        const layers = [];
        for (let each = element; each; each = each.parentElement) {
            const color = rgba(getComputedStyle(each).backgroundColor);
            layers.push(color);
            if (color[3] === 1) break;
        }
        return layers.reduceRight((ground, color) => over(color, ground), [255, 255, 255]);
    }
    function luminance(color) {
        const [r, g, b] = color.map((each) => each / 255).map((each) =>
            each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const seen = new Set();
    while (walk.nextNode()) {
        const text = walk.currentNode.data.trim(), element = walk.currentNode.parentElement;
        if (!text || !isShown(element) || element.closest('title, :disabled, option, .toast')) continue;
        const style = getComputedStyle(element), ground = groundOf(element);
        const color = over(rgba(element instanceof SVGElement ? style.fill : style.color), ground);
        const [low, high] = [luminance(color), luminance(ground)].sort((a, b) => a - b);
        const ratio = (high + 0.05) / (low + 0.05), key = `${element.tagName}.${element.className} ${ratio.toFixed(1)}`;
        const is = `contrast ${ratio.toFixed(2)}: '${text}' in ${told(element)}`;
        if (ratio < least && !seen.has(key)) problems.push(is);
        seen.add(key);
    }
    return problems;
}"""


def check_looks(page: Page, open_page: Callable[[], object], check: Callable[[str], None]) -> None:
    """Open a page in both themes, wide and on a phone, and check it each time. `check` gets the theme."""
    try:
        for theme in THEMES:
            for size, name in ((WIDE, "wide"), (PHONE, "phone")):
                page.emulate_media(color_scheme=theme)
                page.set_viewport_size(size)
                open_page()
                width: int = page.evaluate("document.documentElement.scrollWidth")
                assert width <= size["width"], f"{theme}, {name}: the page is {width} pixels wide"
                found: list[str] = page.evaluate(CHECK, LEAST_CONTRAST)
                assert not found, f"{theme}, {name}: " + "; ".join(found)
                check(theme)
    finally:
        page.set_viewport_size(WIDE)
