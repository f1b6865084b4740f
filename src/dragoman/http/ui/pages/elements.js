// Elements of lists and details: links to jobs and workers, facts, filters, the end of a page of rows.

import { html } from "../dom.js";
import { time } from "../format.js";
import { JOB_COLORS, WORKER_COLORS, choice } from "../parts.js";
import { hrefOf } from "../routes.js";

const LEAST = 0.02; // share of a meter: the shortest part that is visible

export const none = html`<span class="dim">–</span>`;

/** Seconds of an RFC 3339 time. */
export const seconds = (at) => Date.parse(at) / 1000;

/** Seconds between two RFC 3339 times; without the second, until `now`. */
export const span = (from, to, now) => Math.max(0, ((to ? Date.parse(to) : now) - Date.parse(from)) / 1000);

export const ago = (at, now) => (at == null ? none : `${time(span(at, null, now))} ago`);
export const ahead = (at, now) => (at == null ? none : `in ${time(Math.max(0, (Date.parse(at) - now) / 1000))}`);

export const jobColor = (state) => `c-${JOB_COLORS[state] ?? "quiet"}`;
export const workerColor = (state) => `c-${WORKER_COLORS[state] ?? "quiet"}`;

/** True if a person or program has chosen the job's key: clients make a random one otherwise. */
export const hasOwnKey = (job) => Boolean(job.key) && !job.key.startsWith("auto-");

/** Link to a job: its first and last digits, which differ between jobs of the same moment. */
export const jobLink = (id) => html`<a class="mono nowrap" href="/job/${id}" title="${id}">${id.slice(0, 6)}<span
  class="hide-s">${id.slice(6, 12)}</span>…${id.slice(-4)}</a>`;
export const serviceLink = (name) => html`<a href="${hrefOf("service", name)}">${name}</a>`;
export const workerLink = (id, name) => (id == null ? name : html`<a href="/worker/${id}">${name || id}</a>`);

/** List of facts; those without a value are left out. @param {unknown[][]} rows name and value */
export const facts = (rows) => html`<dl class="facts">${rows
  .filter(([, value]) => value != null && value !== "" && value !== false)
  .map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

/** Table of rows. @param {string[][]} heads text and class of each column */
export const table = (heads, rows, kind = "") => html`<div class="scroll"><table class="${kind}"><thead><tr>${
  heads.map(([text, css]) => html`<th class="${css}">${text}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div>`;

/** Segmented control. @param {any[][]} rows value, label, number */
export const choices = (label, rows, field, query) => html`<span class="seg" role="group" aria-label="${label}">${
  rows.map(([value, text = value, count]) => choice(field, value, text, query[field] ?? "", { count }))}</span>`;

export const select = (label, field, values, all, query) => html`<select data-query="${field}" aria-label="${label}">
  <option value="">${all}</option>${values.map(([value, text = value]) =>
    html`<option value="${value}" ${value === query[field] ? html`selected` : ""}>${text}</option>`)}</select>`;

export const search = (label, query, short = label) => html`<input data-query="text" type="search"
  value="${query.text ?? ""}" placeholder="${short}" aria-label="${label}" size="20" autocomplete="off"
  spellcheck="false">`;

/** Filters without a control of their own, each as a link that removes it. @param {string[]} fields */
export const tags = (address, fields) => fields.filter((field) => address.query[field]).map((field) =>
  html`<a class="tag" href="${withQuery(address, field, "")}" aria-label="Remove the filter ${field}">${
    field}: ${address.query[field]} ×</a>`);

/** Last line of a list: a remark, and links to other pages, each with its label. @param {any[]} links */
export const more = (remark, links) => html`<div class="more"><span>${remark}</span><span class="grow"></span>${
  links.filter(Boolean).map(([label, path]) => html`<a class="btn small" href="${path}">${label}</a>`)}</div>`;

/** Address of the page with one field of its query changed. */
export const withQuery = ({ page, id, query }, field, value) => hrefOf(page, id, { ...query, [field]: value });

/** Milliseconds of the broker's clock, from the last snapshot. */
export const nowOf = (live) => Date.parse(live?.at) || Date.now();

/** Milliseconds to which ages in these rows refer: when they were drawn first. The rows are not changed by snapshots, and
 * a job in them may have ended since. @param {object} rows */
export function drawnAt(rows, now) {
  if (!ages.has(rows)) ages.set(rows, now);
  return ages.get(rows);
}
const ages = new WeakMap();

/** Fetch a part of the data again, at most every `seconds`, while snapshots arrive. `fetch` returns the changed fields. */
export async function again(data, seconds, fetch) {
  const at = performance.now();
  if (data.isFetching || at < (data.fetchedAt ?? 0) + seconds * 1000) return;
  Object.assign(data, { isFetching: true, fetchedAt: at });
  try {
    Object.assign(data, await fetch());
  } catch {
    // The values stay as they are. If the broker does not answer, the frame says so.
  } finally {
    data.isFetching = false;
  }
}

/** Bar of shares: a part of a whole. Without a label, the text beside it tells the same.
 * @param {[string, number][]} parts colour and share of 1 */
export function meter(parts, label = "") {
  let at = 0;
  const name = label ? html`role="img" aria-label="${label}"` : html`aria-hidden="true"`;
  return html`<svg class="meter" ${name}><rect class="floor" width="100%" height="6" rx="3"/>${
    parts.filter(([, share]) => share > 0).map(([color, share]) => {
      const from = at;
      at = Math.min(1, at + Math.max(share, LEAST));
      const x = (from * 100).toFixed(1), width = ((at - from) * 100).toFixed(1);
      return html`<rect class="c-${color}" x="${x}%" width="${width}%" height="6" rx="3"/>`;
    })}</svg>`;
}

/** True if the rows name their brokers: those of a cluster do. @param {any[]} rows */
export const hasBrokers = (rows) => rows.some((each) => each.broker || each.brokers?.length);

/** Heads of a table, with one for brokers in the second place if its rows name them. */
export const headsFor = (heads, rows) => (hasBrokers(rows) ? [heads[0], ["Broker", "hide-m"], ...heads.slice(1)] : heads);

/** Cell with the brokers of a row; empty without a cluster. */
export const brokerCell = (each, isShared) => isShared &&
  html`<td class="hide-m mid clip">${each.broker ?? (each.brokers ?? []).join(", ")}</td>`;
