// Service: why it waits, its charts, its slowest workers, and the reasons of what was not done.

import { get } from "../api.js";
import { bar, chart, legend } from "../charts.js";
import { html } from "../dom.js";
import { count, rate, since, time } from "../format.js";
import { REFRESH, act, dialect, empty, hot, jobState, panel, rangeChoice, rangeOf, tile, workerState } from "../parts.js";
import { administers } from "../rights.js";
import { hrefOf } from "../routes.js";
import { advance as advanceSeries, marksOf, sumOf } from "../series.js";

const WORKERS = 10, REASONS = 50; // rows of workers; jobs that the reasons are taken from
const SLOW = 1.5; // pace from which a worker is slow

export const title = ({ id }) => id;
export const live = ({ id }) => `service/${id}`;
export const refresh = (address) => REFRESH[rangeOf(address)];

export async function load(address) {
  const { id } = address, base = `/v1/services/${encodeURIComponent(id)}`;
  const [service, series, workers, jobs] = await Promise.all([
    get(base),
    get(`${base}/series`, { range: rangeOf(address) }),
    get("/v1/workers", { service: id, sort: "slow", limit: WORKERS }).catch(() => ({ workers: [] })),
    get("/v1/jobs", { service: id, undone: true, limit: REASONS }).catch(() => ({ jobs: [] })),
  ]);
  return { service, series, workers: workers.workers, reasons: reasonsOf(jobs.jobs), seen: jobs.jobs.length };
}

export function advance({ series }, snapshot, { id }) {
  const row = snapshot.services.find((each) => each.name === id);
  if (!row) return;
  const [w50, w95, w99] = row.wait ?? [], [r50, r95, r99] = row.run ?? [];
  advanceSeries(series, snapshot.at, [
    [series.arrived, row.arrived], [series.done, row.done], [series.undone, sumOf(row.undone)], [series.waiting, row.waiting],
    [series.running, row.running], [series.wait.p50, w50], [series.wait.p95, w95], [series.wait.p99, w99],
    [series.run.p50, r50], [series.run.p95, r95], [series.run.p99, r99],
  ]);
}

export function render({ address, data, live: now }) {
  const row = now?.services.find((each) => each.name === address.id) ?? data.service;
  const says = now?.page?.says ?? "", range = rangeOf(address);
  return html`<div class="head"><h1>${address.id}</h1><span>${(row.dialects ?? []).map(dialect)}</span>
    ${row.paused && html`<span class="tag warn">paused${row.paused_by && ` by ${row.paused_by}`}</span>`}
    <span class="grow"></span>${rangeChoice(range)}
    <span class="acts">${administers(address.id) && html`${row.paused ? act("resume", address.id, "Resume …", "primary") : act("pause", address.id, "Pause …")}${act("purge", address.id, "Purge …", "danger")}`}</span></div>
  ${says && html`<section class="panel why c-${colorOf(row)}">${says}</section>`}
  ${tiles(row)}
  ${charts(data.series, range)}
  ${panel("Workers", workers(data.workers, now), { flush: true, note: "slowest first", side: html`<a class="hint" href="${hrefOf("workers", "", { service: address.id })}">All ${count(row.workers)}</a>` })}
  ${panel("Not done", reasons(data.reasons), { flush: true, note: data.seen ? `reasons of the last ${count(data.seen)}` : "", side: html`<a class="hint" href="${hrefOf("jobs", "", { service: address.id, state: "undone" })}">Jobs</a>` })}`;
}
const colorOf = (row) => row.paused || row.oldest > 5 ? "waiting" : row.workers ? "done" : row.waiting ? "failed" : "quiet";

const tiles = (row) => html`<section class="panel tiles" data-key="tiles">
  ${tile("Arriving", rate(row.arrived), "jobs/s")}${tile("Done", rate(row.done), "jobs/s")}
  ${tile("Waiting", count(row.waiting), row.delayed ? `+ ${count(row.delayed)} delayed` : "")}${tile("Oldest", row.waiting ? time(row.oldest) : "–", "")}
  ${tile("Wait p95", time(row.wait?.[1]), "")}${tile("Run p95", time(row.run?.[1]), "")}</section>`;

function charts(series, range) {
  const options = { range, step: series.step, marks: marksOf(series), low: true };
  const ended = [{ name: "not done", color: "failed", values: series.undone }, { name: "done", color: "done", values: series.done }];
  const waiting = [{ name: "waiting", color: "waiting", values: series.waiting }];
  const quantiles = ({ p50, p95, p99 }) => [
    { name: "p99", color: "timed", values: p99 }, { name: "p95", color: "waiting", values: p95 }, { name: "p50", color: "native", values: p50 },
  ];
  const draw = (key, name, lines, label, more = {}) => panel(name, chart(key, lines, { ...options, label, ...more }), { note: more.note ?? "", side: legend(lines, key) });
  const wait = quantiles(series.wait), run = quantiles(series.run);
  return html`<div class="row even">
    ${draw("ended", "Jobs that ended", ended, "Jobs that ended, a second, by outcome", { isStacked: true, note: "a second" })}
    ${draw("waiting", "Waiting", waiting, "Waiting jobs", { isStacked: true, format: count, note: "jobs", marks: [] })}
    ${draw("wait", "Wait before the first attempt", wait, "Wait before the first attempt, quantiles", { format: time, marks: [] })}
    ${draw("run", "Run time of an attempt", run, "Run time of an attempt, quantiles", { format: time, marks: [] })}</div>`;
}

function workers(list, now) {
  if (!list.length) return empty("No worker offers this service now.", 'dragoman worker --exec "tr a-z A-Z"');
  return html`<div class="scroll"><table><thead><tr><th>Worker</th><th class="hide-s">Dialect</th><th>State</th><th class="hide-s">Slots in use</th>
    <th class="num hide-m">Oldest job</th><th class="num">Pace</th><th class="num hide-s">Done</th></tr></thead><tbody>${list.map((each) => {
    const href = hrefOf("worker", each.id), held = each.holds ?? [];
    const oldest = held.length ? Math.max(...held.map((job) => since(job.since, now?.at ?? Date.now()))) : null;
    return html`<tr data-key="${each.id}" data-href="${href}"><td><a href="${href}"><b class="name">${each.name || each.id}</b></a></td><td class="hide-s">${dialect(each.dialect)}</td>
      <td>${workerState(each.state)}</td><td class="hide-s"><span class="slots">${bar([["running", held.length]], each.capacity)}<span class="dim">${held.length}/${count(each.capacity)}</span></span></td>
      <td class="num hide-m">${time(oldest)}</td><td class="num">${each.pace >= SLOW ? hot("timed", `${each.pace.toFixed(1)} ×`) : html`<span class="mid">${each.pace == null ? "–" : `${each.pace.toFixed(1)} ×`}</span>`}</td>
      <td class="num hide-s">${count(each.done)}</td></tr>`;
  })}</tbody></table></div>`;
}

/** Jobs with the same outcome and reason, most frequent first. */
function reasonsOf(jobs) {
  const groups = new Map();
  for (const { id, outcome, reason } of jobs) {
    const key = `${outcome}\n${reason}`, group = groups.get(key);
    if (group) group.count += 1; else groups.set(key, { outcome, reason, count: 1, id });
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

function reasons(groups) {
  if (!groups.length) return empty("Every job that is still known was done.");
  return html`<div class="scroll"><table><thead><tr><th>Ended</th><th>Reason</th><th class="num">Jobs</th><th class="num hide-s">Last</th></tr></thead><tbody>${groups.slice(0, 8).map((each) => html`<tr data-href="${hrefOf("job", each.id)}"><td>${jobState(each.outcome)}</td>
    <td><div class="cut">${each.reason || "–"}</div></td><td class="num">${count(each.count)}</td><td class="num hide-s"><a class="mono" href="${hrefOf("job", each.id)}">${each.id.slice(0, 12)}…</a></td></tr>`)}</tbody></table></div>`;
}
