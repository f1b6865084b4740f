// Ribbons from callers' dialects to workers' dialects; the width of a ribbon is its number of jobs a second.

import { html } from "./dom.js";
import { rate } from "./format.js";
import { dialectColor, dialectName } from "./parts.js";

const WIDTH = 430, HEIGHT = 226, GAP = 13, LEFT = 100, RIGHT = WIDTH - 148, THINNEST = 2;
const fixed = (value) => value.toFixed(1);

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
  const y1 = a.y + a.used, y2 = b.y + b.used, x1 = LEFT + 6, x2 = RIGHT - 6, middle = (x1 + x2) / 2;
  a.used += height;
  b.used += height;
  const cost = added == null ? "" : `; the broker adds ${(added * 1000).toFixed(1)} ms`;
  return html`<linearGradient id="ribbon-${i}"><stop offset=".1" class="c-${dialectColor(from)}"/><stop offset=".9" class="c-${dialectColor(to)}"/></linearGradient>
    <path class="rib" fill="url(#ribbon-${i})" d="M${x1} ${fixed(y1)}C${middle} ${fixed(y1)} ${middle} ${fixed(y2)} ${x2} ${fixed(y2)}V${fixed(y2 + height)}C${middle} ${fixed(y2 + height)} ${middle} ${fixed(y1 + height)} ${x1} ${fixed(y1 + height)}Z"><title>${dialectName(from)} callers, ${dialectName(to)} workers: ${rate(value)} jobs/s${cost}</title></path>`;
}

const ends = (side, x, anchor, dx) => [...side].map(([name, at]) => html`<rect class="c-${dialectColor(name)}" x="${x}" y="${fixed(at.y)}" width="4" height="${fixed(at.height)}" rx="1.5"/>
  <text text-anchor="${anchor}" x="${x + dx}" y="${fixed(at.y + at.height / 2 + 4)}">${dialectName(name)} <tspan>${rate(at.value)}</tspan></text>`);

const sentence = (pairs) => `Jobs a second from callers to workers: ${pairs.map(([from, to, value]) => `${dialectName(from)} to ${dialectName(to)} ${rate(value)}`).join(", ")}`;
