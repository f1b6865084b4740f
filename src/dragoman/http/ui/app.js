// The frame: the current page, its data, the stream of snapshots, and the events of the document.

import { get } from "./api.js";
import { html, put } from "./dom.js";
import { clock, count, since, time } from "./format.js";
import { icon } from "./icons.js";
import { Live } from "./live.js";
import { loading, missing } from "./parts.js";
import { ROUTES, addressOf, hrefOf, ownerOf, routeOf } from "./routes.js";
import { restoreTheme, switchTheme } from "./theme.js";
import { showTable, watchPointer } from "./crosshair.js";
import { find } from "./search.js";
import { showHelp, watchKeys } from "./keys.js";

const $ = (id) => document.getElementById(id);
const main = $("main"), dialog = $("dialog"), query = $("query");
const you = document.documentElement.dataset;
const state = { address: null, page: null, data: null, error: null, live: null };
const live = new Live({ snapshot: receive, changed: connection });
const GAP = 10_000; // milliseconds between two snapshots from which the page is loaded again
let isHeld = false, held = null, loads = 0, refreshing = null, typing = null, broker = null;

/** Passed to acts: the state that is shown, and functions to change it. */
const context = { state, go, reload, setQuery, say, dialog };

// ---------------------------------------------------------------- pages

function go(href, { replace = false } = {}) {
  if (href !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", href);
  return show({ isNew: true });
}

/** Set fields of the query, such as filters: the address of the page tells them all. */
function setQuery(fields, { replace = false } = {}) {
  const merged = { ...state.address.query, after: "", ...fields }; // another filter begins at the first page
  history[replace ? "replaceState" : "pushState"](null, "", hrefOf(state.address.page, state.address.id, merged));
  return show({ isNew: false });
}

async function show({ isNew }) {
  const address = addressOf(location), route = address && routeOf(address.page);
  if (isNew) {
    Object.assign(state, { page: null, data: null, error: null });
    keys.leave();
    closeMenu();
    scrollTo(0, 0);
  }
  state.address = address ?? { page: "", id: "", query: {} };
  if (!route) { draw(); return; }
  const module = await route.module();
  if (state.address !== address) return; // another page was opened meanwhile
  state.page = module;
  live.open(module.live?.(address) ?? "overview");
  draw();
  if (isNew) main.focus({ preventScroll: true });
  await reload();
}

/** Load the data of the page again. */
async function reload() {
  const { page, address } = state, load = ++loads;
  clearTimeout(refreshing);
  if (state.data && (isHeld || document.hidden)) return; // loaded again when it is live or visible
  try {
    const data = await page?.load?.(address);
    if (load !== loads) return;
    Object.assign(state, { data: data ?? null, error: null });
    if (data?.instance && data?.totals && !state.live) state.live = data;
  } catch (error) {
    if (load !== loads) return;
    state.error = error;
  }
  draw();
  const seconds = page?.refresh?.(address);
  if (seconds) refreshing = setTimeout(reload, seconds * 1000);
}

// ---------------------------------------------------------------- snapshots

function receive(snapshot) {
  if (isHeld) { held = snapshot; return; }
  const last = state.live;
  state.live = snapshot;
  if (last?.instance !== snapshot.instance) describe();
  // After a restart, a held page or a hidden tab the series have gaps.
  const gap = last ? Date.parse(snapshot.at) - Date.parse(last.at) : 0;
  if (last && (last.instance !== snapshot.instance || gap > GAP)) { draw(); reload(); return; }
  if (state.data) state.page?.advance?.(state.data, snapshot, state.address);
  draw();
}

function hold() {
  isHeld = !isHeld;
  connection();
  if (isHeld) return;
  if (held) receive(held);
  held = null;
  reload();
}

/** Fetch the facts about this run of the broker. A principal without the right to see all services gets none. */
async function describe() {
  broker = await get("/v1/broker").catch(() => null);
  draw();
}

function connection() {
  const button = $("live"), isLost = live.state === "lost";
  button.dataset.state = live.state;
  button.setAttribute("aria-pressed", String(!isHeld));
  const text = isHeld ? "Held" : isLost ? "Lost" : live.state === "slow" ? "Waiting" : "Live";
  if (button.lastElementChild.textContent !== text) button.lastElementChild.textContent = text;
  document.body.classList.toggle("stale", isLost);
  disableActs();
  const banner = $("banner"), sentence = trouble();
  banner.hidden = !sentence;
  if (banner.textContent !== sentence) banner.textContent = sentence;
}

function trouble() {
  if (live.state === "lost") {
    const from = live.answered === null ? "" : ` The values shown are from ${clock(live.answered)}.`;
    return `The broker has not answered for ${time(Math.floor(live.silence))}.${from} Trying again.`;
  }
  if (state.live && !state.live.ready) return `The broker accepts no new jobs: ${state.live.problems.join("; ") || "no reason is known"}.`;
  if (live.state === "polling") return "The broker has too many event streams. This page asks for new values every 5 s.";
  return "";
}
const disableActs = () => main.querySelectorAll("button.act").forEach((each) => { each.disabled = live.state === "lost"; });

// ---------------------------------------------------------------- drawing

function draw() {
  const { address, page, error, data } = state, owner = ownerOf(address.page);
  const title = page?.title?.(address, data) ?? owner?.name ?? "No such page";
  put($("nav"), ROUTES.filter((each) => each.name).map((each) => navigation(each, owner)));
  put($("foot"), footer());
  put($("crumbs"), address.id ? html`<a href="${owner.path}">${owner.name}</a><span>/</span><b>${title}</b>` : html`<b>${title}</b>`);
  document.title = `${title} · Dragoman`;
  if (!owner) put(main, missing("No such page", "The dashboard has no page at this address."));
  else if (!page) put(main, loading());
  else if (error && !data) put(main, missing(title, error.detail ?? "The page cannot be shown. Load it again."));
  else put(main, page.load && !data ? loading() : page.render(state));
  if (error && !error.detail) console.error(error);
  keys.mark();
  connection();
}

function navigation({ page, path, name }, owner) {
  const totals = state.live?.totals ?? {};
  const numbers = {
    services: totals.services, workers: sum(totals.workers), jobs: totals.present,
    quarantine: totals.quarantined, schedules: totals.schedules,
  };
  const number = numbers[page];
  return html`<a href="${path}" ${owner?.page === page && html`aria-current="page"`}>${icon(page)}${name}
    <span class="${page === "quarantine" && number > 0 && "bad"}">${number == null ? "" : count(number)}</span></a>`;
}
const sum = (counts) => counts && Object.values(counts).reduce((total, each) => total + each, 0);

function footer() {
  return html`${broker && html`<div><span>Broker</span><b>${broker.name}</b></div>
    <div><span>Version</span><b>${broker.version}</b></div>
    <div><span>Up for</span><b>${time(since(broker.started, state.live.at))}</b></div>`}
    <div><a href="/account">You are <b>${you.principal}</b>.</a>
      ${you.login === "session" && html`<form method="post" action="/logout"><button class="text">Log out</button></form>`}</div>
    <div><span>Keys</span><button class="text" id="help" aria-label="Keys"><kbd>?</kbd></button></div>`;
}

function say(text) {
  const toast = $("toast");
  toast.textContent = text;
  toast.classList.add("on");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.classList.remove("on"), 4000);
}

// ---------------------------------------------------------------- events

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]"), button = event.target.closest("button"), row = event.target.closest("tr[data-href], .fleet [data-href]");
  if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link) {
    const target = new URL(link.href);
    if (link.hash || link.target || link.hasAttribute("download") || target.origin !== location.origin || !addressOf(target)) return;
    event.preventDefault();
    go(target.pathname + target.search);
  } else if (button) pressed(button);
  else if (row && !getSelection().toString()) go(row.dataset.href);
});

async function pressed(button) {
  const { act, target, query, value, table, copy } = button.dataset;
  if (act) return state.page?.acts?.[act]?.(target, context, button) ?? (await import("./acts.js")).ask(act, target, context, button);
  if (query) return setQuery({ [query]: value });
  if (table) return showTable(dialog, table, Date.parse(state.live?.at) || Date.now());
  if (button.id === "help") return showHelp(dialog);
  if (copy) { await navigator.clipboard.writeText(copy); say("Copied."); }
}

main.addEventListener("input", (event) => {
  const { query } = event.target.dataset;
  if (!query) return;
  clearTimeout(typing);
  typing = setTimeout(() => setQuery({ [query]: event.target.value }, { replace: true }), event.target.matches("select") ? 0 : 250);
});

$("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = query.value.trim();
  if (!text) return;
  query.blur();
  go(await find(text));
});

function closeMenu() {
  $("side").classList.remove("open");
  $("menu").setAttribute("aria-expanded", "false");
}
$("menu").addEventListener("click", (event) => {
  event.stopPropagation();
  $("menu").setAttribute("aria-expanded", String($("side").classList.toggle("open")));
});
document.addEventListener("click", (event) => { if (!event.target.closest("#side")) closeMenu(); });
$("theme").addEventListener("click", switchTheme);
$("live").addEventListener("click", hold);
addEventListener("popstate", () => show({ isNew: addressOf(location)?.page !== state.address?.page || addressOf(location)?.id !== state.address?.id }));

restoreTheme();
watchPointer(main);
const keys = watchKeys({ main, dialog, query, go, hold, theme: switchTheme });
show({ isNew: true });
