// The current page, its data, the stream of snapshots, and the events of the document.

import { get } from "./api.js";
import { showTable, watchPointer } from "./crosshair.js";
import { html, put } from "./dom.js";
import { crumbs, footer, navigation, trouble } from "./frame.js";
import { showHelp, watchKeys } from "./keys.js";
import { Live } from "./live.js";
import { moduleOf, repair } from "./modules.js";
import { loading, missing } from "./parts.js";
import { seesAll } from "./rights.js";
import { addressOf, hrefOf, ownerOf, routeOf } from "./routes.js";
import { find } from "./search.js";
import { restoreTheme, switchTheme } from "./theme.js";
import { visible } from "./visible.js";

const GAP = 10_000; // milliseconds between two snapshots from which the page is loaded again
const TYPING = 250; // milliseconds from the last key to the request of a filter
const TOAST = 4000; // milliseconds

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);
const main = $("main"), dialog = $("dialog"), query = $("query");
const state = { address: null, page: null, data: null, error: null, live: null };
const live = new Live({ snapshot: receive, changed: connection });
let isHeld = false, held = null; // held: the last snapshot that is not shown
let loads = 0, refreshing = null, typing = null, toasting = null;
let broker = null; // facts about this run of the broker

/** Passed to acts: the state that is shown, and functions to change it. */
const context = { state, go, reload, setQuery, say, dialog };

// ---------------------------------------------------------------- pages

function go(href) {
  if (href !== location.pathname + location.search) history.pushState(null, "", href);
  return show({ isNew: true });
}

/** Set fields of the query, such as filters: the address of the page tells them all. */
function setQuery(fields, { replace = false } = {}) {
  const merged = { ...state.address.query, after: "", ...fields }; // another filter begins at the first page
  history[replace ? "replaceState" : "pushState"](null, "", hrefOf(state.address.page, state.address.id, merged));
  return show({ isNew: false });
}

async function show({ isNew }) {
  const address = addressOf(location) ?? { page: "", id: "", query: {} }, route = routeOf(address.page);
  state.address = address;
  if (isNew) {
    Object.assign(state, { page: null, data: null, error: null });
    loads += 1; // an answer that is on its way is about the page before
    if (state.live) state.live = { ...state.live, page: null }; // it is about the page before
    keys.leave();
    closeMenu();
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
    draw();
  }
  if (!route) return;
  /** @type {any} */
  let module;
  try {
    module = await moduleOf(route.module);
  } catch (error) {
    if (state.address !== address) return;
    state.error = error;
    draw();
    return;
  }
  if (state.address !== address) return; // another page was opened meanwhile
  state.page = module;
  follow();
  await reload();
}

/** Follow the snapshots of the page. */
const follow = () => live.open(state.page?.live?.(state.address) ?? "overview");

/** Load the data of the page again. */
async function reload() {
  const { page, address } = state, load = ++loads;
  clearTimeout(refreshing);
  try {
    const data = await page?.load?.(address) ?? null;
    if (load !== loads) return;
    Object.assign(state, { data, error: state.page ? null : state.error });
    follow(); // it may be the first answer of a broker that was away
    if (data?.instance && !state.live) receive(data); // an overview is a snapshot, too
  } catch (error) {
    if (load !== loads) return;
    if (!error.status) console.error(error);
    state.error = error;
    if (!state.data) live.open("overview"); // there is nothing to follow
  }
  draw();
  refreshLater(page?.refresh?.(address));
}

function refreshLater(seconds) {
  if (!seconds) return;
  const again = () => isHeld || document.hidden ? refreshLater(seconds) : reload();
  refreshing = setTimeout(again, seconds * 1000);
}

// ---------------------------------------------------------------- snapshots

function receive(snapshot) {
  if (isHeld) { held = snapshot; return; }
  repair();
  const last = state.live;
  state.live = snapshot;
  if (last?.instance !== snapshot.instance) describe();
  if (state.data && state.data !== snapshot) state.page?.advance?.(state.data, snapshot, state.address);
  draw();
  // After a restart or a pause of the stream, the series have gaps.
  const gap = last ? Date.parse(snapshot.at) - Date.parse(last.at) : 0;
  if (last && (last.instance !== snapshot.instance || gap > GAP)) reload();
}

/** Fetch the facts about this run of the broker. A principal without the right to see all services gets none. */
async function describe() {
  broker = seesAll() ? await get("/v1/broker").catch(() => null) : null;
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

function connection() {
  const button = $("live"), isLost = live.state === "lost";
  button.dataset.state = live.state;
  button.setAttribute("aria-pressed", String(!isHeld));
  const text = isHeld ? "Held" : isLost ? "Lost" : live.state === "slow" ? "Connecting" : "Live";
  if (button.lastElementChild.textContent !== text) button.lastElementChild.textContent = text;
  document.body.classList.toggle("stale", isLost);
  for (const each of main.querySelectorAll("button")) if (each.classList.contains("act")) each.disabled = isLost;
  const banner = $("banner"), sentence = trouble(live, state.live);
  banner.hidden = !sentence;
  put(banner, html`${sentence}`);
}

// ---------------------------------------------------------------- drawing

function draw() {
  const { address, page, data } = state, owner = ownerOf(address.page);
  const title = page?.title?.(address, data) ?? (owner ? address.id || owner.name : "No such page");
  put($("nav"), navigation(owner, state.live?.totals));
  put($("foot"), footer(broker, state.live));
  put($("crumbs"), crumbs(owner, title, address.id));
  document.title = `${visible(title)} · Dragoman`;
  put(main, content(owner, title));
  keys.mark();
  connection();
}

function content(owner, title) {
  const { page, error, data } = state;
  if (!owner) return missing("No such page", "The dashboard has no page at this address.");
  if (error && !data) return missing(title, error.detail ?? "The page cannot be shown. Load it again.");
  return !page || (page.load && !data) ? loading() : page.render(state);
}

function say(text) {
  const toast = $("toast");
  put(toast, html`${text}`);
  toast.classList.add("on");
  clearTimeout(toasting);
  toasting = setTimeout(() => toast.classList.remove("on"), TOAST);
}

// ---------------------------------------------------------------- events

document.addEventListener("click", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const link = target.closest("a[href]"), button = target.closest("button");
  const row = /** @type {HTMLElement | null} */ (target.closest("tr[data-href], .fleet [data-href]"));
  if (!target.closest("#side, #menu")) closeMenu();
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link) followed(link, event);
  else if (button) pressed(button);
  else if (row && !getSelection().toString()) go(row.dataset.href);
});

function followed(link, event) {
  const target = new URL(link.href), isOurs = target.origin === location.origin && addressOf(target) !== null;
  if (!isOurs || target.hash || link.target || link.hasAttribute("download")) return;
  event.preventDefault();
  go(target.pathname + target.search);
}

const withActs = (use) => moduleOf(() => import("./acts.js")).then(use, (problem) => say(problem.message));

async function pressed(button) {
  const { act, target, query: field, value, table, copy } = button.dataset;
  if (act) {
    const own = state.page?.acts?.[act];
    if (own) await own(target, context, button);
    else await withActs((acts) => acts.ask(act, target, context, button));
  } else if (field) setQuery({ [field]: value });
  else if (table) showTable(dialog, table, Date.parse(state.live?.at ?? "") || Date.now());
  else if (copy) { await navigator.clipboard.writeText(copy); say("Copied."); }
  else if (button.id === "help") showHelp(dialog);
}

main.addEventListener("input", (event) => {
  const target = /** @type {HTMLInputElement} */ (event.target), { query: field } = target.dataset;
  if (!field) return;
  clearTimeout(typing);
  const isTyped = !target.matches("select");
  typing = setTimeout(() => setQuery({ [field]: target.value }, { replace: isTyped }), isTyped ? TYPING : 0);
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
$("menu").addEventListener("click", () => {
  $("menu").setAttribute("aria-expanded", String($("side").classList.toggle("open")));
});
$("theme").addEventListener("click", switchTheme);
$("live").addEventListener("click", hold);
addEventListener("popstate", () => {
  const { page, id } = addressOf(location) ?? {};
  show({ isNew: page !== state.address.page || id !== state.address.id });
});

restoreTheme();
watchPointer(main);
const keys = watchKeys({ main, dialog, query, go, hold, theme: switchTheme });
show({ isNew: true });
