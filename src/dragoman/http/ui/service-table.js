// The table of services, on the overview and on the page of services.

import { html } from "./dom.js";
import { bar, spark } from "./charts.js";
import { count, percent, rate, time } from "./format.js";
import { hot, pair } from "./parts.js";
import { hrefOf } from "./routes.js";

const MANY = 50; // waiting jobs that are shown in colour
const LONG = 5; // seconds of the oldest job, likewise
const OFTEN = 0.01; // share of jobs that were not done, likewise

/** `lines`: values of the last minutes by service, or null. `head`: function that returns the head of a column. */
export function serviceTable(services, lines = null, head = (name) => name) {
  const rows = steady(services);
  return html`<div class="scroll"><table><thead><tr>
    <th>${head("Service", "name")}</th><th class="num">${head("Waiting", "waiting")}</th><th class="num">Oldest</th>
    <th class="num">${head("Jobs/s", "rate")}</th>${lines && html`<th class="hide-s">Trend</th>`}
    <th class="num hide-m">Wait p50 / p95</th><th class="num hide-s">Run p50 / p95</th>
    <th class="num hide-m">Not done</th><th class="hide-s">Slots in use</th></tr></thead>
    <tbody>${rows.map((each) => row(each, lines))}</tbody></table></div>`;
}

let order = new Map(); // places of the rows, by name

/** While the pointer is on the rows, they keep their order: the row to click does not move away. */
function steady(services) {
  const isRead = document.querySelector("tbody:hover, tr.at") !== null;
  const place = (each) => order.get(each.name) ?? services.length;
  const rows = isRead ? services.toSorted((a, b) => place(a) - place(b)) : services;
  order = new Map(rows.map((each, i) => [each.name, i]));
  return rows;
}

function row(service, lines) {
  const href = hrefOf("service", service.name), slots = service.slots ?? 0;
  return html`<tr data-key="${service.name}" data-href="${href}">
    <td><a href="${href}" title="${service.name}"><b class="name">${service.name}</b></a> ${service.paused && html`<span class="tag warn">paused</span>`}</td>
    <td class="num">${service.waiting > MANY ? hot("waiting", count(service.waiting)) : count(service.waiting)}</td>
    <td class="num">${age(service)}</td>
    <td class="num">${rate(service.done)}</td>
    ${lines && html`<td class="hide-s">${Object.hasOwn(lines, service.name) && spark(lines[service.name].done, service.paused ? "quiet" : "accent")}</td>`}
    <td class="num hide-m">${pair(...(service.wait ?? []))}</td>
    <td class="num hide-s">${pair(...(service.run ?? []))}</td>
    <td class="num hide-m">${undone(service)}</td>
    <td class="hide-s"><span class="slots">${bar([["running", service.running]], slots)}<span class="dim">${count(service.running)}/${count(slots)}</span></span></td></tr>`;
}

function age({ waiting, oldest }) {
  if (!waiting || oldest == null) return html`<span class="dim">–</span>`;
  return oldest > LONG ? hot("waiting", time(oldest)) : time(oldest);
}

function undone(service) {
  const ended = (service.done ?? 0) + (service.undone ?? 0), share = ended > 0 ? service.undone / ended : null;
  return share > OFTEN ? hot("failed", percent(share)) : html`<span class="dim">${percent(share)}</span>`;
}
