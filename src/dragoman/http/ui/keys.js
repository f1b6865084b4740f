// The keyboard: pages, rows, search, hold, theme. Keys are off while somebody types, and while a dialog is open.

import { html, put } from "./dom.js";
import { ROUTES } from "./routes.js";

const LEAD = 900; // milliseconds between `g` and the letter of a page
const ACTIVE = "a, button, summary"; // Enter activates these
const HELP = [
  ["/", "Find a job, service or worker"],
  [`g, then ${ROUTES.filter((each) => each.key).map((each) => each.key).join(" ")}`, "Open a page"],
  ["j  k  Enter", "Next row, previous row, open"],
  [".", "Hold the page still, or follow the broker again"],
  ["t", "Light or dark"],
  ["Esc", "Close"],
];

/** Returns {mark, leave}: mark the chosen row again after a redraw, and forget it with its page. */
export function watchKeys({ main, dialog, query, go, hold, theme }) {
  let row = -1, lead = -LEAD;
  const rows = () => [...main.querySelectorAll("tbody tr[data-href]")];
  const mark = () => rows().forEach((each, i) => each.classList.toggle("at", i === row));
  const move = (by) => {
    row = Math.max(0, Math.min(rows().length - 1, row + by));
    main.focus({ preventScroll: true }); // else Enter presses the control that has the focus
    mark();
    rows()[row]?.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    "/": (event) => { event.preventDefault(); query.focus(); query.select(); },
    "?": () => showHelp(dialog),
    ".": hold,
    t: theme,
    j: () => move(1),
    k: () => move(-1),
    g: () => { lead = performance.now(); },
    Enter: () => { if (rows()[row] && !document.activeElement.matches(ACTIVE)) go(rows()[row].dataset.href); },
  };
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.matches("input, select, textarea")) { if (event.key === "Escape") target.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const page = performance.now() - lead < LEAD && ROUTES.find((each) => each.key === event.key);
    if (page) { lead = -LEAD; go(page.path); return; }
    keys[event.key]?.(event);
  });
  return { mark, leave: () => { row = -1; } };
}

export function showHelp(dialog) {
  dialog.className = "";
  put(dialog, html`<form method="dialog"><h2>Keys</h2>
    <div class="keys">${HELP.map(([key, text]) => html`<kbd>${key}</kbd><span>${text}</span>`)}</div>
    <div class="acts"><button>Close</button></div></form>`);
  dialog.showModal();
}
