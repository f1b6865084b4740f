// Small parts that all pages use: panels, tiles, chips, states, buttons, empty states.

import { DIALECTS, dialectName } from "./dialects.js";
import { html } from "./dom.js";
import { time } from "./format.js";
import { STATE_PATHS, icon } from "./icons.js";
import { hasActs, seesAll } from "./rights.js";

/** Colours of states. A class `c-…` of style.css sets the colour of an element and its children. */
export const JOB_COLORS = {
  waiting: "waiting", delayed: "quiet", dependent: "quiet", running: "running", done: "done", failed: "failed", "timed out": "timed",
  lost: "lost", cancelled: "quiet", refused: "quiet",
};
export const WORKER_COLORS = {
  idle: "done", busy: "running", stuck: "timed", detached: "lost", draining: "quiet", starting: "waiting",
  "backing off": "waiting",
};
export const LEVEL_COLORS = { error: "failed", warning: "waiting", notice: "accent", info: "quiet" };

export const dialectColor = (dialect) => Object.hasOwn(DIALECTS, dialect) ? dialect : "quiet";
export const dialect = (name) => html`<span class="chip c-${dialectColor(name)}">${dialectName(name)}</span>`;

/** State of a job: colour, shape and word. */
export const jobState = (state) => html`<span class="state c-${JOB_COLORS[state] ?? "quiet"}">
  <svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6.2"/>
    <path d="${STATE_PATHS[state] ?? ""}"/></svg>${state}</span>`;
export const workerState = (state) => html`<span class="state">
  <i class="dot c-${WORKER_COLORS[state] ?? "quiet"}"></i>${state}</span>`;
export const hot = (color, text) => html`<span class="hot c-${color}">${text}</span>`;
export const pair = (a, b) => html`<span class="nowrap">${time(a)} <span class="dim">/ ${time(b)}</span></span>`;

/** A box with a heading. `note`: small text beside it; `side`: HTML at the right; `flush`: the body has no padding.
 * @param {string} title @param {unknown} body
 * @param {{note?: string, side?: unknown, flush?: boolean, key?: string}} [options] */
export const panel = (title, body, { note = "", side = "", flush = false, key = title } = {}) => html`
  <section class="panel" data-key="${key}">
    <header><h2>${title}</h2><small>${note}</small><span class="grow"></span>${side}</header>
    ${flush ? body : html`<div class="body">${body}</div>`}</section>`;
/** @param {string} label @param {string} value @param {string} unit @param {unknown} [foot] */
export const tile = (label, value, unit, foot = "") => html`
  <div class="tile"><span>${label}</span><b>${value}<small>${unit}</small></b>${foot}</div>`;

/** Button that opens the dialog of an act; it is left out where the listener allows none. */
export const act = (verb, target, label, kind = "") => hasActs() && html`
  <button class="act ${kind}" data-act="${verb}" data-target="${target}">${label}</button>`;

/** Button of a segmented control. It sets a field of the query; the default value leaves the field out.
 * @param {string} field @param {string} value @param {unknown} label @param {string} current
 * @param {{standard?: string, count?: unknown}} options */
export const choice = (field, value, label, current, { standard = "", count } = {}) => html`
  <button aria-pressed="${String(current === value)}" data-query="${field}"
    data-value="${value === standard ? "" : value}">${label}${count != null && html` <small>${count}</small>`}</button>`;

export const RANGES = [["5m", "5 min"], ["1h", "1 h"], ["24h", "24 h"]];
/** Seconds between two requests for the series of a range; snapshots move it on meanwhile. */
export const REFRESH = { "5m": 30, "1h": 20, "24h": 480 };
export const rangeOf = ({ query }) => Object.hasOwn(REFRESH, query.range ?? "") ? query.range : "5m";
export const rangeChoice = (current) => html`<span class="seg" role="group" aria-label="Range">
  ${RANGES.map(([value, label]) => choice("range", value, label, current, { standard: "5m" }))}</span>`;

/** Empty state: a sentence, and a command to copy. */
export const empty = (sentence, command = "") => html`<div class="empty"><p>${sentence}</p>
  ${command && html`<p class="command"><code>${command}</code>
    <button class="icon" data-copy="${command}" aria-label="Copy the command">${icon("copy")}</button></p>`}</div>`;
/** Empty state of a list without a filter. There may be rows that the principal may not see. */
export const noneYet = (sentence, rows, command) => seesAll() ? empty(sentence, command)
  : empty(`There are no ${rows} that you may see.`);
export const missing = (title, sentence) => html`<div class="head"><h1>${title}</h1></div>
  <section class="panel why c-quiet">${sentence}</section>`;
export const loading = () => html`<p class="dim loading" role="status">Loading…</p>`;
/** Command that starts a first worker. */
export const FIRST_WORKER = 'dragoman worker --exec "tr a-z A-Z"';
/** The same for a service. Its name is quoted for a shell. @param {string} service */
export const workerOf = (service) => `${FIRST_WORKER} --service '${service.replaceAll("'", "'\\''")}'`;
