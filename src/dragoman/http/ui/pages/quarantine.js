// Page *Quarantine*: jobs that used up their attempts, grouped by service, outcome and reason.

import { get } from "../api.js";
import { unanswered } from "../cluster.js";
import { html } from "../dom.js";
import { count, plural } from "../format.js";
import { act, dialect, empty, jobState, panel } from "../parts.js";
import { administers } from "../rights.js";
import { again, ago, brokerCell, hasBrokers, headsFor, jobLink, nowOf, serviceLink, table } from "./elements.js";

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
  const { groups, newest, problem } = data, now = nowOf(live);
  if (!groups.length && !newest.length && !problem) return html`<div class="head"><h1>Quarantine</h1></div>
    <section class="panel">${empty("Nothing is in quarantine.")}</section>`;
  return html`<div class="head"><h1>Quarantine</h1><span class="dim">${groups.length > 0 && total(data)}</span>${unanswered(data)}</div>
  ${groups.length > 0 && panel("By service and reason", groupTable(groups, now), {
    flush: true, note: "numbers and quoted parts of the reasons are left out" })}
  ${newest.length > 0 && panel("Newest in quarantine", jobTable(newest, now), {
    flush: true, side: data.hasMore && html`<a class="hint" href="/jobs?state=quarantined">All</a>` })}`;
}

function total({ groups, more }) {
  const jobs = groups.reduce((sum, each) => sum + each.count, 0);
  return `${plural(jobs, "job")} with no attempts left, in ${plural(groups.length, "group")}${
    more ? `; ${plural(more, "job")} in other groups` : ""}`;
}

const GROUP_HEADS = [["Service"], ["Ended", "hide-s"], ["Reason"], ["Workers", "hide-m"], ["Jobs", "num"],
  ["First", "num hide-s"], ["Last", "num hide-s"], [""]];

const groupTable = (groups, now) => table(headsFor(GROUP_HEADS, groups), groups.map((each) => html`<tr data-href="/job/${each.example}"
    data-key="g${each.group}"><td class="clip"><b>${serviceLink(each.service)}</b></td>
  ${brokerCell(each, hasBrokers(groups))}<td class="hide-s">${jobState(each.outcome)}</td>
  <td class="rest"><div class="cut mono" title="${each.reason}">${each.reason || "no reason"}</div></td>
  <td class="hide-m">${(each.dialects ?? []).map(dialect)}</td><td class="num"><b>${count(each.count)}</b></td>
  <td class="num dim hide-s">${ago(each.first, now)}</td><td class="num mid hide-s">${ago(each.last, now)}</td>
  <td class="num">${administers(each.service) &&
    act("retry group", each.group, `Retry ${count(each.count)} …`, "small")}</td></tr>`), "groups");

const JOB_HEADS = [["Job"], ["Service"], ["Ended"], ["Reason", "hide-s"], ["Attempts", "num hide-m"],
  ["When", "num hide-s"], ["", "hide-s"]];

const jobTable = (jobs, now) => table(headsFor(JOB_HEADS, jobs), jobs.map((each) => html`<tr data-href="/job/${each.id}">
  <td>${jobLink(each.id)}</td>${brokerCell(each, hasBrokers(jobs))}<td class="clip">${each.service}</td><td>${jobState(each.outcome)}</td>
  <td class="hide-s rest"><div class="cut dim" title="${each.reason}">${each.reason}</div></td>
  <td class="num mid hide-m">${each.attempts.length}${each.max_attempts != null && ` of ${each.max_attempts}`}</td>
  <td class="num mid hide-s">${ago(each.ended, now)}</td>
  <td class="num hide-s">${administers(each.service) && act("retry", each.id, "Retry …", "small calm")}</td></tr>`));
