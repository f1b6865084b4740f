// Brokers of a cluster in pages: how many are shown, which do not answer, and which one a sentence is about.

import { html } from "./dom.js";
import { plural } from "./format.js";

/** Brokers whose numbers a snapshot has; empty without a cluster. */
export const brokersOf = (snapshot) => snapshot?.brokers ?? [];

/** The broker that sends the snapshots, by its name in the cluster; null without one. */
export const ownName = (snapshot) => brokersOf(snapshot).find((each) => each.here)?.name ?? null;

/** Number of the brokers that are shown, and a tag for each that does not answer. */
export const shown = (snapshot) => brokersOf(snapshot).length > 0 && html`
  <a class="dim" href="/broker">${plural(brokersOf(snapshot).length, "broker")}</a>${unanswered(snapshot)}`;

/** A tag for each broker, and each shard, whose part is missing in a snapshot or a list. */
export const unanswered = (view) => [
  ...(view?.unanswered ?? []).map((name) => html`<span class="tag warn">${name} does not answer</span>`),
  ...(view?.unanswered_shards ?? []).map((shard) => html`<span class="tag warn">shard ${shard} does not answer</span>`),
];

/** The sentence of the banner about brokers that do not answer; empty if all do. */
export function missing(snapshot) {
  const names = snapshot?.unanswered ?? [];
  if (!names.length) return "";
  const which = names.length === 1 ? `Broker ${names[0]} does` : `Brokers ${names.join(", ")} do`;
  return `${which} not answer. The numbers are those of the other brokers.`;
}

/** The text of a change that one broker has reported, with its name. What several have reported concerns them all. */
export const named = ({ text, brokers }) => (brokers?.length === 1 ? `${brokers[0]}: ${text}` : text);

/** Tag with the broker that has reported a finding; a sentence of several brokers names them. */
export const reporter = ({ brokers }) => brokers?.length === 1 && html`<span class="tag">${brokers[0]}</span>`;
