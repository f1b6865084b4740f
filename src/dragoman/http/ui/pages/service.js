// Service: a sentence, charts, the slowest workers, the reasons of the jobs that were not done, and the callers.

import { get } from "../api.js";
import { chart, legend } from "../charts.js";
import { html } from "../dom.js";
import { count, later, percent, rate, since, time } from "../format.js";
import {
  REFRESH, act, dialect, dialectColor, empty, hot, jobState, panel, rangeChoice, rangeOf, tile, workerOf, workerState,
} from "../parts.js";
import { administers } from "../rights.js";
import { hrefOf } from "../routes.js";
import { advance as advanceSeries, marksOf, sumOf, total } from "../series.js";
import { slots } from "../service-table.js";
import { again, ago, brokerCell, drawnAt, hasBrokers, meter, nowOf } from "./elements.js";

const WORKERS = 10, REASONS = 8; // rows
const AGAIN = 2; // seconds between two requests for the workers
const SLOW = 1.5; // pace from which a worker is slow
const RECORDED = "Of the jobs that are recorded: all while few arrive, else about 50 a second.";
const LONG = 5; // seconds of the oldest job that are shown in colour

export const title = ({ id }) => id;
export const live = ({ id }) => `service/${id}`;
export const refresh = (address) => REFRESH[rangeOf(address)];

export async function load(address) {
  const { id } = address, base = `/v1/services/${encodeURIComponent(id)}`;
  const [service, series, workers] = await Promise.all([
    get(base),
    get(`${base}/series`, { range: rangeOf(address) }),
    slowest(id),
  ]);
  return { service, series, ...workers };
}

const slowest = async (service) => ({ workers: (await get("/v1/workers", { service, sort: "slow", limit: WORKERS })).workers });

export function advance(data, snapshot, { id }) {
  again(data, AGAIN, () => slowest(id));
  const { series } = data, row = snapshot.services.find((each) => each.name === id);
  if (!row) return;
  const values = ["arrived", "done", "waiting", "running"].map((each) => [series[each], row[each]]);
  const quantiles = ["p50", "p95", "p99"].flatMap((each, i) => [
    [series.wait[each], row.wait?.[i]], [series.run[each], row.run?.[i]],
  ]);
  advanceSeries(series, snapshot.at, [...values, [series.undone, sumOf(row.undone)], ...quantiles]);
}

export function render({ address, data, live: now }) {
  const { id } = address, range = rangeOf(address), says = now?.page?.says;
  const row = now?.services.find((each) => each.name === id) ?? data.service;
  const all = html`<a class="hint" href="${hrefOf("workers", "", { service: id })}">All ${count(row.workers)}</a>`;
  const jobs = html`<a class="hint" href="${hrefOf("jobs", "", { service: id, state: "undone" })}">Jobs</a>`;
  return html`${head(id, row, range)}
  ${says && html`<section class="panel why c-${colorOf(row)}" data-key="says">${says}</section>`}
  ${tiles(row)}
  ${charts(data.series, range)}
  ${panel("Workers", workers(id, data.workers, drawnAt(data.workers, nowOf(now))), { flush: true, note: "slowest first", side: all })}
  <div class="row two" data-key="sample">
    ${panel("Not done", reasons(now?.page?.reasons ?? [], nowOf(now)), {
      flush: true, note: "by reason, recorded jobs of the last hour", side: jobs,
    })}
    ${panel("Callers", callers(now?.page?.callers ?? {}), { note: "by dialect" })}</div>`;
}

const head = (id, row, range) => html`<div class="head"><h1>${id}</h1><span>${(row.dialects ?? []).map(dialect)}</span>
  ${row.paused && html`<span class="tag warn">paused${row.paused_by && ` by ${row.paused_by}`}</span>`}
  ${limits(row.limits)}
  <span class="grow"></span>${rangeChoice(range)}${administers(id) && html`<span class="acts">
    ${row.paused ? act("resume", id, "Resume …", "primary") : act("pause", id, "Pause …")}
    ${act("purge", id, "Purge …", "danger")}</span>`}</div>`;

const LIMITS = { max_running: "at most # running", max_running_per_tenant: "at most # running per tenant", rate: "#" };

/** A tag for each limit of the service; its title names the author. */
const limits = (set) => set && Object.entries(LIMITS).filter(([name]) => set[name] != null).map(([name, text]) =>
  html`<span class="tag" title="${name}, ${set.authors[name] ?? ""}">${text.replace("#", set[name])}</span>`);

function colorOf(row) {
  if (row.workers && row.limits?.reached) return "done";
  if (row.paused || (row.waiting && row.oldest > LONG)) return "waiting";
  if (row.waiting && !row.workers) return "failed";
  return row.workers ? "done" : "quiet";
}

const tiles = (row) => html`<section class="panel tiles" data-key="tiles">
  ${tile("Arriving", rate(row.arrived), "jobs/s")}${tile("Done", rate(row.done), "jobs/s")}
  ${tile("Waiting", count(row.waiting), later(row))}
  ${tile("Oldest", row.waiting ? time(row.oldest) : "–", "")}
  ${tile("Wait p95", time(row.wait?.[1]), "")}${tile("Run p95", time(row.run?.[1]), "")}</section>`;

function charts(series, range) {
  const ended = [
    { name: "not done", color: "failed", values: series.undone }, { name: "done", color: "done", values: series.done },
  ];
  const quantiles = ({ p50, p95, p99 }) => [
    { name: "p99", color: "p99", values: p99 }, { name: "p95", color: "p95", values: p95 },
    { name: "p50", color: "p50", values: p50 },
  ];
  const draw = (name, lines, { note = "", label = name, ...options }) => {
    const drawn = chart(name, lines, { range, step: series.step, low: true, label, ...options });
    return panel(name, drawn, { note, side: legend(lines, name) });
  };
  return html`<div class="row even" data-key="charts">
    ${draw("Jobs that ended", ended, { isStacked: true, marks: marksOf(series), note: "a second" })}
    ${draw("Waiting", [{ name: "waiting", color: "waiting", values: series.waiting }], {
      isStacked: true, format: count, note: "jobs", label: "Waiting jobs",
    })}
    ${draw("Wait before the first attempt", quantiles(series.wait), { format: time })}
    ${draw("Run time of an attempt", quantiles(series.run), { format: time })}</div>`;
}

// ---------------------------------------------------------------- workers and reasons

function workers(service, list, now) {
  if (!list.length) return empty("No worker offers this service now.", workerOf(service));
  const isShared = hasBrokers(list);
  return html`<div class="scroll"><table><thead><tr><th>Worker</th>${isShared && html`<th class="hide-m">Broker</th>`}
    <th class="hide-s">Dialect</th><th>State</th>
    <th class="hide-s">Slots in use</th><th class="num hide-m">Oldest job</th><th class="num">Pace</th>
    <th class="num hide-s">Done</th></tr></thead><tbody>${list.map((each) => worker(each, now, isShared))}</tbody></table></div>`;
}

function worker({ id, name, broker, dialect: spoken, state, holds = [], capacity, pace, done }, now, isShared) {
  const href = hrefOf("worker", id), ages = holds.map((each) => since(each.since, now));
  return html`<tr data-key="${id}" data-href="${href}"><td><a href="${href}"><b class="name">${name || id}</b></a></td>
    ${brokerCell({ broker }, isShared)}<td class="hide-s">${dialect(spoken)}</td><td>${workerState(state)}</td>
    <td class="hide-s">${slots(holds.length, capacity)}</td>
    <td class="num hide-m">${time(ages.length ? Math.max(...ages) : null)}</td><td class="num">${paceOf(pace)}</td>
    <td class="num hide-s">${count(done)}</td></tr>`;
}

function paceOf(pace) {
  if (pace == null) return html`<span class="dim">–</span>`;
  return pace >= SLOW ? hot("timed", `${pace.toFixed(1)} ×`) : html`<span class="mid">${pace.toFixed(1)} ×</span>`;
}

function reasons(groups, now) {
  if (!groups.length) return empty("Every job that was recorded in the last hour was done.");
  return html`<div class="scroll"><table><thead><tr><th>Ended</th><th>Reason</th><th class="num">Jobs</th>
    <th class="num hide-s">Last</th></tr></thead><tbody>${groups.slice(0, REASONS).map((each) => reason(each, now))}
    </tbody></table></div><p class="body hint">${RECORDED}</p>`;
}

const reason = (each, now) => html`<tr ${each.job && html`data-href="${hrefOf("job", each.job)}"`}>
  <td>${jobState(each.outcome)}</td>
  <td class="fill"><div class="cut mono" title="${each.reason}">${each.reason || "no reason"}</div></td>
  <td class="num">${count(each.count)}</td><td class="num mid hide-s">${ago(each.last, now)}</td></tr>`;

/** Shares of the dialects, most frequent first. */
function callers(numbers) {
  const rows = Object.entries(numbers).sort((a, b) => b[1] - a[1]), all = total(Object.values(numbers));
  if (!all) return html`<p class="hint">No job of this service has been recorded.</p>`;
  return html`<dl class="limits">${rows.map(([name, n]) => html`<dt>${dialect(name)}</dt><dd>${
    meter([[dialectColor(name), n / all]], percent(n / all))}</dd><dd>${percent(n / all)}</dd>`)}</dl>
    <p class="hint">${RECORDED}</p>`;
}
