// The table of services, on the overview and on the page of services.

import { bar, spark } from "./charts.js";
import { html } from "./dom.js";
import { count, percent, rate, time } from "./format.js";
import { brokerCell, hasBrokers } from "./pages/elements.js";
import { hot, pair } from "./parts.js";
import { hrefOf } from "./routes.js";

const MANY = 50; // waiting jobs that are shown in colour
const LONG = 5; // seconds of the oldest job, likewise
const OFTEN = 0.01; // share of jobs that were not done, likewise

/** `lines`: values of the last minutes by service, or null. */
export const serviceTable = (services, lines = null, isShared = hasBrokers(services)) => html`<div class="scroll"><table>
  <thead><tr><th>Service</th>${isShared && html`<th class="hide-m">Broker</th>`}<th class="num">Waiting</th><th class="num">Oldest</th><th class="num">Jobs/s</th>
    ${lines && html`<th class="hide-s">Trend</th>`}<th class="num hide-m">Wait p50 / p95</th>
    <th class="num hide-s">Run p50 / p95</th><th class="num hide-m">Not done</th>
    <th class="hide-s">Slots in use</th></tr></thead>
  <tbody>${steady(services).map((each) => row(each, lines, isShared))}</tbody></table></div>`;

let order = new Map(); // places of the rows, by name

/** While the pointer is on the rows, they keep their order: the row to click does not move away. */
function steady(services) {
  const isRead = document.querySelector("tbody:hover, tr.at") !== null;
  const place = (each) => order.get(each.name) ?? services.length;
  const rows = isRead ? services.toSorted((a, b) => place(a) - place(b)) : services;
  order = new Map(rows.map((each, i) => [each.name, i]));
  return rows;
}

const row = (service, lines, isShared) => html`<tr data-key="${service.name}" data-href="${hrefOf("service", service.name)}">
  <td><a href="${hrefOf("service", service.name)}" title="${service.name}"><b class="name">${service.name}</b></a>
    ${service.paused && html`<span class="tag warn">paused</span>`}</td>
  ${brokerCell(service, isShared)}<td class="num">${service.waiting > MANY ? hot("waiting", count(service.waiting)) : count(service.waiting)}</td>
  <td class="num">${age(service)}</td>
  <td class="num">${rate(service.done)}</td>
  ${lines && html`<td class="hide-s">${trend(service, lines)}</td>`}
  <td class="num hide-m">${pair(...(service.wait ?? []))}</td>
  <td class="num hide-s">${pair(...(service.run ?? []))}</td>
  <td class="num hide-m">${undone(service)}</td>
  <td class="hide-s">${slots(service.running, service.slots)}</td></tr>`;

const trend = ({ name, paused }, lines) =>
  Object.hasOwn(lines, name) && spark(lines[name].done, paused ? "quiet" : "accent");

/** Bar of the slots that are in use. */
export const slots = (used, all) => html`<span class="slots">${bar([["running", used]], all)}
  <span class="dim">${count(used)}/${count(all)}</span></span>`;

function age({ waiting, oldest }) {
  if (!waiting || oldest == null) return html`<span class="dim">–</span>`;
  return oldest > LONG ? hot("waiting", time(oldest)) : time(oldest);
}

function undone(service) {
  const ended = service.done + service.undone, share = ended > 0 ? service.undone / ended : null;
  return share > OFTEN ? hot("failed", percent(share)) : html`<span class="dim">${percent(share)}</span>`;
}
