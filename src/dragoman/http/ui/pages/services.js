// Services: all of them, sorted and filtered by the broker, a page of 100 at a time.

import { get } from "../api.js";
import { unanswered } from "../cluster.js";
import { html } from "../dom.js";
import { count } from "../format.js";
import { FIRST_WORKER, choice, empty, noneYet, panel } from "../parts.js";
import { isFolder } from "../routes.js";
import { serviceTable } from "../service-table.js";

const LIMIT = 100;
const REFRESH = 5; // seconds between two requests for the first page; later pages stand still
const SORTS = { need: "need", name: "name", waiting: "waiting jobs", rate: "jobs/s" };

const sortOf = ({ query }) => Object.hasOwn(SORTS, query.sort ?? "") ? query.sort : "need";
export const refresh = ({ query }) => query.after ? null : REFRESH;
export const load = ({ query }) => {
  const { text, after } = query;
  return get("/v1/services", { sort: sortOf({ query }), text, after, limit: LIMIT });
};

export function render({ address, data, live }) {
  const sort = sortOf(address), { text = "" } = address.query;
  const note = sort === "need" ? "those that need attention first" : `sorted by ${SORTS[sort]}`;
  const known = live?.totals?.services;
  return html`<div class="head"><h1>Services</h1>${known > 0 && html`<span class="dim">${count(known)} known</span>`}${unanswered(data)}
    <span class="grow"></span>
    <input type="search" data-query="text" value="${text}" placeholder="Part of a name" size="18"
      aria-label="Part of a name">
    <span class="seg" role="group" aria-label="Sort by">${Object.entries(SORTS).map(([value, label]) =>
      choice("sort", value, label, sort, { standard: "need" }))}</span></div>
  ${isFolder(text) && html`<p class="hint">A browser cannot open the page of the service '${text}': this name has another
    meaning in an address. The command <code>dragoman show-service ${text}</code> shows the service.</p>`}
  ${panel("All services", data.services.length ? serviceTable(data.services) : nothing(text), { flush: true, note })}
  ${turns(address.query.after, data.after)}`;
}

const turns = (after, next) => (after || next) && html`<div class="head">
  <span class="dim">${LIMIT} services a page.</span><span class="grow"></span>
  ${after && html`<button class="small" data-query="after" data-value="">First page</button>`}
  ${next && html`<button class="small" data-query="after" data-value="${next}">Next page</button>`}</div>`;

const nothing = (text) => text ? empty(`No service has “${text}” in its name.`) :
  noneYet("No worker has offered a service yet.", "services", FIRST_WORKER);
