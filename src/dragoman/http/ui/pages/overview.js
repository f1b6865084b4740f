// Overview: what needs attention, how much is done, who speaks to whom, which service, what changed.

import { get } from "../api.js";
import { bar, chart, legend, spark } from "../charts.js";
import { html } from "../dom.js";
import { flow } from "../flow.js";
import { clock, count, percent, rate, since, time } from "../format.js";
import { LEVEL_COLORS, RANGES, REFRESH, WORKER_COLORS, empty, hot, panel, rangeChoice, rangeOf, tile } from "../parts.js";
import { hrefOf } from "../routes.js";
import { advance as advanceSeries, marksOf, sumOf, total } from "../series.js";
import { serviceTable } from "../service-table.js";

const SHOWN = 8; // services
const SLOW_WORKERS = 6, SLOW = 1.5; // pace from which a worker is slow
const CHANGES = 7;
const FIRST_WORKER = 'dragoman worker --exec "tr a-z A-Z"';

export const refresh = (address) => REFRESH[rangeOf(address)];

export async function load(address) {
  const workers = get("/v1/workers", { sort: "slow", limit: SLOW_WORKERS }).catch(() => ({ workers: [] }));
  const data = await get("/v1/overview", { range: rangeOf(address) });
  return { ...data, slow: (await workers).workers.filter(({ pace }) => pace >= SLOW) };
}

export function advance(data, snapshot) {
  const { total: line, services } = data.series, { totals } = snapshot;
  const values = line && totals ? [
    [line.arrived, totals.arrived], [line.done, totals.done], [line.undone, sumOf(totals.undone)],
    [line.waiting, totals.waiting], [line.running, totals.running],
  ] : [];
  const rows = new Map(snapshot.services.map((each) => [each.name, each]));
  for (const [name, each] of Object.entries(services)) values.push([each.done, rows.get(name)?.done]);
  advanceSeries(data.series, snapshot.at, values);
}

export function render({ address, data, live }) {
  const now = live ?? data, range = rangeOf(address), line = data.series.total;
  const series = [
    { name: "not done", color: "failed", values: line?.undone ?? [] }, { name: "done", color: "done", values: line?.done ?? [] },
  ];
  const options = {
    isStacked: true, range, step: data.series.step, marks: marksOf(data.series),
    label: `Jobs that ended, a second, by outcome, last ${range}`,
  };
  return html`<div class="head"><h1>Overview</h1><span class="grow"></span>${rangeChoice(range)}</div>
  ${attention(now)}
  ${now.totals && tiles(now, data.series, range)}
  ${line && html`<div class="row two">
    ${panel("Jobs that ended", chart("ended", series, options), { note: "a second", side: legend(series, "ended") })}
    ${panel("Who speaks to whom", talk(now.flow ?? []), { note: "callers to workers, jobs/s", side: html`<a class="hint" href="/broker">Matrix</a>` })}
  </div>`}
  ${services(now, data.series)}
  <div class="row two">${panel("What changed", changes(now), { flush: true })}
    ${panel("Slow now", slow(data.slow), { flush: true, note: "run time beside the service's median" })}</div>`;
}

const LINKS = { quarantine: "/quarantine", schedule: "/schedules", worker: "/workers" };
function linkOf({ about = {}, kind = "" }) {
  if (about.service) return hrefOf("service", about.service);
  if (about.worker) return hrefOf("worker", about.worker);
  const page = Object.keys(LINKS).find((each) => about[each] || kind.includes(each));
  return LINKS[page] ?? "/broker";
}
const nameOf = ({ about = {} }) => about.service ?? about.name ?? about.worker ?? about.schedule ?? "";

function attention(now) {
  const items = now.attention ?? [];
  return html`<section class="panel" data-key="attention" aria-label="Needs attention"><ul class="notes">${items.map((each) => html`<li title="${each.advice}">
    <i class="dot c-${LEVEL_COLORS[each.level] ?? "waiting"}"></i>
    <span class="grow"><a href="${linkOf(each)}"><b>${nameOf(each)}</b></a> <span class="mid">${each.text}</span></span>
    ${each.since && html`<time class="hide-s">${time(since(each.since, now.at))}</time>`}<a class="dim" href="${linkOf(each)}">Look</a></li>`)}
    ${!items.length && html`<li><i class="dot c-done"></i><span class="mid">Nothing needs attention.</span></li>`}</ul></section>`;
}

function tiles({ totals, broker = {} }, { total: line, step }, range) {
  const undone = total(line?.undone ?? []) * step, done = total(line?.done ?? []) * step;
  const workers = Object.values(totals.workers ?? {}).reduce((sum, each) => sum + each, 0);
  return html`<section class="panel tiles" data-key="tiles">
    ${tile("Done", rate(totals.done), "jobs/s", spark(line?.done ?? [], "done"))}
    ${tile("Waiting", count(totals.waiting), totals.delayed ? `+ ${count(totals.delayed)} delayed` : "", spark(line?.waiting ?? [], "waiting"))}
    ${tile("Running", count(totals.running), `of ${count(totals.slots)} slots`, bar([["running", totals.running]], Math.max(totals.slots, totals.running)))}
    ${tile(`Not done, ${Object.fromEntries(RANGES)[range]}`, count(undone), percent(undone / (undone + done)), spark(line?.undone ?? [], "failed"))}
    ${tile("Workers", count(workers), `${count(totals.workers?.idle ?? 0)} idle`, bar(Object.entries(WORKER_COLORS).map(([state, color]) => [color, totals.workers?.[state] ?? 0])))}
    ${tile("Broker", percent(broker.cpu), `CPU · lag ${time(broker.lag_p99)}`, bar([["running", broker.cpu]], Math.max(1, broker.cpu)))}
  </section>`;
}

const talk = (pairs) => pairs.some(([, , value]) => value > 0) ? flow(pairs) : empty("No job has ended in the last seconds.");

function services(now, { services: lines }) {
  const all = now.totals?.services ?? now.services.length;
  const body = now.services.length ? serviceTable(now.services.slice(0, SHOWN), lines) : empty("No worker has offered a service yet.", FIRST_WORKER);
  return panel("Services", body, { flush: true, note: "those that need attention first", side: html`<a class="hint" href="/services">All ${count(all)}</a>` });
}

function changes(now) {
  const items = (now.changes ?? []).slice(0, CHANGES);
  if (!items.length) return empty("Nothing has changed since the broker started.");
  return html`<ul class="notes tight">${items.map((each) => html`<li><time datetime="${each.at}">${clock(each.at)}</time>
    <i class="dot c-${LEVEL_COLORS[each.level] ?? "quiet"}"></i>
    ${each.service ? html`<a class="grow" href="${hrefOf("service", each.service)}">${each.text}</a>` : html`<span class="grow">${each.text}</span>`}</li>`)}</ul>`;
}

function slow(workers) {
  if (!workers.length) return empty("No worker is slow: all take less than 1.5 × the median of their service.");
  return html`<ul class="notes tight">${workers.map((each) => html`<li><span class="grow"><a href="${hrefOf("worker", each.id)}"><b>${each.name || each.id}</b></a>
    <span class="mid">${each.services?.[0]}</span></span>${hot("timed", `${each.pace.toFixed(1)} ×`)}</li>`)}</ul>`;
}
