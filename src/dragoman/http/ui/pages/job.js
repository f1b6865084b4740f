// Page *Job*: why it is where it is, its attempts on one time axis, its conversation, its facts, payload and result.

import { get } from "../api.js";
import { html } from "../dom.js";
import { bytes, clock, count, time } from "../format.js";
import { content, whole } from "./content.js";
import { UNRECORDED, conversation, loadConversation } from "./conversation.js";
import { act, dialect, jobState, panel } from "../parts.js";
import { administers, hasActs } from "../rights.js";
import { again, facts, hasOwnKey, jobColor, jobLink, none, nowOf, serviceLink, workerLink } from "./elements.js";
import { timeline } from "./timeline.js";

const REFRESH = 2; // seconds
const UNIQUE = {
  waiting: "unique until it starts",
  unfinished: "unique until it ends",
  kept: "unique while its outcome is kept",
};

export const title = ({ id }) => `${id.slice(0, 12)}…`;
export const live = ({ id }) => `job/${id}`;

/** `known`: the whole payload, if it was fetched before; it does not change. */
export async function load(address, known = null) {
  const { id } = address;
  const [view, reason] = await Promise.all([get(`/v1/jobs/${encodeURIComponent(id)}`), why(id)]);
  const [recorded, payload] = await Promise.all([
    view.recorded || view.state !== "ended" ? loadConversation(`/v1/jobs/${id}`, address) : UNRECORDED,
    known ?? whole(view),
  ]);
  return { job: view, why: reason, recorded, payload };
}

const why = (id) => get(`/v1/jobs/${encodeURIComponent(id)}/why`);

/** State and sentence come with each snapshot, everything else by a request until the job has ended. */
export function advance(data, { page }, address) {
  if (data.isFinal) return;
  if (page?.job?.id === data.job.id) {
    const { payload, progress, result, result_base64, error } = data.job;
    data.job = { ...page.job, payload, progress, result, result_base64, error };
  }
  if (page?.why) data.why = { ...data.why, ...page.why };
  const wasEnded = data.job.state === "ended";
  again(data, wasEnded ? 0 : REFRESH, async () => ({ isFinal: wasEnded, ...await load(address, data.payload) }));
}

export function render({ address, data, live: snapshot }) {
  const each = data.job, now = nowOf(snapshot), state = each.outcome ?? each.state;
  return html`<div class="head"><h1 class="mono id">${each.id}</h1>${jobState(state)}${
    each.quarantined && html`<span class="tag warn">quarantine</span>`}
    <span class="grow"></span><span class="acts">${buttons(each)}</span></div>
  <section class="panel why ${jobColor(state)}" aria-label="Why"><p>${data.why.why}</p>${place(data.why)}${
    data.why.more && html`<small>${data.why.more}</small>`}</section>
  <div class="row job"><div class="stack">
    ${timeline(each, now)}
    ${each.error && error(each.error)}
    ${conversation(data.recorded, address, `/v1/jobs/${each.id}/ladder`)}
  </div><div class="stack">
    ${panel("Facts", facts(rows(each)))}
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

/** Place in the queue: shown as numbers, because sentences come from the broker. */
function place({ ahead, turn_in: turn }) {
  const facts = [ahead > 0 && `Jobs ahead: ${count(ahead)}`, turn != null && `Estimated start: in ${time(turn)}`];
  return facts.some(Boolean) && html`<small>${facts.filter(Boolean).join(" · ")}</small>`;
}

function rows(each) {
  const last = each.attempts.at(-1);
  return [
    ["Service", serviceLink(each.service)],
    ["Kind", each.background ? "background job" : "call"],
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
    ["Waited", each.waited == null ? none : time(each.waited)],
    ["Job time-out", each.job_timeout == null ? none : time(each.job_timeout)],
    ["Deadline", each.deadline && clock(each.deadline)],
    ["Outcome kept", kept(each)],
    ["Retry of", each.retry_of && jobLink(each.retry_of)],
    ["Retried as", each.retried_as && jobLink(each.retried_as)],
  ];
}

/** How long the outcome is kept; empty if the broker's setting decides when the job ends. */
function kept({ kept_until: until, keep }) {
  if (until) return `until ${clock(until)}`;
  if (keep == null) return "";
  if (keep === "forever") return "until it is deleted";
  return keep ? `for ${time(keep)}` : "not at all";
}

const error = ({ type, message, detail }) => panel("Error", html`<p><b class="mono">${type}:</b> ${message}</p>${
  detail && html`<pre>${detail}</pre>`}`, { note: "from the worker" });

const save = (path, name, what) => html`<a class="btn small" href="${path}" download="${name}"
  aria-label="Save the ${what}">Save</a>`;

function payload(each, all) {
  const view = each.payload, size = view?.size ?? each.size;
  const isKept = each.state !== "ended" || each.quarantined || each.retried_as;
  if (!view) return panel("Payload", html`<p class="hint">${size != null && `${bytes(size)}. `}${
    isKept ? "Payloads are shown to the owner and to administrators."
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
