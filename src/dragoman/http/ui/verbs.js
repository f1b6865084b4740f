// The acts of an operator: each is a row with the facts of its dialog, its request and its report.
//
// A dialog shows the numbers of now, which are fetched when it opens. Nothing is sent before the last button.

import { get, send } from "./api.js";
import { count, plural } from "./format.js";
import { isFolder } from "./routes.js";
import { exact } from "./visible.js";

const RETRY_RATE = 20; // jobs a second
const WIDE = 100; // a retry of more jobs needs the name of the service
const HELD = 20; // jobs of a worker whose attempts are looked up

// Dialects whose workers learn that their job was cancelled, and when. The others have no message for it.
const CANCELLATION = { native: "receives a cancellation at once", http: "learns of it with its next request" };

const path = (kind, name) => {
  if (isFolder(name)) throw new Error(`A browser cannot send the name '${name}' in an address. Use a dragoman command.`);
  return `/v1/${kind}/${encodeURIComponent(name)}`;
};
const post = (target, body = {}) => send("POST", target, body);
const verb = (n, one, many) => (n === 1 ? one : many);
const short = (id) => `${id.slice(0, 12)}…`;
const nameOf = (worker) => exact(worker.name || worker.id);

const service = (name) => get(path("services", name));
const worker = (id) => get(path("workers", id));
const job = (id) => get(path("jobs", id));
const schedule = (name) => get(path("schedules", name));

const runs = (s) => (s.running
  ? `${plural(s.running, "running job")} ${verb(s.running, "continues", "continue")}.`
  : "Running jobs would continue; none runs now.");

/**
 * Each row: `look` fetches the facts of now, `title` and `facts` describe the act, `yes` is the label of the button,
 * `typed` is a name that must be typed, `send` executes the act, `report` and `next` are the text and the page after it.
 */
export const VERBS = {
  pause: {
    look: service,
    title: (s) => `Pause ${exact(s.name)}?`,
    facts: (s) => [
      s.waiting
        ? `${plural(s.waiting, "job")} ${verb(s.waiting, "waits", "wait")} and will not start until it is resumed.`
        : "New jobs are accepted, and do not start until it is resumed.",
      runs(s),
      "Callers wait until their own deadlines.",
      "The service stays paused across a restart of the broker.",
    ],
    yes: () => "Pause",
    send: (s) => post(`${path("services", s.name)}/pause`),
    report: (s) => `${exact(s.name)} is paused.`,
  },
  resume: {
    look: service,
    title: (s) => `Resume ${exact(s.name)}?`,
    facts: (s) => [
      s.waiting
        ? `${plural(s.waiting, "job")} ${verb(s.waiting, "waits", "wait")}: dispatch begins at once, oldest first.`
        : "No job waits. New jobs start at once.",
      s.workers
        ? `${plural(s.workers, "worker")} ${verb(s.workers, "offers", "offer")} it, ${count(s.idle)} idle.`
        : "No worker offers it now.",
    ],
    yes: () => "Resume",
    send: (s) => post(`${path("services", s.name)}/resume`),
    report: (s) => `${exact(s.name)} is resumed.`,
  },
  purge: {
    look: service,
    title: (s) => `Cancel all jobs that wait for ${exact(s.name)}?`,
    facts: (s) => [
      `${count(s.waiting)} waiting, ${count(s.delayed)} delayed and ${count(s.dependent)} dependent jobs end as cancelled. ` +
        "Their callers are informed.",
      runs(s),
      "This cannot be undone.",
    ],
    yes: () => "Cancel these jobs",
    typed: (s) => s.name,
    danger: true,
    send: (s) => post(`${path("services", s.name)}/purge`),
    report: (s, answer) => `${plural(answer.purged, "job")} of ${exact(s.name)} cancelled.`,
  },
  cancel: {
    look: job,
    title: (j) => `Cancel job ${short(j.id)}?`,
    facts: (j) => ["It ends as cancelled. Its caller receives that outcome.", reached(j), "This cannot be undone."],
    yes: () => "Cancel the job",
    danger: true,
    send: (j) => send("DELETE", path("jobs", j.id)),
    report: (j) => `Job ${short(j.id)} is cancelled.`,
  },
  retry: {
    look: job,
    title: (j) => `Retry job ${short(j.id)}?`,
    facts: (j) => [
      `A new job of ${exact(j.service)} gets the same payload and priority, a new id and ${plural(j.max_attempts, "attempt")}.`,
      `This one ended ${j.outcome}${j.reason ? `: ${j.reason}` : ""}.`,
      "It leaves the quarantine, and each of the two jobs links to the other.",
    ],
    yes: () => "Retry",
    send: (j) => post(`${path("jobs", j.id)}/retry`),
    report: (j, answer) => `Retried as job ${short(answer.id)}.`,
    next: (j, answer) => `/job/${answer.id}`,
  },
  "retry group": {
    look: group,
    title: (g) => `Retry ${plural(g.count, "job")} of ${exact(g.service)}?`,
    facts: (g) => [
      `They ended ${g.outcome}: ${g.reason || "no reason"}`,
      `Each becomes a new job, ${RETRY_RATE} a second: about ${count(Math.ceil(g.count / RETRY_RATE))} s in total.`,
      "Jobs that were retried already are left out.",
      "If the cause persists, they return to the quarantine.",
    ],
    yes: (g) => `Retry ${count(g.count)}`,
    typed: (g) => (g.count > WIDE ? g.service : null),
    send: (g) => post("/v1/quarantine/retry", { group: g.group, rate: RETRY_RATE }),
    report: (g, answer) => `Retry of ${plural(answer.of ?? g.count, "job")} of ${exact(g.service)} has begun.`,
  },
  drain: {
    look: worker,
    title: (w) => `Drain worker ${nameOf(w)}?`,
    facts: (w) => [
      "It gets no more jobs.",
      w.running.length ? `It finishes ${plural(w.running.length, "job")} first.` : "It holds no job.",
      w.comes_back
        ? `It stays connected without jobs: a worker of this kind (${w.dialect}) would join again.`
        : "Then it is told to exit.",
    ],
    yes: () => "Drain",
    send: (w) => post(`${path("workers", w.id)}/drain`),
    report: (w) => `Worker ${nameOf(w)} is draining.`,
  },
  "drain now": {
    look: held,
    title: (w) => `Drain worker ${nameOf(w)} now?`,
    facts: (w) => [taken(w), "It is removed at once."],
    yes: () => "Drain now",
    danger: true,
    send: (w) => post(`${path("workers", w.id)}/drain`, { now: true }),
    report: (w) => `Worker ${nameOf(w)} is removed.`,
    next: () => "/workers",
  },
  "pause schedule": {
    look: schedule,
    title: (s) => `Pause schedule ${exact(s.name)}?`,
    facts: (s) => ["It enqueues no jobs until it is resumed.", `A run of ${exact(s.service)} that has begun continues.`],
    yes: () => "Pause",
    send: (s) => post(`${path("schedules", s.name)}/pause`),
    report: (s) => `Schedule ${exact(s.name)} is paused.`,
  },
  "resume schedule": {
    look: schedule,
    title: (s) => `Resume schedule ${exact(s.name)}?`,
    facts: (s) => [`Its next run enqueues a job of ${exact(s.service)}.`, "Runs that were due while it was paused are not made."],
    yes: () => "Resume",
    send: (s) => post(`${path("schedules", s.name)}/resume`),
    report: (s) => `Schedule ${exact(s.name)} is resumed.`,
  },
  "run schedule": {
    look: schedule,
    title: (s) => `Run schedule ${exact(s.name)} now?`,
    facts: (s) => [
      `A job of ${exact(s.service)} is enqueued at once.`,
      s.paused ? "The schedule stays paused." : "Its regular runs do not change.",
    ],
    yes: () => "Run now",
    send: (s) => post(`${path("schedules", s.name)}/run`),
    report: (s) => `Schedule ${exact(s.name)}: a run is enqueued.`,
    next: (s, answer) => (answer.last_job ? `/job/${answer.last_job}` : null),
  },
};

/** Effect of a cancellation on the worker that runs the job, which depends on the worker's dialect. */
function reached({ state, attempts }) {
  const last = attempts.at(-1);
  if (state !== "running" || !last) return `It is ${state}: no worker runs it.`;
  const name = `Worker ${last.worker} (${last.dialect ?? "unknown dialect"})`;
  if (CANCELLATION[last.dialect]) return `${name} ${CANCELLATION[last.dialect]}. A late result is dropped.`;
  return `${name} runs it to the end: its dialect has no message for a cancellation. The result is dropped.`;
}

async function group(id) {
  const found = (await get("/v1/quarantine")).groups.find((each) => each.group === id);
  if (!found) throw new Error("This group has no jobs any more: they were retried or deleted.");
  return found;
}

/** A worker with the number of its jobs that have attempts left. */
async function held(id) {
  const found = await worker(id), looked = found.running.slice(0, HELD);
  const jobs = await Promise.all(looked.map((each) => job(each).catch(() => null)));
  const isAgain = (each) => each && (each.max_attempts == null || each.attempts.length < each.max_attempts);
  return { ...found, looked: looked.length, again: jobs.filter(isAgain).length };
}

function taken({ running, looked, again }) {
  if (!running.length) return "It holds no job.";
  const n = running.length, they = verb(n, "It", "They");
  return `${plural(n, "job")} ${verb(n, "is", "are")} taken from it. ${fate(n, looked, again)} ${they} may have run in part.`;
}

/** The further way of jobs whose worker is removed. Of `n` jobs, `looked` were looked up, and `again` have attempts left. */
export function fate(n, looked, again) {
  if (looked < n) return `${count(again)} of the first ${looked} have attempts left: such jobs are tried again, others end as lost.`;
  if (again === n) return n === 1 ? "It has attempts left and is tried again." : "All have attempts left and are tried again.";
  if (again === 0) return n === 1 ? "It has no attempts left and ends as lost." : "None has attempts left: they end as lost.";
  return `${count(again)} ${verb(again, "has attempts left and is", "have attempts left and are")} tried again, ` +
    `${count(n - again)} ${verb(n - again, "ends", "end")} as lost.`;
}
