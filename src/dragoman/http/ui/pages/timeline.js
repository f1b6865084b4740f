// The attempts of a job as bars on one time axis: waiting, attempts and the delays between them.

import { html } from "../dom.js";
import { time, took } from "../format.js";
import { panel } from "../parts.js";
import { jobColor, seconds } from "./elements.js";

const LEAST = 0.4; // percent: the width of the shortest bar
const EXACT = 0.002; // seconds: a difference of two times in whole milliseconds may be wrong by this
const LATE = 55; // percent: a bar that begins later has its label on its left

/** @param {any} job its view @param {number} now milliseconds */
export function timeline(job, now) {
  const begin = seconds(job.created), end = job.ended ? seconds(job.ended) : now / 1000;
  const runs = job.attempts.filter((each) => each.started);
  const total = Math.max(end - begin, 0.001);
  if (!runs.length && job.state === "ended") return "";
  const axis = { begin, total };
  return panel("Attempts", html`<div class="timeline">
    ${waits(job, runs, end, axis)}
    ${runs.map((each) => run(each, end, axis))}
    <span></span><div class="axis" aria-hidden="true"><span>0</span><span>${time(total / 2)}</span><span>${
      time(total)}</span></div>
  </div>`, { note: `${took(total)} ${job.state === "ended" ? "from submit to end" : "since submit"}` });
}

function waits(job, runs, end, axis) {
  const gaps = [];
  let from = axis.begin;
  for (const each of runs) {
    gaps.push([from, seconds(each.started)]);
    from = each.ended ? seconds(each.ended) : end;
  }
  if (["waiting", "delayed", "dependent"].includes(job.state)) gaps.push([from, end]);
  const [first, ...delays] = gaps.map(([a, b]) => Math.max(0, b - a));
  // The broker's own number is more exact; it leaves out the time before the job was queued.
  const waited = took(Math.abs(job.waited - first) < EXACT ? job.waited : first);
  const label = delays.length ? `${waited}, then ${delays.map(took).join(", ")}` : waited;
  return track("Waiting", gaps.map(([a, b]) => [a, b, "waiting"]), label, axis);
}

function run(each, end, axis) {
  const from = seconds(each.started), to = each.ended ? seconds(each.ended) : end;
  const how = each.outcome ?? "running", word = { done: "in", running: "for" }[how] ?? "after";
  const label = `${how} ${word} ${took(to - from)}`;
  return track(`${each.number} · ${each.worker}`, [[from, to, how]], label, axis, each.reason);
}

function track(name, bars, label, { begin, total }, reason = "") {
  const percent = (at) => Math.min(100, Math.max(0, (at - begin) / total * 100));
  const shapes = bars.map(([from, to, state]) => {
    const width = Math.max(LEAST, percent(to) - percent(from)), x = Math.min(percent(from), 100 - width);
    return html`<rect class="${jobColor(state)}" x="${x.toFixed(2)}%" width="${width.toFixed(2)}%" height="20"
      rx="4"/>`;
  });
  const at = percent(bars[0]?.[0] ?? begin), isLate = at > LATE;
  return html`<span class="name" title="${name}">${name}</span><svg class="track" height="20" role="img"
    aria-label="${label}">${reason && html`<title>${reason}</title>`}<rect class="floor" width="100%" height="20" rx="4"/>${shapes}
    <text x="${at.toFixed(2)}%" dx="${isLate ? -7 : 7}" y="14" ${isLate && html`text-anchor="end"`}>${label}</text>
    </svg>`;
}
