// Page *Job*: why it is where it is, its attempts on one time axis, its conversation, its facts, payload and result.

import { get } from "../api.js";
import { unanswered } from "../cluster.js";
import { html } from "../dom.js";
import { bytes, clock, count, time, took } from "../format.js";
import { beginning, content } from "./content.js";
import { UNRECORDED, conversation, loadConversation, withLadder } from "./conversation.js";
import { act, dialect, jobState, panel } from "../parts.js";
import { administers, hasActs, hidesPayloads } from "../rights.js";
import {
  again, ahead, brokerCell, facts, hasBrokers, hasOwnKey, headsFor, jobColor, jobLink, none, nowOf, serviceLink, table, workerLink,
} from "./elements.js";
import { timeline } from "./timeline.js";

const REFRESH = 2; // seconds
const UNIQUE = {
  waiting: "unique until it starts",
  unfinished: "unique until it ends",
  kept: "unique while its outcome is kept",
};

export const title = ({ id }) => `${id.slice(0, 12)}…`;
export const live = ({ id }) => `job/${id}`;

/** `known`: the first bytes of the payload, if they were fetched before; they do not change. */
export async function load(address, known = null) {
  const { id } = address, path = `/v1/jobs/${encodeURIComponent(id)}`;
  let view, reason;
  try {
    [view, reason] = await Promise.all([get(path), why(id)]);
  } catch (problem) {
    return gone(problem, path, address);
  }
  const [group, recorded, payload] = await Promise.all([
    view.group ? get(`/v1/groups/${view.group}`).catch(() => null) : null,
    view.recorded || view.state !== "ended" ? loadConversation(path, address) : UNRECORDED, known ?? beginning(view),
  ]);
  return { job: view, why: reason, group, recorded, payload };
}

/** A call is gone when it has ended; its messages may still be there. The id may be one of a group. */
async function gone(problem, path, address) {
  if (problem.status === 404) await openGroup(address.id);
  const recorded = problem.status === 404 ? await loadConversation(path, address) : { problem };
  if (recorded.problem) throw problem;
  return { gone: problem.message, recorded };
}

/** Links of jobs that come after a group have the id of the group: its jobs are a list. */
async function openGroup(id) {
  const group = await get(`/v1/groups/${encodeURIComponent(id)}`).catch(() => null);
  if (!group) return;
  history.replaceState(null, "", `/jobs?group=${group.id}`);
  dispatchEvent(new PopStateEvent("popstate"));
  await new Promise(() => {}); // the other page is loaded instead
}

const why = (id) => get(`/v1/jobs/${encodeURIComponent(id)}/why`);

/** State, sentence and messages come with each snapshot, everything else by a request until the job has ended. */
export function advance(data, { page }, address) {
  if (data.isFinal || data.gone) return;
  if (page?.job?.id === data.job.id) {
    const { payload, progress, result, result_base64, error, parent, children, more_children, unanswered: missing } = data.job;
    data.job = { ...page.job, payload, progress, result, result_base64, error, parent, children, more_children,
      unanswered: missing };
  }
  if (page?.why) data.why = { ...data.why, ...page.why };
  data.recorded = withLadder(data.recorded, page?.ladder);
  const wasEnded = data.job.state === "ended";
  again(data, wasEnded ? 0 : REFRESH, async () => ({ isFinal: wasEnded, ...await load(address, data.payload) }));
}

export function render({ address, data, live: snapshot }) {
  if (data.gone) return html`<div class="head"><h1 class="mono id">${address.id}</h1></div>
    <section class="panel why c-quiet"><p>${data.gone}</p></section>
    ${conversation(data.recorded, address, `/v1/jobs/${address.id}/ladder`)}`;
  const each = data.job, now = nowOf(snapshot), state = each.outcome ?? each.state;
  return html`<div class="head"><h1 class="mono id">${each.id}</h1>${jobState(state)}${
    each.quarantined && html`<span class="tag warn">quarantine</span>`}
    <span class="grow"></span><span class="acts">${buttons(each)}</span></div>
  <section class="panel why ${jobColor(state)}" aria-label="Why"><p>${data.why.why}</p>${place(data.why)}${
    data.why.more && html`<small>${data.why.more}</small>`}</section>
  <div class="row job"><div class="stack">
    ${timeline(each, now)}
    ${each.error && error(each.error)}
    ${each.children.length > 0 && children(each)}
    ${conversation(data.recorded, address, `/v1/jobs/${each.id}/ladder`)}
  </div><div class="stack">
    ${panel("Facts", facts(rows(each, data.group, now)))}
    ${each.progress && panel("Progress", content(each.progress))}
    ${payload(each, data.payload)}
    ${result(each)}
  </div></div>`;
}

/** An owner may cancel and retry its own jobs: the view of a job has its payload only for owners and administrators. */
function buttons(each) {
  if (!administers(each.service) && !(hasActs() && each.payload)) return "";
  if (each.state !== "ended") return act("cancel", each.id, "Cancel …", "danger");
  return each.quarantined && act("retry", each.id, "Retry …", "primary");
}

/** Place in the queue, as numbers, because sentences come from the broker; and earlier attempts. */
function place({ ahead: n, turn_in: turn, earlier }) {
  const queue = [n > 0 && `Jobs ahead: ${count(n)}`, turn != null && `Estimated start: in ${time(turn)}`];
  return html`${earlier && html`<small>${earlier}</small>`}${
    queue.some(Boolean) && html`<small>${queue.filter(Boolean).join(" · ")}</small>`}`;
}

const groupLink = (id, group) => html`<a class="mono nowrap" href="/jobs?group=${id}">${id.slice(0, 6)}…${
  id.slice(-4)}</a> ${group && html`<span class="dim">${group.says}</span>`}`;

const MOST_NAMED = 10; // jobs that another one comes after

function rows(each, group, now) {
  const last = each.attempts.at(-1);
  return [
    ["Service", serviceLink(each.service)],
    ["Kind", each.background ? "background job" : "call"],
    ["Broker", each.broker],
    ["Caller", each.caller && html`${dialect(each.caller.dialect)} ${each.caller.address &&
      html`<span class="dim">${each.caller.address}</span>`}`],
    ["Worker", last && workerLink(last.worker_id, last.worker)],
    ["Key", hasOwnKey(each) && html`<span class="mono">${each.key}</span> <span class="dim">${UNIQUE[each.unique]}${
      each.holds_key === false && ", not any more"}</span>`],
    ["Priority", each.priority],
    ["Attempts", each.max_attempts == null ? each.attempts.length : `${each.attempts.length} of ${each.max_attempts}`],
    ["Submitted", clock(each.created)],
    ["Earliest start", each.not_before && clock(each.not_before)],
    ["Ended", each.ended && clock(each.ended)],
    ["Waited", each.waited == null ? none : took(each.waited)],
    ["Job time-out", each.job_timeout == null ? none : time(each.job_timeout)],
    ["Deadline", each.deadline && clock(each.deadline)],
    ["Outcome deleted", each.kept_until
      ? html`<span title="${clock(each.kept_until)}">${ahead(each.kept_until, now)}</span>` : kept(each)],
    ["After", each.after.length > 0 && html`${each.after.slice(0, MOST_NAMED).map((id) => html`${jobLink(id)} `)}${
      each.after.length > MOST_NAMED && `and ${count(each.after.length - MOST_NAMED)} more`}`],
    ["Input", each.input && each.input !== "payload" && each.input],
    ["Group", each.group && groupLink(each.group, group)],
    ["Parent", each.parent && jobLink(each.parent)],
    ["Retry of", each.retry_of && jobLink(each.retry_of)],
    ["Retried as", each.retried_as && jobLink(each.retried_as)],
  ];
}

/** Jobs that its handler submitted, newest first. */
const children = ({ children: jobs, more_children: more, unanswered: missing }) => panel("Children",
  table(headsFor([["Job"], ["Service"], ["State"], ["Kind"]], jobs), jobs.map((each) => html`<tr data-key="${each.id}">
    <td>${jobLink(each.id)}</td>${brokerCell(each, hasBrokers(jobs))}<td>${serviceLink(each.service)}</td><td>${jobState(each.outcome ?? each.state)}</td>
    <td>${each.background ? "background job" : "call"}</td></tr>`)),
  { flush: true, note: `submitted by its handler${more ? `; ${count(more)} more` : ""}`, side: unanswered({
    unanswered: missing }) });

/** When its outcome will be deleted, as its caller chose it; empty if the broker's setting decides. */
function kept({ keep }) {
  if (keep == null) return "";
  if (keep === "forever") return "when somebody deletes it";
  return keep ? `${time(keep)} after its end` : "at its end";
}

const error = ({ type, message, detail }) => panel("Error", html`<p><b class="mono">${type}:</b> ${message}</p>${
  detail && html`<pre>${detail}</pre>`}`, { note: "from the worker" });

const save = (path, name, what) => html`<a class="btn small" href="${path}" download="${name}"
  aria-label="Save the ${what}">Save</a>`;

function payload(each, all) {
  const view = each.payload, size = view?.size ?? each.size;
  const isKept = each.state !== "ended" || each.quarantined || each.retried_as;
  if (!view) return panel("Payload", html`<p class="hint">${size != null && `${bytes(size)}. `}${
    hidesPayloads() ? "This listener shows sizes of payloads only."
      : isKept ? "Payloads are shown to the owner and to administrators."
      : "A payload is kept until its job ends, and in quarantine."}</p>`);
  const path = `/v1/jobs/${each.id}/payload`;
  return panel("Payload", content(view, all), { side: save(path, `${each.id}.payload`, "payload") });
}

function result(each) {
  if (each.outcome !== "done") return "";
  const { result: text, result_base64: base64, result_size: size } = each;
  if (text == null && base64 == null) return size != null && panel("Result", html`<p class="hint">${bytes(size)}</p>`);
  const path = `/v1/jobs/${each.id}/result`;
  return panel("Result", content({ text, base64, size }), { side: save(path, `${each.id}.result`, "result") });
}
