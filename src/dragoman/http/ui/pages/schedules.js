// Page *Schedules*: each schedule in words, its next run, its last 20 runs as bars.

import { get } from "../api.js";
import { unanswered } from "../cluster.js";
import { html } from "../dom.js";
import { count, plural, time } from "../format.js";
import { act, hot, noneYet, panel } from "../parts.js";
import { administers, isOwn } from "../rights.js";
import { again, ahead, brokerCell, hasBrokers, headsFor, none, nowOf, serviceLink, table } from "./elements.js";

const COMMAND = "dragoman schedule set nightly report --cron '0 3 * * *'";
const REFRESH = 3; // seconds
const RUNS = { // word and colour of each letter
  d: ["done", "done"], f: ["failed", "failed"], t: ["timed out", "timed"], l: ["lost", "lost"],
  c: ["cancelled", "quiet"], r: ["refused", "quiet"], s: ["skipped", "quiet"],
};

export const load = () => get("/v1/schedules");

export function advance(data) {
  again(data, REFRESH, load);
}

export function render({ data, live }) {
  const { schedules } = data, now = nowOf(live), paused = schedules.filter((each) => each.paused).length;
  if (!schedules.length) return html`<div class="head"><h1>Schedules</h1></div><section class="panel">${
    noneYet("There are no schedules yet. Create one:", "schedules", COMMAND)}</section>`;
  return html`<div class="head"><h1>Schedules</h1><span class="dim">${plural(schedules.length, "schedule")}${
    paused > 0 && `, ${count(paused)} paused`}</span>${unanswered(data)}</div>
  ${panel("Schedules", scheduleTable(schedules, now), {
    flush: true, note: "a run is skipped while the last one has not ended, unless overlap is allowed" })}`;
}

const HEADS = [["Name"], ["Service", "hide-m"], ["When"], ["Next", "num"], ["Last 20 runs", "hide-s"],
  ["Took", "num hide-m"], ["Runs", "num hide-m"], ["Skipped", "num hide-m"], [""]];

const scheduleTable = (schedules, now, isShared = hasBrokers(schedules)) =>
  table(headsFor(HEADS, schedules), schedules.map((each) => row(each, now, isShared)), "schedules");

function row(each, now, isShared) {
  const href = each.last_job && html`data-href="/job/${each.last_job}"`;
  return html`<tr ${href} data-key="s${each.name}"><td><b class="name">${each.name}</b> ${
    each.paused && html`<span class="tag warn" title="${each.paused_reason}">paused</span>`}</td>
    ${brokerCell(each, isShared)}<td class="hide-m clip">${serviceLink(each.service)}</td><td class="mid">${says(each)}</td>
    <td class="num">${each.paused ? none : ahead(each.next, now)}</td><td class="hide-s">${runs(each.recent ?? "")}</td>
    <td class="num mid hide-m">${time(each.last_took)}</td><td class="num mid hide-m">${count(each.runs)}</td>
    <td class="num hide-m">${each.skipped ? hot("waiting", count(each.skipped)) : html`<span class="dim">0</span>`}</td>
    <td class="num"><span class="acts">${(administers(each.service) || isOwn(each.owner)) && buttons(each)}</span></td></tr>`;
}

const buttons = ({ name, paused }) => html`${act("run schedule", name, "Run now …", "small calm")}${
  paused ? act("resume schedule", name, "Resume …", "small") : act("pause schedule", name, "Pause …", "small")}`;

const says = (each) => each.says || (each.cron ?? `every ${time(each.every)}`);

function runs(letters) {
  if (!letters) return none;
  const numbers = Object.entries(RUNS).map(([letter, [word]]) => ({ n: letters.split(letter).length - 1, word }));
  const label = numbers.filter(({ n }) => n > 0).map(({ n, word }) => `${n} ${word}`).join(", ");
  return html`<svg class="runs" width="${letters.length * 7}" height="14" role="img" aria-label="${label}">${
    [...letters].map((letter, i) => bar(letter, i * 7))}</svg>`;
}

/** A run is a bar; a skipped one is short. */
function bar(letter, x) {
  const [word, color] = RUNS[letter] ?? [letter, "quiet"], height = letter === "s" ? 5 : 14;
  return html`<rect class="c-${color} ${letter === "d" && "pale"}" x="${x}" y="${14 - height}" width="5"
    height="${height}" rx="1.5"><title>${word}</title></rect>`;
}
