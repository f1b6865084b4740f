// Page *Worker*: the jobs it holds, its terms, its recent attempts, and its conversation while the page is open.

import { get } from "../api.js";
import { dialectName } from "../dialects.js";
import { html } from "../dom.js";
import { clock, count, plural, time, took } from "../format.js";
import { act, dialect, jobState, panel, workerState } from "../parts.js";
import { administersEach } from "../rights.js";
import { hrefOf } from "../routes.js";
import { conversation, loadConversation, withLadder } from "./conversation.js";
import { again, drawnAt, facts, jobLink, none, nowOf, serviceLink, span, table, workerColor } from "./elements.js";
import { heard, pace } from "./workers.js";

const RECENT = 10; // jobs
const REFRESH = 2; // seconds

export const title = ({ id }, data) => data?.worker.name || `Worker ${id}`;
export const live = ({ id }) => `worker/${id}`;

export async function load(address) {
  const { id } = address, view = await get(`/v1/workers/${encodeURIComponent(id)}`);
  const [recent, recorded] = await Promise.all([
    get("/v1/jobs", { worker: view.name, limit: RECENT }).then((found) => found.jobs, () => []),
    loadConversation(`/v1/workers/${id}`, address),
  ]);
  return { worker: view, recent, recorded };
}

/** The worker, its sentence and its messages come with each snapshot; its jobs by a request. */
export function advance(data, { page }, address) {
  if (page?.worker?.id === data.worker.id) data.worker = page.worker;
  data.recorded = withLadder(data.recorded, page?.ladder);
  again(data, REFRESH, () => load(address));
}

export function render({ address, data, live: snapshot }) {
  const each = data.worker, says = snapshot?.page?.says, now = nowOf(snapshot);
  return html`<div class="head"><h1>${each.name || `Worker ${each.id}`}</h1>${workerState(each.state)}${
    dialect(each.dialect)}<span class="grow"></span>
    <span class="acts">${administersEach(each.services) && buttons(each)}</span></div>
  ${says && html`<section class="panel why ${workerColor(each.state)}">${says}</section>`}
  <div class="row job"><div class="stack">
    ${panel("Jobs it holds", holds(each, now), { flush: true, note: `${each.running.length} of ${
      plural(each.capacity, "slot")}` })}
    ${data.recent.length > 0 && panel("Recent jobs", recent(data.recent, each, drawnAt(data.recent, now)), { flush: true,
      side: html`<a class="hint" href="${hrefOf("jobs", "", { worker: each.name })}">All</a>` })}
    ${conversation(data.recorded, address, `/v1/workers/${each.id}/ladder`)}
  </div><div class="stack">${panel("Terms", facts(terms(each, now)))}</div></div>`;
}

const buttons = ({ id, state }) => html`${state !== "draining" && act("drain", id, "Drain …")}${
  act("drain now", id, "Drain now …", "danger")}`;

const HOLD_HEADS = [["Job"], ["Service", "hide-s"], ["Attempt", "num"], ["For", "num"], ["At most", "num"]];

function holds(each, now) {
  const rows = each.holds ?? each.running.map((job) => ({ job }));
  if (!rows.length) return html`<p class="body dim">None.</p>`;
  return table(HOLD_HEADS, rows.map(({ job, service, attempt, since, due }) => html`<tr data-href="/job/${job}">
    <td>${jobLink(job)}</td><td class="hide-s">${service ?? none}</td><td class="num">${attempt ?? none}</td>
    <td class="num">${since ? time(span(since, null, now)) : none}</td>
    <td class="num dim">${due ? time(span(since, due, now)) : none}</td></tr>`));
}

const RECENT_HEADS = [["Job"], ["Service"], ["State"], ["Ran here", "num"], ["Age", "num hide-s"], ["Reason", "hide-s"]];

function recent(jobs, worker, now) {
  return table(RECENT_HEADS, jobs.map((job) => {
    const here = job.attempts.findLast((each) => each.worker === worker.name), reason = here?.reason || job.reason;
    return html`<tr data-href="/job/${job.id}"><td>${jobLink(job.id)}</td><td class="clip">${job.service}</td>
      <td>${jobState(job.outcome ?? job.state)}</td>
      <td class="num">${here?.started ? took(span(here.started, here.ended, now)) : none}</td>
      <td class="num hide-s mid">${time(span(job.created, null, now))}</td>
      <td class="hide-s rest"><div class="cut dim" title="${reason}">${reason}</div></td></tr>`;
  }));
}

const terms = (each, now) => [
  ["Id", each.id],
  ["Broker", each.broker],
  ["Dialect", dialectName(each.dialect)],
  ["Listener", each.listener && html`<span class="mono">${each.listener}</span>`],
  ["Address", each.address && html`<span class="mono">${each.address}</span>`],
  ["Services", each.services.map((name, i) => html`${i > 0 && ", "}${serviceLink(name)}`)],
  ["Slots", each.capacity],
  ["Lease", each.lease == null ? "none" : time(each.lease)],
  ["Last heard", heard(each)],
  ["Present for", each.since && time(span(each.since, null, now))],
  ["Since", each.since && clock(each.since)],
  ["Jobs done", each.done == null ? null : count(each.done)],
  ["Not done", each.undone == null ? null : count(each.undone)],
  ["Pace", each.pace == null ? null : html`${pace(each.pace)} <span class="dim">the median</span>`],
  ["Stuck attempts", each.stuck || null],
  ["Joins again by itself", each.comes_back ? "yes" : "no"],
];
