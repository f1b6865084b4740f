// Charts as SVG. Paths are stretched to the width they get; texts are placed by percentages and are not stretched.

import { html } from "./dom.js";
import { rate } from "./format.js";

/** The charts that are drawn now, by key: the crosshair and the table read the values here. */
export const drawn = new Map();

const MOST_MARKS = 4, LONGEST = 34; // marks in a chart, characters of each
const NEAR = 0.06; // share of the width: nearer marks are one
const RIGHT = 60, ROWS = 3; // percent: texts stand to the left of marks beyond; rows of texts
const CHARACTER = 6, FRAME = 300, NARROW = 720; // pixels: width of a character, side bar and margins, a phone
const number = (value) => Math.round(value * 100) / 100;

/** Path through the known values, in a box of 100 × 100; a value that is not known makes a gap. */
function line(values, top) {
  const last = Math.max(1, values.length - 1);
  let out = "", isOpen = false;
  values.forEach((value, i) => {
    if (value == null) { isOpen = false; return; }
    out += `${isOpen ? "L" : "M"}${number(i / last * 100)} ${number(100 - value / top * 100)}`;
    isOpen = true;
  });
  return out;
}

/** Area between the values and the floor: one closed path for each run of known values. */
function area(values, floor, top) {
  const last = Math.max(1, values.length - 1);
  const x = (i) => number(i / last * 100), y = (value) => number(100 - value / top * 100);
  let out = "", start = -1;
  for (let i = 0; i <= values.length; i++) {
    if (i < values.length && values[i] != null) { if (start < 0) start = i; continue; }
    if (start < 0) continue;
    for (let j = start; j < i; j++) out += `${j === start ? "M" : "L"}${x(j)} ${y(values[j])}`;
    for (let j = i - 1; j >= start; j--) out += `L${x(j)} ${y(floor[j] ?? 0)}`;
    out += "Z";
    start = -1;
  }
  return out;
}

/** The next round number above the maximum, so that the axis has readable labels. */
export function ceiling(max) {
  if (!(max > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].find((each) => each * power >= max * 0.9999) * power;
}

/** Small line without axes. */
export function spark(values, color = "accent") {
  const top = Math.max(...values.map((value) => value ?? 0), 1e-9) * 1.08;
  const floor = values.map(() => 0);
  return html`<svg class="spark c-${color}" viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
    <path class="fill" d="${area(values, floor, top)}"/><path d="${line(values, top)}"/></svg>`;
}

const AXES = {
  "5m": [[0, "5 min ago"], [40, "3 min"], [80, "1 min"], [100, "now"]],
  "1h": [[0, "1 h ago"], [33.33, "40 min"], [66.67, "20 min"], [100, "now"]],
  "24h": [[0, "24 h ago"], [33.33, "16 h"], [66.67, "8 h"], [100, "now"]],
};

/**
 * Chart over time. `series`: [{name, color, values}]; all have the same length, and end now.
 * `isStacked`: as areas, one above the other. `marks`: [{ago, text}], `ago` in seconds before the end. `step`: seconds
 * between two values. `key`: unique on the page.
 */
export function chart(key, series, options = {}) {
  const { isStacked = false, range = "5m", step = 2, format = rate, marks = [], label = "", low = false } = options;
  const shapes = stack(series, isStacked), shape = isStacked ? filled : outline;
  const top = ceiling(Math.max(0, ...shapes.flatMap((each) => each.sums.map((value) => value ?? 0))) * 1.05);
  const span = step * Math.max(1, (series[0]?.values.length ?? 1) - 1);
  const half = format(top / 2); // a whole number may be rounded to the one above
  const shown = visible(marks, span, widthOf(low));
  drawn.set(key, { series, format, step, label });
  return html`<div class="chart ${low && "low"}" data-chart="${key}" role="img" aria-label="${label}"><svg>
    ${gridLine(100, "0")}${gridLine(50, half === format(top) ? "" : half)}${gridLine(0, format(top))}
    <svg class="plot" width="100%" height="100%" viewBox="0 0 100 100" preserveAspectRatio="none">
      ${shapes.map((each) => shape(each, top))}</svg>
    ${shown.map(markLine)}${shown.map(markText)}${AXES[range].map(([x, text]) => axisText(x, text))}
  </svg></div>`;
}

const gridLine = (y, text) => html`<line x1="0" x2="100%" y1="${y}%" y2="${y}%"/>
  <text x="0" dx="-8" y="${y}%" dy="4" text-anchor="end">${text}</text>`;
const axisText = (x, text) => html`
  <text x="${x}%" y="100%" dy="16" text-anchor="${x === 0 ? "start" : x === 100 ? "end" : "middle"}">${text}</text>`;
const markLine = ({ place, title }) => html`<line class="mark" x1="${place}%" x2="${place}%" y1="0" y2="100%">
  <title>${title}</title></line>`;
const markText = ({ place, isRight, text, row }) => text && html`<text class="mark" x="${place}%"
  dx="${isRight ? -5 : 5}" dy="${8 + row * 14}" text-anchor="${isRight ? "end" : "start"}">${text}</text>`;

function stack(series, isStacked) {
  let below = series[0]?.values.map(() => 0) ?? [];
  return series.map((each) => {
    const floor = below;
    const sums = isStacked ? each.values.map((value, i) => value == null ? null : value + floor[i]) : each.values;
    if (isStacked) below = sums.map((value, i) => value ?? floor[i]);
    const edge = isStacked ? edgeOf(each.values, sums, each === series.at(-1)) : sums;
    return { ...each, sums, floor, edge };
  });
}

/** The upper edge of an area: not where the area has no height, else it would hide the edge of the one below. Where all
 * are zero, the last one has the edge. */
function edgeOf(values, sums, isLast) {
  const isSeen = (i) => [i - 1, i, i + 1].some((near) => values[near] > 0);
  return sums.map((value, i) => isSeen(i) || (isLast && value === 0) ? value : null);
}
const outline = (each, top) => html`<g class="c-${each.color}"><path d="${line(each.sums, top)}"/></g>`;
const filled = (each, top) => html`<g class="c-${each.color}">
  <path class="fill" d="${area(each.sums, each.floor, top)}"/><path d="${line(each.edge, top)}"/></g>`;

/** About the width of a chart in pixels. `low`: two of them are in a row. */
function widthOf(low) {
  const all = globalThis.innerWidth ?? 1440;
  return all <= NARROW ? all - 100 : (Math.min(all, 1700) - FRAME) * (low ? 0.45 : 0.6);
}

/** Marks within the span: those that are near each other are one, and the latest four remain. Texts do not overlap: one
 * without room is left out, and the mark has it as its title. */
function visible(marks, span, width) {
  const groups = [];
  for (const { ago, text } of marks.filter((each) => each.ago >= 0 && each.ago <= span).sort((a, b) => b.ago - a.ago)) {
    const last = groups.at(-1);
    if (last && last.ago - ago < span * NEAR) last.texts.push(text); else groups.push({ ago, texts: [text] });
  }
  const taken = Array.from({ length: ROWS }, () => []); // in each row, where texts begin and end, in percent
  return groups.slice(-MOST_MARKS).reverse().map(({ ago, texts }) => {
    const place = number((1 - ago / span) * 100), isRight = place > RIGHT, [first, ...more] = texts;
    const short = first.length > LONGEST ? `${first.slice(0, LONGEST - 1)}…` : first;
    const text = more.length ? `${short} + ${more.length}` : short, long = (text.length * CHARACTER + 10) / width * 100;
    const begin = isRight ? place - long : place, end = begin + long;
    const row = taken.findIndex((each) => each.every(([from, to]) => end <= from || begin >= to));
    const fits = row >= 0 && begin >= 0 && end <= 100;
    if (fits) taken[row].push([begin, end]);
    return { place, isRight, text: fits ? text : "", row: Math.max(0, row), title: texts.join("; ") };
  });
}

/** Names and colours of the series; with a key, a button that shows the values as a table. */
export const legend = (series, key = "") => html`<span class="legend">
  ${series.map((each) => html`<span><i class="dot sq c-${each.color}"></i>${each.name}</span>`)}
  ${key && html`<button class="text" data-table="${key}">as table</button>`}</span>`;

/** Horizontal bar. `parts`: [[color, value]]; `total`: the value of the full width. */
export function bar(parts, total = parts.reduce((sum, [, value]) => sum + value, 0)) {
  let x = 0;
  return html`<svg class="bar" aria-hidden="true">${parts.map(([color, value]) => {
    if (!(value > 0) || !(total > 0)) return "";
    const width = Math.max(0.8, value / total * 100), place = x;
    x += width;
    const shown = number(Math.max(0.4, width - 0.4));
    return html`<rect class="c-${color}" x="${number(place)}%" width="${shown}%" height="100%"/>`;
  })}</svg>`;
}
