// Page *Broker*: which callers' dialects reach which workers' dialects, listeners, limits, health and cost. In a cluster,
// all brokers, and the details of the one that the query names.

import { get } from "../api.js";
import { brokersOf, ownName } from "../cluster.js";
import { DIALECTS, dialectName } from "../dialects.js";
import { html } from "../dom.js";
import { bytes, clock, count, percent, rate, time } from "../format.js";
import { dialect, empty, hot, panel } from "../parts.js";
import { seesAll } from "../rights.js";
import { hrefOf } from "../routes.js";
import { again, facts, meter, none, nowOf, span, table } from "./elements.js";

const HIDDEN = "Listeners, limits and settings are shown to principals with the right to see all services.";
const REFRESH = 5, SOON = 0.5; // seconds; the first rates need a second reading
const NEAR = 0.8; // share of a limit
const IN_BYTES = /memory|bytes|store|payload|disk/;
const SHADES = 10; // of a cell of the matrix

/** `problem`: the reason for which the chosen broker shows no details. */
export async function load({ query }) {
  const [health, details] = await Promise.all([get("/v1/health"), seesAll() ? detailsOf(query.broker) : NOTHING]);
  const at = performance.now();
  return { health, problem: null, ...details, at, fetchedAt: at, rates: new Map() };
}

const NOTHING = { listeners: [], broker: {} };

async function detailsOf(broker) {
  try {
    const [{ listeners }, view] = await Promise.all([get("/v1/listeners", { broker }), get("/v1/broker", { broker })]);
    return { listeners, broker: view };
  } catch (problem) {
    if (!broker) throw problem;
    return { ...NOTHING, problem: problem.message };
  }
}

export function advance(data, snapshot, address) {
  again(data, data.rates.size ? REFRESH : SOON, async () => {
    const next = await load(address);
    return { ...next, rates: ratesBetween(data, next) };
  });
}

/** Bytes a second of each listener, from its totals at two times. */
function ratesBetween(before, after) {
  const seconds = Math.max(0.001, (after.at - before.at) / 1000);
  const known = new Map(before.listeners.map((each) => [each.url, each]));
  return new Map(after.listeners.filter(({ url }) => known.has(url)).map((each) => {
    const { received, sent } = known.get(each.url);
    return [each.url, { received: (each.received - received) / seconds, sent: (each.sent - sent) / seconds }];
  }));
}

export function render({ address, data, live }) {
  const { broker } = data, now = nowOf(live), name = address.query.broker || ownName(live);
  const row = brokersOf(live).find((each) => each.name === name), health = healthOf(row, data.health);
  return html`<div class="head"><h1>${name ? `Broker ${name}` : "Broker"}</h1><span class="dim">${
    line(broker, health, now)}</span></div>
  ${health.problems.map((each) => html`<section class="panel why c-failed">${each}</section>`)}
  ${brokersOf(live).length > 0 && panel("Brokers", brokerTable(live, name), { flush: true, note: "of this cluster; choose one for its details" })}
  ${!seesAll() && html`<section class="panel">${empty(HIDDEN)}</section>`}
  ${data.problem && html`<section class="panel why c-failed">${data.problem}</section>`}
  ${seesAll() && html`${matrix(live?.flow ?? [])}
  ${!data.problem && details(data, row ? row.numbers ?? {} : live?.broker ?? {}, health)}`}`;
}

const details = ({ broker, listeners, rates }, numbers, health) => html`
  ${panel("Listeners", listenerTable(listeners, rates), { flush: true })}
  <div class="row even">
    <div class="stack">${panel("Limits", limits(broker.limits), { note: "used now" })}${settings(broker.settings)}</div>
    ${panel("Health", facts(vitals(numbers, broker, health)))}
  </div>`;

/** Health of the chosen broker of a cluster; that of the broker which was asked has more numbers. */
const healthOf = (row, health) => (!row || row.here ? health :
  { version: row.version, ready: row.ready, draining: row.draining, problems: row.problems, peers: row.numbers?.peers });

const BROKER_HEADS = [["Broker"], ["State"], ["Version", "hide-m"], ["Shards", "num hide-s"], ["Workers", "num"],
  ["Idle", "num hide-s"], ["Waiting", "num"], ["Running", "num hide-s"], ["CPU", "num"], ["Memory", "num hide-m"],
  ["Lag p99", "num hide-m"]];

/** All brokers of the cluster, by name. Of one that does not answer, only the name is known. */
function brokerTable(live, chosen) {
  const known = [...brokersOf(live), ...live.unanswered.map((name) => ({ name }))];
  const named = new Map(known.map((each) => [each.name, each])); // one whose numbers are hidden is in both lists
  const rows = [...named.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return table(BROKER_HEADS, rows.map((each) => html`<tr class="${each.name === chosen && "chosen"}"
    data-key="b${each.name}" data-href="${hrefOf("broker", "", { broker: each.name })}">
    <td><a href="${hrefOf("broker", "", { broker: each.name })}" aria-current="${String(each.name === chosen)}"><b
      class="name">${each.name}</b></a>${each.here && html` <span class="dim">serves this page</span>`}</td>
    <td>${brokerState(each)}</td><td class="hide-m mid">${each.version ?? none}</td>
    <td class="num hide-s">${number(each.shards)}</td><td class="num">${number(each.workers)}</td>
    <td class="num hide-s">${number(each.idle)}</td><td class="num">${number(each.waiting)}</td>
    <td class="num hide-s">${number(each.running)}</td>
    <td class="num">${each.numbers ? percent(each.numbers.cpu) : none}</td>
    <td class="num hide-m mid">${each.numbers ? bytes(each.numbers.resident) : none}</td>
    <td class="num hide-m mid">${each.numbers ? time(each.numbers.lag_p99) : none}</td></tr>`), "brokers");
}

const number = (n) => (n == null ? none : count(n));

function brokerState(each) {
  const [color, text] = each.ready == null ? ["failed", "does not answer"] : each.draining ? ["quiet", "draining"]
    : each.ready ? ["done", "ready"] : ["failed", "not ready"];
  return html`<span class="state"><i class="dot c-${color}"></i>${text}</span>`;
}

function line(broker, health, now) {
  const built = { true: "compiled", false: "interpreted" }[broker.compiled];
  const parts = [
    `${health.version}${built ? `, ${built}` : ""}`, broker.python && `Python ${broker.python}`,
    broker.started && `up for ${time(span(broker.started, null, now))}`,
    health.draining ? "draining" : health.loading ? "loading" : health.ready ? "ready" : "not ready",
  ];
  return parts.filter(Boolean).join(" · ");
}

/** Jobs a second for each pair of dialects, and the mean time that the broker adds. */
function matrix(flow) {
  const cells = new Map(flow.map(([from, to, jobs, added]) => [`${from} ${to}`, { jobs, added }]));
  const workers = Object.keys(DIALECTS), callers = workers.filter((each) => each !== "controller"); // it has no callers
  const others = new Set(flow.map(([from]) => from).filter((each) => !callers.includes(each)));
  const most = Math.max(...flow.map(([, , jobs]) => jobs), 1e-9);
  const heads = workers.map((to) => html`<th scope="col">${dialect(to)}</th>`);
  const rows = [...callers, ...others].map((from) => html`<tr><th scope="row">${dialect(from)}</th>${
    workers.map((to) => cell(from, to, cells.get(`${from} ${to}`), most))}</tr>`);
  return panel("Who calls whom", html`<div class="scroll"><table class="matrix"><thead><tr>
    <th scope="row">callers ↓ workers →</th>${heads}</tr></thead><tbody>${rows}</tbody></table></div>`,
  { flush: true, note: "jobs a second, and the mean time that the broker adds" });
}

function cell(from, to, pair, most) {
  if (!pair) return html`<td><i class="none">·</i></td>`;
  const shade = pair.jobs > 0 ? 1 + Math.round((SHADES - 1) * Math.sqrt(pair.jobs / most)) : 0;
  return html`<td><i class="shade-${shade}" title="${dialectName(from)} callers, ${dialectName(to)} workers">${
    rate(pair.jobs)}<small>${pair.added == null ? "" : time(pair.added)}</small></i></td>`;
}

const HEADS = [["Address"], ["Dialect", "hide-s"], ["For", "hide-m"], ["Peers", "num"], ["In", "num hide-s"],
  ["Out", "num hide-s"], ["Bad messages", "num"]];

const listenerTable = (listeners, rates) => table(HEADS, listeners.map((each) => html`<tr>
  <td class="mono fill"><div class="cut wraps" title="${each.url}">${each.url}</div></td>
  <td class="hide-s nowrap">${dialect(each.dialect)}${each.edition && html` <span class="dim">${each.edition}</span>`}</td>
  <td class="mid hide-m nowrap">${roles(each)} ${each.insecure && html`<span class="tag warn">not protected</span>`}</td>
  <td class="num">${count(each.peers)}</td>
  <td class="num mid hide-s" title="${bytes(each.received)} in all">${flowing(rates.get(each.url)?.received)}</td>
  <td class="num mid hide-s" title="${bytes(each.sent)} in all">${flowing(rates.get(each.url)?.sent)}</td>
  <td class="num" title="${reasons(each.bad_reasons)}">${each.bad ? hot("failed", count(each.bad))
    : html`<span class="dim">0</span>`}</td></tr>`), "listeners");

const flowing = (n) => (n == null ? none : `${bytes(n)}/s`);

/** Parties of a listener. Callers may have an address of their own, whose end is shown. */
function roles({ roles: parties = [], frontend }) {
  if (!frontend) return parties.map((role) => `${role}s`).join(", ");
  return html`workers · callers on <span class="mono" title="${frontend}">${frontend.split(/[:/]/).at(-1)}</span>`;
}

const reasons = (numbers) => Object.entries(numbers ?? {}).map(([reason, n]) => `${reason}: ${n}`).join(", ");

function limits(rows) {
  const show = (name, n) => (IN_BYTES.test(name) ? bytes(n) : count(n));
  return html`<dl class="limits">${rows.map(({ name, used, of }) => html`<dt>${name}</dt><dd>${
    meter([[used / of > NEAR ? "failed" : "running", Math.min(1, used / of)]], percent(used / of))}</dd><dd>${
    show(name, used)} of ${of == null ? "no limit" : show(name, of)}</dd>`)}</dl>`;
}

const vitals = (now, broker, health) => [
  ["CPU", now.cpu == null ? none : `${percent(now.cpu)} of one core`],
  ["For dashboards", now.dashboard == null ? none : `${percent(now.dashboard)} of one core`],
  ["Loop lag p99", time(now.lag_p99)],
  ["Commit p99", time(now.commit_p99)],
  ["Resident memory", bytes(now.resident)],
  ["Store", broker.store_size == null ? null : bytes(broker.store_size)],
  ["Connections", health.peers == null ? null : count(health.peers)],
  ["Jobs", health.jobs == null ? null : count(health.jobs)],
  ["Started", broker.started && clock(broker.started)],
  ["Instance", broker.instance && html`<span class="mono">${broker.instance}</span>`],
];

function settings(values) {
  const rows = Object.entries(values).map(([name, value]) => [name, html`<span class="mono">${String(value)}</span>`]);
  return rows.length > 0 && panel("Settings", facts(rows), { note: "those that are not the default" });
}
