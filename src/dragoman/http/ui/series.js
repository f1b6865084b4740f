// Lines of numbers over time, from the broker, and moved on by each snapshot.

import { named } from "./cluster.js";

const WINDOW = 10; // seconds that the rates of a snapshot are about: it tells the values of these steps

/** Number of steps; an overview without totals has the lines of its services only. */
const lengthOf = (series) => (series.total ?? Object.values(series.services ?? {})[0] ?? series).done?.length ?? 0;
/** The end of a series, in milliseconds. */
const endOf = (series) => Date.parse(series.from) + series.step * 1000 * lengthOf(series);

/**
 * Add values of a snapshot to lists of a series, and drop the oldest. `values`: [[list, value]].
 * Earlier steps without a snapshot are not known. Within a step, only a value that is not known changes.
 */
export function advance(series, at, values) {
  const passed = Math.floor((Date.parse(at) - endOf(series)) / (series.step * 1000)) + 1;
  const steps = Math.min(lengthOf(series), passed);
  if (steps <= 0) {
    for (const [list, value] of values) list[list.length - 1] ??= value ?? null;
    return;
  }
  for (const [list, value = null] of values) {
    list.splice(0, steps);
    for (let left = steps - 1; left >= 0; left--) list.push(left * series.step < WINDOW ? value : null);
  }
  series.from = new Date(Date.parse(series.from) + passed * series.step * 1000).toISOString();
}

/** Sum of the outcomes that are not `done`; null if there is none. */
export function sumOf(undone) {
  if (undone == null || typeof undone === "number") return undone ?? null;
  return total(Object.values(undone));
}

export const total = (values) => values.reduce((sum, each) => sum + (each ?? 0), 0);

/** Marks of a series as a chart wants them: seconds before the end. */
export function marksOf(series) {
  const end = endOf(series);
  return (series.marks ?? []).map((each) => ({ ago: (end - Date.parse(each.at)) / 1000, text: named(each) }));
}
