// Page *Quarantine*: jobs that used up their attempts, grouped by service, outcome and reason.

import { get } from "../api.js";
import { html } from "../dom.js";
import { count, plural } from "../format.js";
import { act, dialect, empty, jobState, panel } from "../parts.js";
import { administers } from "../rights.js";
import { again, ago, jobLink, nowOf, serviceLink } from "./elements.js";

const NEWEST = 20; // jobs
const REFRESH = 3; // seconds

export async function load() {
  const [found, newest] = await Promise.all([
    get("/v1/quarantine").catch((problem) => ({ groups: [], problem: problem.message })),
    get("/v1/jobs", { quarantined: true, limit: NEWEST }),
  ]);
  return { ...found, newest: newest.jobs, hasMore: newest.after != null };
}

/** Groups are fetched again: their numbers change in place. The list of jobs stands still. */
export function advance(data) {
  again(data, REFRESH, () => get("/v1/quarantine"));
}

export function render({ data, live }) {
  const { groups, newest } = data, now = nowOf(live), total = groups.reduce((sum, each) => sum + each.count, 0);
  if (!groups.length && !newest.length) return html`<div class="head"><h1>Quarantine</h1></div>
    <section class="panel">${empty("Nothing is in quarantine.")}</section>`;
  return html`<div class="head"><h1>Quarantine</h1>${groups.length > 0 && html`<span class="dim">${
    plural(total, "job")} with no attempts left, in ${plural(groups.length, "group")}${data.more ? ` and ${count(data.more)} more` : ""}</span>`}</div>
  ${groups.length > 0 && panel("By service and reason", table(groups, now), { flush: true, note: "jobs that ended for the same reason" })}
  ${newest.length > 0 && panel("Newest in quarantine", list(newest, now), { flush: true,
    side: data.hasMore && html`<a class="hint" href="/jobs?state=quarantined">All</a>` })}`;
}

const table = (groups, now) => html`<div class="scroll"><table class="groups"><thead><tr><th>Service<th class="hide-s">Ended<th>Reason
  <th class="hide-m">Workers<th class="num">Jobs<th class="num hide-s">First<th class="num hide-s">Last<th></tr></thead>
  <tbody>${groups.map((each) => html`<tr data-href="/job/${each.example}" data-key="g${each.group}"><td>${serviceLink(each.service)}</td>
    <td class="hide-s">${jobState(each.outcome)}</td><td><div class="cut wide mono" title="${each.reason}">${each.reason || "no reason"}</div></td>
    <td class="hide-m">${(each.dialects ?? []).map(dialect)}</td><td class="num"><b>${count(each.count)}</b></td>
    <td class="num dim hide-s">${ago(each.first, now)}</td><td class="num mid hide-s">${ago(each.last, now)}</td>
    <td class="num">${administers(each.service) && act("retry group", each.group, `Retry ${count(each.count)} …`, "small")}</td></tr>`)}</tbody></table></div>`;

const list = (jobs, now) => html`<div class="scroll"><table><thead><tr><th>Job<th>Service<th>Ended<th class="hide-s">Reason<th class="num hide-m">Attempts
  <th class="num hide-s">When<th></tr></thead>
  <tbody>${jobs.map((each) => html`<tr data-href="/job/${each.id}"><td>${jobLink(each.id)}</td><td>${each.service}</td><td>${jobState(each.outcome)}</td>
    <td class="hide-s"><div class="cut wide dim" title="${each.reason}">${each.reason}</div></td>
    <td class="num mid hide-m">${each.attempts.length}${each.max_attempts != null && ` of ${each.max_attempts}`}</td>
    <td class="num mid hide-s">${ago(each.ended, now)}</td>
    <td class="num">${administers(each.service) && act("retry", each.id, "Retry …", "small calm")}</td></tr>`)}</tbody></table></div>`;
