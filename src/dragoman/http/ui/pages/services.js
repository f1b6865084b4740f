// Services: all of them, sorted and filtered by the broker, a page of 100 at a time.

import { get } from "../api.js";
import { html } from "../dom.js";
import { choice, empty, panel } from "../parts.js";
import { serviceTable } from "../service-table.js";

const LIMIT = 100;
const REFRESH = 5; // seconds between two requests for the first page; later pages stand still
const SORTS = [["need", "need"], ["name", "name"], ["waiting", "waiting"], ["rate", "rate"]];

const sortOf = ({ query }) => SORTS.some(([sort]) => sort === query.sort) ? query.sort : "need";
export const refresh = ({ query }) => query.after ? null : REFRESH;
export const load = (address) => get("/v1/services", { sort: sortOf(address), text: address.query.text, after: address.query.after, limit: LIMIT });

export function render({ address, data }) {
  const sort = sortOf(address), { text = "", after } = address.query;
  const rows = data.services;
  return html`<div class="head"><h1>Services</h1><span class="grow"></span>
    <input type="search" data-query="text" value="${text}" placeholder="Part of a name" aria-label="Part of a name" size="18">
    <span class="seg" role="group" aria-label="Sort by">${SORTS.map(([value, label]) => choice("sort", value, label, sort, { standard: "need" }))}</span></div>
  ${panel("All services", rows.length ? serviceTable(rows) : nothing(text), { flush: true, note: sort === "need" ? "those that need attention first" : `sorted by ${sort}` })}
  ${(after || data.after) && html`<div class="head"><span class="dim">${LIMIT} services a page.</span><span class="grow"></span>
    ${after && html`<button class="small" data-query="after" data-value="">First page</button>`}
    ${data.after && html`<button class="small" data-query="after" data-value="${data.after}">Next page</button>`}</div>`}`;
}

const nothing = (text) => text ? empty(`No service has “${text}” in its name.`) : empty("No worker has offered a service yet.", 'dragoman worker --exec "tr a-z A-Z"');
