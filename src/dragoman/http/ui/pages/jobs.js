// Page *Jobs*: counts by state, filters in the address, 50 jobs a page. The rows stand still while they are read.

import { get } from "../api.js";
import { unanswered } from "../cluster.js";
import { DIALECTS } from "../dialects.js";
import { html } from "../dom.js";
import { count, time, took } from "../format.js";
import { dialect, empty, jobState, noneYet } from "../parts.js";
import { seesAll } from "../rights.js";
import {
  again, brokerCell, choices, hasBrokers, hasOwnKey, headsFor, jobLink, more, none, nowOf, search, select, span, table, tags, withQuery,
} from "./elements.js";

const PAGE = 50; // jobs
const REFRESH = 5; // seconds
const STATES = [["", "all"], ["waiting"], ["delayed"], ["dependent"], ["running"], ["done"], ["undone", "not done"]];
const KINDS = [["", "all"], ["call", "calls"], ["background"]];
const OUTCOMES = ["done", "failed", "timed out", "lost", "cancelled", "refused"];
const TAGS = ["worker", "group"];
const CALLERS = Object.entries({ ...DIALECTS, schedule: "Schedules" }).filter(([name]) => name !== "controller");
const FILTERS = ["service", "kind", "caller", "worker", "text", "group", "after"];

/** Fields of the operation for the query of the page. @param {Record<string, string>} query */
function request(query) {
  const state = query.state, wanted = { limit: PAGE };
  if (state === "undone" || state === "quarantined") wanted[state] = true;
  else if (state) wanted[OUTCOMES.includes(state) ? "outcome" : "state"] = state;
  for (const name of FILTERS) wanted[name] = query[name];
  return wanted;
}

const countsOf = async (query) => (seesAll() ? get("/v1/jobs/counts", { service: query.service }) : null);

/** The progress of the group that the list is about. */
const groupOf = async (id) => (id ? get(`/v1/groups/${encodeURIComponent(id)}`).catch(() => null) : null);

export async function load({ query }) {
  const [found, counts, group, services] = await Promise.all([
    get("/v1/jobs", request(query)),
    countsOf(query),
    groupOf(query.group),
    get("/v1/services", { sort: "name", limit: 200 }).catch(() => ({ services: [] })),
  ]);
  return { ...found, counts, group, services: services.services.map((each) => each.name), newer: 0 };
}

/** Counts jobs that are newer than the first row, without moving the rows. */
export function advance(data, snapshot, { query }) {
  if (query.after) return;
  again(data, REFRESH, async () => {
    const [found, counts, group] = await Promise.all([
      get("/v1/jobs", request(query)), countsOf(query), groupOf(query.group),
    ]);
    const place = found.jobs.findIndex((each) => each.id === data.jobs[0]?.id);
    return { counts, group, newer: place < 0 ? found.jobs.length : place };
  });
}

/** The button *N newer* loads the list again. */
export const acts = { newest: (target, { reload }) => reload() };

export function render({ address, data, live }) {
  const { query } = address, now = tick(data, nowOf(live)), isFiltered = [...FILTERS, "state"].some((name) => query[name]);
  return html`<div class="head"><h1>Jobs</h1>${totals(data.counts)}${unanswered(data)}${
    data.group && html`<span class="tag">group: ${data.group.says}</span>`}</div>
  <div class="head filters">
    ${choices("State", STATES.map(([value, label]) => [value, label, number(data.counts, value)]), "state", query)}
    ${select("Service", "service", services(data.services, query.service).map((name) => [name]), "Any service", query)}
    ${select("Caller", "caller", callers(query.caller), "Any caller", query)}
    ${choices("Kind", KINDS, "kind", query)}
    ${search("Id, key, worker or reason", query, "Id, key, reason …")}
    ${tags(address, isChoice(query.state) ? TAGS : ["state", ...TAGS])}
    <span class="grow"></span>
    ${data.newer > 0 && html`<button class="small" data-act="newest">${newer(data.newer)}</button>`}
  </div>
  <section class="panel" aria-label="Jobs">${data.jobs.length ? jobTable(data.jobs, now) : nothing(isFiltered)}
  ${(data.jobs.length > 0 || data.after) && more(html`Newest first. The list stands still.${cut(data)}`, [
    query.after && ["Newest", withQuery(address, "after", "")],
    data.after && ["Older", withQuery(address, "after", data.after)],
  ])}</section>`;
}

/** Time that the ages refer to. They change every few seconds: the rows are not drawn again in between. */
function tick(data, now) {
  if (!(now - data.tick < REFRESH * 1000)) data.tick = now;
  return data.tick;
}

const newer = (n) => (n >= PAGE ? `${PAGE} or more newer` : `${n} newer`);

const isChoice = (state = "") => STATES.some(([value]) => value === state);

const callers = (chosen) => (chosen && !CALLERS.some(([name]) => name === chosen) ? [[chosen], ...CALLERS] : CALLERS);

const services = (names, chosen) => (chosen && !names.includes(chosen) ? [chosen, ...names] : names);

function totals(counts) {
  if (!counts) return "";
  const present = counts.waiting + counts.delayed + counts.dependent + counts.running;
  return html`<span class="dim">${count(present)} present, ${count(counts.done + counts.undone)} ended</span>`;
}

function number(counts, state) {
  if (!counts) return null;
  const { waiting, delayed, dependent, running, done, undone } = counts;
  return count(state ? counts[state] : waiting + delayed + dependent + running + done + undone);
}

/** A search that ended before the page was full has looked at as many jobs as one request may. */
const cut = ({ jobs, searched, complete }) => !complete && jobs.length < PAGE &&
  html` <b>The newest ${count(searched)} jobs were searched, older ones were not.</b>`;

const nothing = (isFiltered) => isFiltered
  ? empty("No job matches. Outcomes are kept for a day; calls without a key only until they end.")
  : noneYet("There are no jobs yet. Submit one:", "jobs",
    `curl -d hello '${location.origin}/v1/jobs?service=default'`);

const HEADS = [["Job"], ["Service"], ["State"], ["Caller", "hide-m"], ["Worker", "hide-s"], ["Attempt", "num hide-s"],
  ["Age", "num"], ["Waited", "num hide-m"], ["Ran", "num hide-s"], ["Reason", "hide-m"]];

function jobTable(jobs, now) {
  const isShared = hasBrokers(jobs);
  return table(headsFor(HEADS, jobs), jobs.map((each) => row(each, now, isShared)), "jobs");
}

function row(each, now, isShared) {
  const last = each.attempts.at(-1);
  return html`<tr data-href="/job/${each.id}"><td>${jobLink(each.id)} ${hasOwnKey(each) && html`<span class="tag key hide-m"
      title="Key ${each.key}">${each.key}</span>`}</td>
    ${brokerCell(each, isShared)}<td class="clip">${each.service}</td><td>${jobState(each.outcome ?? each.state)}</td>
    <td class="hide-m">${each.caller ? dialect(each.caller.dialect) : none}</td>
    <td class="hide-s mid clip">${last?.worker ?? ""}</td>
    <td class="num hide-s mid">${last ? last.number : 0}${each.max_attempts != null && ` of ${each.max_attempts}`}</td>
    <td class="num mid">${time(span(each.created, null, now))}</td>
    <td class="num hide-m mid">${each.waited == null ? none : took(each.waited)}</td>
    <td class="num hide-s mid">${last?.started ? took(span(last.started, last.ended, now)) : none}</td>
    <td class="hide-m rest"><div class="cut dim" title="${each.reason}">${each.reason}</div></td></tr>`;
}
