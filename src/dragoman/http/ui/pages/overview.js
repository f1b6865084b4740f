// Overview: what needs attention, rates and load, who speaks to whom, services, what changed.

import { get } from "../api.js";
import { bar, chart, legend, spark } from "../charts.js";
import { brokersOf, named, reporter, shown } from "../cluster.js";
import { html } from "../dom.js";
import { flow } from "../flow.js";
import { clock, count, later, percent, rate, since, time } from "../format.js";
import {
  FIRST_WORKER, LEVEL_COLORS, RANGES, REFRESH, WORKER_COLORS, empty, hot, noneYet, panel, rangeChoice, rangeOf, tile,
} from "../parts.js";
import { hrefOf } from "../routes.js";
import { advance as advanceSeries, marksOf, sumOf, total } from "../series.js";
import { serviceTable } from "../service-table.js";

const SERVICES = 8, CHANGES = 7, SLOW_WORKERS = 6; // rows
const ATTENTION = 5; // sentences; the number of further ones is shown
const SLOW = 1.5; // pace from which a worker is slow

export const refresh = (address) => REFRESH[rangeOf(address)];

export async function load(address) {
  const data = { ...await get("/v1/overview", { range: rangeOf(address) }), slow: null };
  // The broker looks at all workers to find the slow ones: the page is shown meanwhile.
  get("/v1/workers", { sort: "slow", limit: SLOW_WORKERS }).then(({ workers }) => {
    data.slow = workers.filter(({ pace }) => pace >= SLOW);
  }, () => { data.slow = []; });
  return data;
}

export function advance({ series }, snapshot) {
  const { total: line, services } = series, { totals } = snapshot;
  const rows = new Map(snapshot.services.map((each) => [each.name, each]));
  const values = Object.entries(services).map(([name, each]) => [each.done, rows.get(name)?.done]);
  if (line && totals) {
    for (const name of ["arrived", "done", "waiting", "running"]) values.push([line[name], totals[name]]);
    values.push([line.undone, sumOf(totals.undone)]);
  }
  advanceSeries(series, snapshot.at, values);
}

export function render({ address, data, live }) {
  const now = live ?? data, range = rangeOf(address), { series } = data;
  return html`<div class="head"><h1>Overview</h1>${shown(now)}<span class="grow"></span>${rangeChoice(range)}</div>
  ${attention(now)}
  ${now.totals && series.total && html`${tiles(now, series, range)}
    <div class="row two" data-key="charts">${ended(series, range)}
      ${panel("Who speaks to whom", talk(now.flow), {
        note: "jobs/s", side: html`<a class="hint" href="/broker">Matrix</a>`,
      })}</div>`}
  ${services(now, series)}
  <div class="row two" data-key="lists">${panel("What changed", changes(now), { flush: true })}
    ${panel("Slow now", slow(data.slow), { flush: true, note: "run time beside the service's median" })}</div>`;
}

// ---------------------------------------------------------------- attention

function attention(now) {
  const items = now.attention.slice(0, ATTENTION), more = now.attention.length - items.length;
  return html`<section class="panel" data-key="attention" aria-label="Needs attention"><ul class="notes">
    ${items.map((each) => finding(each, now.at))}
    ${more > 0 && html`<li class="dim">${count(more)} more</li>`}
    ${!items.length && html`<li><i class="dot c-done"></i><span class="mid">Nothing needs attention.</span></li>`}
  </ul></section>`;
}

const finding = (each, now) => html`<li><i class="dot c-${LEVEL_COLORS[each.level] ?? "waiting"}"></i>
  <span class="grow"><a href="${linkOf(each)}">${emphasised(each)}</a> <span class="dim">${each.advice}</span>
    ${reporter(each)}</span>
  <time class="hide-s" datetime="${each.since}">${time(since(each.since, now))}</time>
  <a class="dim" href="${linkOf(each)}">Look</a></li>`;

/** The sentence, with the name that it is about in bold. */
function emphasised({ text, about }) {
  const name = about.service ?? about.schedule, place = name == null ? -1 : text.indexOf(`'${name}'`);
  return place < 0 ? text : html`${text.slice(0, place)}<b>${name}</b>${text.slice(place + name.length + 2)}`;
}

function linkOf({ about, kind }) {
  if (kind.includes("quarantine")) return "/quarantine";
  if (about.service != null) return hrefOf("service", about.service);
  if (about.worker != null) return hrefOf("worker", about.worker);
  return about.schedule != null ? "/schedules" : "/broker";
}

// ---------------------------------------------------------------- numbers

function tiles({ totals, broker, brokers }, { total: line, step }, range) {
  const undone = total(line.undone) * step, done = total(line.done) * step;
  const states = Object.entries(WORKER_COLORS).map(([state, color]) => [color, totals.workers[state] ?? 0]);
  const delayed = later(totals);
  const workers = total(Object.values(totals.workers));
  const ranged = Object.fromEntries(RANGES)[range];
  return html`<section class="panel tiles" data-key="tiles">
    ${tile("Done", rate(totals.done), "jobs/s", spark(line.done, "done"))}
    ${tile("Waiting", count(totals.waiting), delayed, spark(line.waiting, "waiting"))}
    ${tile("Running", count(totals.running), `of ${count(totals.slots)} slots`, share(totals.running, totals.slots))}
    ${tile(`Not done, ${ranged}`, count(undone), percent(undone / (undone + done)), spark(line.undone, "failed"))}
    ${tile("Workers", count(workers), `${count(totals.workers.idle ?? 0)} idle`, bar(states))}
    ${tile(brokersOf({ brokers }).length > 1 ? "Busiest broker's CPU" : "Broker CPU", percent(broker.cpu), `lag ${time(broker.lag_p99)}`, share(broker.cpu, 1))}
  </section>`;
}
const share = (used, all) => bar([["running", used]], Math.max(used, all));

function ended(series, range) {
  const lines = [
    { name: "not done", color: "failed", values: series.total.undone },
    { name: "done", color: "done", values: series.total.done },
  ];
  const label = "Jobs that ended, a second, by outcome";
  const drawn = chart("ended", lines, { isStacked: true, range, step: series.step, marks: marksOf(series), label });
  return panel("Jobs that ended", drawn, { note: "a second", side: legend(lines, "ended") });
}

const talk = (pairs) => pairs.some(([, , value]) => value > 0) ? flow(pairs) :
  empty("No job has ended in the last seconds.");

// ---------------------------------------------------------------- lists

function services(now, { services: lines }) {
  const shown = now.services.slice(0, SERVICES);
  const body = shown.length ? serviceTable(shown, lines) : noneYet("No worker has offered a service yet.", "services", FIRST_WORKER);
  const all = html`<a class="hint" href="/services">All ${now.totals && count(now.totals.services)}</a>`;
  return panel("Services", body, { flush: true, note: "those that need attention first", side: all });
}

function changes(now) {
  const items = now.changes.slice(0, CHANGES);
  if (!items.length) return empty("Nothing has changed since the broker started.");
  return html`<ul class="notes tight">${items.map((each) => html`<li>
    <time datetime="${each.at}">${clock(each.at)}</time><i class="dot c-${LEVEL_COLORS[each.level] ?? "quiet"}"></i>
    ${each.service == null ? html`<span class="grow">${named(each)}</span>` :
      html`<a class="grow" href="${hrefOf("service", each.service)}">${named(each)}</a>`}</li>`)}</ul>`;
}

function slow(workers) {
  if (workers === null) return empty("");
  if (!workers.length) return empty(`No worker takes ${SLOW} times as long as the median of its service.`);
  return html`<ul class="notes tight">${workers.map((each) => html`<li>
    <span class="grow"><a href="${hrefOf("worker", each.id)}"><b>${each.name || each.id}</b></a>
      <span class="mid">${each.services[0]}</span> ${each.broker && html`<span class="dim">${each.broker}</span>`}</span>${hot("timed", `${each.pace.toFixed(1)} ×`)}</li>`)}</ul>`;
}
