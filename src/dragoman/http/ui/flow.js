// Ribbons from callers' dialects to workers' dialects; the width of a ribbon is its number of jobs a second.

import { dialectName } from "./dialects.js";
import { html } from "./dom.js";
import { rate, time } from "./format.js";
import { dialectColor } from "./parts.js";

const WIDTH = 430, HEIGHT = 226, GAP = 13, LEFT = 100, RIGHT = WIDTH - 148, THINNEST = 2;

/** `pairs`: [[caller's dialect, worker's dialect, jobs a second, seconds that the broker adds]]. */
export function flow(pairs) {
  const flowing = pairs.filter(([, , value]) => value > 0);
  const sides = [sums(flowing, 0), sums(flowing, 1)];
  const total = flowing.reduce((sum, [, , value]) => sum + value, 0);
  const most = Math.max(sides[0].length, sides[1].length);
  const scale = (HEIGHT - GAP * most) / total;
  const places = sides.map((side) => place(side, scale));
  const order = (side, name) => sides[side].findIndex(([each]) => each === name);
  flowing.sort((a, b) => order(0, a[0]) - order(0, b[0]) || order(1, a[1]) - order(1, b[1]));
  const ribbons = flowing.map((each, i) => ribbon(each, i, places, scale));
  return html`<svg class="flow" viewBox="0 -4 ${WIDTH} ${HEIGHT + 8}" role="img" aria-label="${sentence(flowing)}">
    ${ribbons}${ends(places[0], LEFT, "end", -7)}${ends(places[1], RIGHT - 4, "start", 11)}</svg>`;
}

function sums(pairs, side) {
  const out = new Map();
  for (const each of pairs) out.set(each[side], (out.get(each[side]) ?? 0) + each[2]);
  return [...out].sort((a, b) => b[1] - a[1]);
}

function place(side, scale) {
  const heights = side.map(([, value]) => Math.max(THINNEST, value * scale));
  let y = (HEIGHT - heights.reduce((sum, each) => sum + each, 0) - GAP * (side.length - 1)) / 2;
  return new Map(side.map(([name, value], i) => {
    const at = { y, height: heights[i], value, used: 0 };
    y += heights[i] + GAP;
    return [name, at];
  }));
}

function ribbon([from, to, value, added], i, places, scale) {
  const a = places[0].get(from), b = places[1].get(to), height = value * scale;
  const y1 = a.y + a.used, y2 = b.y + b.used;
  a.used += height;
  b.used += height;
  const cost = added == null ? "" : `; the broker adds ${time(added)}`;
  const title = `${dialectName(from)} callers, ${dialectName(to)} workers: ${rate(value)} jobs/s${cost}`;
  return html`<linearGradient id="ribbon-${i}"><stop offset=".1" class="c-${dialectColor(from)}"/>
      <stop offset=".9" class="c-${dialectColor(to)}"/></linearGradient>
    <path class="rib" fill="url(#ribbon-${i})" d="${band(y1, y2, height)}"><title>${title}</title></path>`;
}

/** Path of a band from the left at y1 to the right at y2. */
function band(y1, y2, height) {
  const left = LEFT + 6, right = RIGHT - 6, middle = (left + right) / 2;
  const [top1, top2, end1, end2] = [y1, y2, y1 + height, y2 + height].map((each) => each.toFixed(1));
  return `M${left} ${top1}C${middle} ${top1} ${middle} ${top2} ${right} ${top2}V${end2}` +
    `C${middle} ${end2} ${middle} ${end1} ${left} ${end1}Z`;
}

const ends = (side, x, anchor, dx) => [...side].map(([name, { y, height, value }]) => html`
  <rect class="c-${dialectColor(name)}" x="${x}" y="${y.toFixed(1)}" width="4" height="${height.toFixed(1)}" rx="1.5"/>
  <text text-anchor="${anchor}" x="${x + dx}" y="${(y + height / 2 + 4).toFixed(1)}">${dialectName(name)}
    <tspan>${rate(value)}</tspan></text>`);

function sentence(pairs) {
  const parts = pairs.map(([from, to, value]) => `${dialectName(from)} to ${dialectName(to)} ${rate(value)}`);
  return `Jobs a second from callers to workers: ${parts.join(", ")}`;
}
