// Page *Workers*: the fleet, a square for each worker, and a table with filters, sorted by the broker.

import { get } from "../api.js";
import { unanswered } from "../cluster.js";
import { dialectName } from "../dialects.js";
import { html } from "../dom.js";
import { count, percent, time } from "../format.js";
import { FIRST_WORKER, act, dialect, empty, hot, noneYet, panel, workerState } from "../parts.js";
import { administersEach } from "../rights.js";
import {
  again, brokerCell, choices, drawnAt, hasBrokers, headsFor, meter, more, none, nowOf, search, select, span, table, tags,
  withQuery,
} from "./elements.js";

const PAGE = 50; // workers
const REFRESH = 3; // seconds
const LETTERS = { i: "idle", b: "busy", s: "stuck", d: "detached", r: "draining", t: "starting", o: "backing off" };
const STATES = Object.values(LETTERS);
const SORTS = [["slow", "Slowest first"], ["silent", "Most silent first"], ["name", "By name"]];
const FILTERS = ["state", "dialect", "service", "text"];
const SILENT = 0.6, QUIET = 0.3; // shares of the lease
const SLOW = 1.5; // times the median of the service

export async function load({ query }) {
  const fields = Object.fromEntries(FILTERS.map((name) => [name, query[name]]));
  const [found, fleet] = await Promise.all([
    get("/v1/workers", { ...fields, sort: query.sort || "need", limit: PAGE, after: query.after }),
    fleetOf(),
  ]);
  return { ...found, fleet };
}

const fleetOf = () => get("/v1/workers/fleet").catch(() => null);

/** The first page lives; later pages stand still, and only the fleet is fetched again. */
export function advance(data, snapshot, address) {
  const onlyFleet = async () => ({ fleet: (await fleetOf()) ?? data.fleet });
  again(data, REFRESH, address.query.after ? onlyFleet : () => load(address));
}

export function render({ address, data, live }) {
  const { query } = address, now = drawnAt(data.workers, nowOf(live)), counts = data.counts ?? null;
  const isFiltered = FILTERS.some((name) => query[name]);
  const total = counts ? sum(counts.state) : data.workers.length;
  if (!total && !isFiltered) return nothing();
  return html`<div class="head"><h1>Workers</h1><span class="dim">${count(total)} present${
    counts && `, ${dialects(counts.dialect)}`}</span>${unanswered(data)}</div>
  ${data.fleet && fleet(data.fleet, counts)}
  <div class="head filters">
    ${choices("State", states(counts), "state", query)}
    ${select("Dialect", "dialect", Object.entries(counts?.dialect ?? {}).map(([name, n]) =>
      [name, `${dialectName(name)} (${count(n)})`]), "Any dialect", query)}
    ${search("Name or service", query)}
    ${tags(address, ["service"])}
    <span class="grow"></span>${select("Sort", "sort", SORTS, "Needs attention first", query)}</div>
  <section class="panel" aria-label="Workers">${data.workers.length ? workerTable(data.workers, now)
    : empty("No worker matches. Workers are listed while they are present.")}
  ${data.workers.length > 0 && more(html`${count(data.workers.length)} of ${count(total)} shown`, [
    query.after && ["First page", withQuery(address, "after", "")],
    data.after && ["Next page", withQuery(address, "after", String(data.after))],
  ])}</section>`;
}

const sum = (numbers) => Object.values(numbers).reduce((total, each) => total + each, 0);

function dialects(numbers) {
  const n = Object.values(numbers).filter((each) => each > 0).length;
  return n === 1 ? "in one dialect" : `in ${n} dialects`;
}

const states = (counts) => [["", "All", counts && count(sum(counts.state))], ...STATES
  .filter((state) => !counts || counts.state[state])
  .map((state) => [state, state, counts && count(counts.state[state])])];

let last = { number: 0, text: "" }; // of the squares that were made last

/** Number of these squares: the same for equal ones, which are not drawn again. */
function numberOf(letters, ids) {
  const text = `${letters} ${ids.join(" ")}`;
  if (text !== last.text) last = { number: last.number + 1, text };
  return last.number;
}

function fleet({ each, states: letters, ids }, counts) {
  const legend = STATES.filter((state) => !counts || counts.state[state]);
  const numbers = legend.map((state) => `${counts ? `${count(counts.state[state])} ` : ""}${state}`).join(", ");
  const number = numberOf(letters, ids), isShown = document.querySelector(`.fleet[data-same="${number}"]`) !== null;
  const square = (letter, i) => html`<i class="${letter}" data-href="/worker/${ids[i]}"
    title="${LETTERS[letter]}, worker ${ids[i]}"></i>`;
  return panel("Fleet", html`<div class="fleet" role="img" aria-label="${numbers}" data-same="${number}">${
    !isShown && [...letters].map(square)}</div>`, {
    note: each > 1 ? `a square for ${each} workers, with the state that needs attention most` : "a square for each worker",
    side: html`<span class="legend">${legend.map((state) => html`<span><i class="square ${letterOf(state)}"></i>${
      state}${counts && ` ${count(counts.state[state])}`}</span>`)}</span>`,
  });
}

const letterOf = (state) => Object.keys(LETTERS).find((letter) => LETTERS[letter] === state);

function nothing() {
  return html`<div class="head"><h1>Workers</h1></div><section class="panel">${
    noneYet("No worker is present. Start one:", "workers", FIRST_WORKER)}</section>`;
}

const HEADS = [["Worker"], ["Dialect", "hide-s"], ["Services", "hide-m"], ["State"], ["Slots in use", "hide-s"],
  ["Oldest job", "num"], ["Last heard", "hide-s"], ["Pace", "num"], ["Done", "num hide-l"],
  ["Not done", "num hide-l"], ["", "hide-m"]];

const made = new WeakMap(); // tables by their lists: the same list is not written again for each snapshot

function workerTable(workers, now) {
  const isShared = hasBrokers(workers), rows = () => workers.map((each) => row(each, now, isShared));
  if (!made.has(workers)) made.set(workers, table(headsFor(HEADS, workers), rows(), "workers"));
  return made.get(workers);
}

function row(each, now, isShared) {
  const held = each.running.length, ages = (each.holds ?? []).map((hold) => span(hold.since, null, now));
  const mayDrain = each.state !== "draining" && administersEach(each.services);
  return html`<tr data-href="/worker/${each.id}" data-key="w${each.id}">
    <td class="named"><a href="/worker/${each.id}" title="${each.name}"><b>${each.name || each.id}</b></a></td>
    ${brokerCell(each, isShared)}<td class="hide-s">${dialect(each.dialect)}</td>
    <td class="hide-m mid"><div class="cut short" title="${each.services.join(", ")}">${each.services.join(", ")}</div></td>
    <td>${workerState(each.state)}</td>
    <td class="hide-s"><span class="with-meter">${meter([["running", held / each.capacity]])}
      <span class="dim">${held}/${each.capacity}</span></span></td>
    <td class="num">${ages.length ? time(Math.max(...ages)) : none}</td>
    <td class="hide-s">${heard(each)}</td>
    <td class="num">${pace(each.pace)}</td>
    <td class="num hide-l mid">${count(each.done)}</td>
    <td class="num hide-l">${each.undone ? hot("failed", count(each.undone)) : html`<span class="dim">${
      count(each.undone)}</span>`}</td>
    <td class="num hide-m">${mayDrain && act("drain", each.id, "Drain …", "small calm")}</td></tr>`;
}

/** Seconds since the last message, as a share of the lease. */
export function heard({ silent, lease }) {
  if (lease == null) return html`<span class="dim">${time(silent)}</span>`;
  const share = Math.min(1, silent / lease), color = share > SILENT ? "failed" : share > QUIET ? "waiting" : "quiet";
  const label = `${time(silent)} of ${time(lease)}`;
  return html`<span class="with-meter">${meter([[color, share]], percent(share))}${
    share > SILENT ? hot("failed", label) : html`<span class="dim nowrap">${label}</span>`}</span>`;
}

/** Run time beside the median of the service. */
export function pace(value) {
  if (value == null) return none;
  const text = `${value.toFixed(1)} ×`;
  return value >= SLOW ? hot("timed", text) : html`<span class="dim">${text}</span>`;
}
