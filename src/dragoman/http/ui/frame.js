// Parts around the page: navigation, path, foot of the side bar, and the sentence of the banner.

import { brokersOf, missing, ownName } from "./cluster.js";
import { html } from "./dom.js";
import { clock, count, plural, since, time } from "./format.js";
import { icon } from "./icons.js";
import { ROUTES } from "./routes.js";

const you = document.documentElement.dataset;

/** Links to the pages, with their numbers. `owner`: the route that is open. */
export function navigation(owner, totals) {
  const numbers = totals ? {
    services: totals.services, workers: sum(totals.workers), jobs: totals.present, quarantine: totals.quarantined,
    schedules: totals.schedules,
  } : {};
  return ROUTES.filter((each) => each.name).map(({ page, path, name }) => html`
    <a href="${path}" ${owner?.page === page && html`aria-current="page"`}>${icon(page)}${name}
      <span class="${page === "quarantine" && numbers[page] > 0 && "bad"}">${number(numbers[page])}</span></a>`);
}
const number = (value) => value == null ? "" : count(value);
const sum = (counts) => Object.values(counts).reduce((total, each) => total + each, 0);

/** The path in the top bar. */
export const crumbs = (owner, title, id) => id && owner ?
  html`<a href="${owner.path}">${owner.name}</a><span>/</span><b>${title}</b>` : html`<b>${title}</b>`;

/** Facts about the broker and the principal. */
export const footer = (broker, snapshot) => html`
  ${broker && html`<div><span>Broker</span><b>${ownName(snapshot) ?? broker.name}</b></div>
    ${brokersOf(snapshot).length > 0 && html`<div><span>Cluster</span><b>${
      plural(brokersOf(snapshot).length, "broker")}</b></div>`}
    <div><span>Version</span><b>${broker.version}</b></div>
    <div><span>Up for</span><b>${time(since(broker.started, snapshot?.at))}</b></div>`}
  <div><a href="/account">You are <b>${you.principal}</b>.</a>
    ${you.login === "session" && html`<form method="post" action="/logout">
      <button class="text">Log out</button></form>`}</div>
  <div><span>Keys</span><button class="text" id="help" aria-label="Keys"><kbd>?</kbd></button></div>`;

/** The sentence of the banner; empty if all is well. */
export function trouble(connection, snapshot) {
  if (connection.state === "lost") {
    const from = connection.answered === null ? "" : ` The values shown are from ${clock(connection.answered)}.`;
    return `The broker has not answered for ${time(Math.floor(connection.silence))}.${from} Trying again.`;
  }
  if (snapshot && !snapshot.ready) {
    return `The broker accepts no new jobs: ${snapshot.problems.join("; ") || "no reason is known"}.`;
  }
  if (connection.state === "polling") {
    return "The broker has too many event streams. This page asks for new values every 5 s.";
  }
  return missing(snapshot);
}
