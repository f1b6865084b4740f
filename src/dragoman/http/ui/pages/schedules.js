// Page *Schedules*: each schedule in words, its next run, its last 20 runs as bars.

import { get } from "../api.js";
import { html } from "../dom.js";
import { count, plural, time } from "../format.js";
import { act, empty, hot, panel } from "../parts.js";
import { administers } from "../rights.js";
import { again, ahead, none, nowOf, serviceLink } from "./elements.js";

const REFRESH = 3; // seconds
const RUNS = { d: ["done", "done"], f: ["failed", "failed"], t: ["timed out", "timed"], l: ["lost", "lost"], c: ["cancelled", "quiet"], s: ["skipped", "skip"] };

export const load = () => get("/v1/schedules");

export function advance(data) {
  again(data, REFRESH, load);
}

export function render({ data, live }) {
  const { schedules } = data, now = nowOf(live), paused = schedules.filter((each) => each.paused).length;
  if (!schedules.length) return html`<div class="head"><h1>Schedules</h1></div><section class="panel">${
    empty("There are no schedules yet. Create one:", "dragoman schedule set nightly report --cron '0 3 * * *'")}</section>`;
  return html`<div class="head"><h1>Schedules</h1><span class="dim">${plural(schedules.length, "schedule")}${
    paused > 0 && `, ${count(paused)} paused`}</span></div>
  ${panel("Schedules", table(schedules, now), { flush: true, note: "a run is skipped while the last one has not ended, unless overlap is allowed" })}`;
}

const table = (schedules, now) => html`<div class="scroll"><table class="schedules"><thead><tr><th>Name<th class="hide-m">Service<th>When<th class="num">Next
  <th class="hide-s">Last 20 runs<th class="num hide-m">Took<th class="num hide-m">Runs<th class="num hide-m">Skipped<th></tr></thead>
  <tbody>${schedules.map((each) => row(each, now))}</tbody></table></div>`;

function row(each, now) {
  const mayAct = administers(each.service);
  return html`<tr ${each.last_job ? html`data-href="/job/${each.last_job}"` : ""} data-key="s${each.name}"><td><b>${each.name}</b> ${
    each.paused && html`<span class="tag warn" title="${each.paused_reason}">paused</span>`}</td>
    <td class="hide-m">${serviceLink(each.service)}</td><td class="mid">${says(each)}</td>
    <td class="num">${each.paused ? none : ahead(each.next, now)}</td><td class="hide-s">${runs(each.recent ?? "")}</td>
    <td class="num mid hide-m">${each.last_took == null ? none : time(each.last_took)}</td><td class="num mid hide-m">${count(each.runs)}</td>
    <td class="num hide-m">${each.skipped ? hot("waiting", count(each.skipped)) : html`<span class="dim">0</span>`}</td>
    <td class="num"><span class="acts">${mayAct && html`${act("run schedule", each.name, "Run now …", "small calm hide-s")} ${each.paused
      ? act("resume schedule", each.name, "Resume …", "small") : act("pause schedule", each.name, "Pause …", "small")}`}</span></td></tr>`;
}

const says = (each) => each.says ?? each.cron ?? `every ${time(each.every)}`;

function runs(letters) {
  if (!letters) return none;
  const numbers = Object.entries(RUNS).map(([letter, [word]]) => [letters.split(letter).length - 1, word]).filter(([n]) => n > 0);
  return html`<svg class="runs" width="${letters.length * 7}" height="14" role="img" aria-label="${
    numbers.map(([n, word]) => `${n} ${word}`).join(", ")}">${[...letters].map((letter, i) => html`<rect class="c-${
    RUNS[letter]?.[1] ?? "quiet"} ${letter === "d" ? "pale" : ""}" x="${i * 7}" y="${letter === "s" ? 9 : 0}" width="5" height="${
    letter === "s" ? 5 : 14}" rx="1.5"><title>${RUNS[letter]?.[0] ?? letter}</title></rect>`)}</svg>`;
}
