// Ladders: the conversation of a job or a worker, drawn as SVG. The same picture, with the same numbers and classes, as
// in dragoman/ladder_picture.py; a test compares the two. Colours are in style.css and ladder.css.

import { dialectName } from "./dialects.js";
import { escaped } from "./visible.js";

const ROW = 25, HEAD = 52, BREAK = 27, BAND = 42, WIDTH = 830, NARROW_WIDTH = 352, GUTTER = 58, MARGIN = 12;
const SHORT_NOTE = 28, LONGEST_NOTE = 64, LONGEST_NARROW_NOTE = 24, CROWD = 3, LEFT_OF = 200;
const LONGEST_SAYS = 100, LONGEST_NARROW_SAYS = 40;
const MOST_LANES = 6, MOST_CALLERS = 2, SILENCE = 1, TIMES_MEDIAN = 10;
const RECONSTRUCTED = "Reconstructed from the history of the job.";
const KINDS = { done: "done", failed: "failed", "timed out": "timed", lost: "lost" };

/**
 * @typedef {{id: string, role: string, name: string, dialect: string | null}} Lane
 * @typedef {{t: number, from?: string, to?: string, message?: string, size?: number, dropped?: string, unsent?: string,
 *   at?: string, note?: string, kind?: string, lost?: string, attempt?: number, lane?: string, title?: string,
 *   says?: string, ends?: string, count?: number}} Row
 * @typedef {{lanes: Lane[], messages: Row[], more: number, recorded?: string}} Conversation
 */

/**
 * Return the picture of a conversation, as the text of an SVG element.
 * On a narrow screen all workers share one lane: an attempt has one worker, and its band has the name.
 * @param {Conversation} conversation @param {{isNarrow?: boolean}} [options] @returns {string}
 */
export function drawLadder(conversation, { isNarrow = false } = {}) {
  const { lanes, rows } = forPicture(conversation);
  const width = isNarrow ? NARROW_WIDTH : WIDTH, broker = isNarrow ? 166 : 306;
  const xs = places(lanes, broker, isNarrow), columns = [...new Set(xs.values())];
  const colours = new Map(lanes.map((lane) => [lane.id, lane.dialect ? `c-${lane.dialect}` : "c-none"]));
  const began = new Map(), bars = [], marks = [];
  let y = HEAD + 10;

  /** Draw the bar of an attempt, from its beginning to this row. @param {string} lane */
  function bar(lane) {
    const from = began.get(lane);
    began.delete(lane);
    if (from !== undefined && y > from)
      bars.push(`<g class="${text(colours.get(lane))}"><rect class="act" x="${xs.get(lane) - 4}" y="${from}" width="8" height="${y - from}" rx="2"/></g>`);
  }
  /** @param {number} gap */
  function pause(gap) {
    const top = y + 11;
    const zigs = columns.map((x) => `<rect class="gap" x="${x - 4}" y="${top - 1}" width="8" height="16"/><path class="zig" d="M${x} ${top}l-3.5 3.5l7 7l-3.5 3.5"/>`).join("");
    marks.push(`${zigs}<text class="time" x="${GUTTER}" y="${top + 11}" text-anchor="end">+ ${duration(gap)}</text>`);
    y += BREAK;
  }
  /** @param {Row} row */
  function band(row) {
    const most = isNarrow ? LONGEST_NARROW_SAYS : LONGEST_SAYS;
    const says = row.says ? ` <tspan class="size" dx="6">${text(cut(row.says, most))}</tspan>` : "";
    marks.push(`<rect class="band" x="0" y="${y + 15}" width="${width}" height="22" rx="5"/><text class="title" x="12" y="${y + 30}">${text(row.title)}${says}</text>`);
    if (row.lane) began.set(row.lane, y + ROW + 26);
    y += BAND;
  }
  /** @param {Row} row */
  function note(row) {
    const isRight = isNarrow || [...row.note].length > SHORT_NOTE; // there is more room
    const x = broker + (isRight ? 10 : -12), colour = KINDS[row.kind] ? `c-${KINDS[row.kind]}` : "c-none";
    marks.push(`<g class="${colour}"><circle class="dot" cx="${broker}" cy="${y}" r="3"/><text class="note" x="${x}" y="${y + 4}" text-anchor="${isRight ? "start" : "end"}">${text(cut(row.note, isNarrow ? LONGEST_NARROW_NOTE : LONGEST_NOTE))}</text></g>`);
  }
  /** @param {Row} row */
  function lost(row) {
    const x = xs.get(row.at), isLeft = x > broker && (isNarrow || x > WIDTH - LEFT_OF);
    marks.push(`<g class="c-lost"><path class="arrow" d="M${x - 5} ${y - 5}l10 10m0 -10l-10 10"/><text class="note" x="${isLeft ? x - 10 : x + 12}" y="${y + 4}" text-anchor="${isLeft ? "end" : "start"}">${text(row.lost)}</text></g>`);
  }
  /** @param {Row} row */
  function message(row) {
    const start = xs.get(row.from), way = xs.get(row.to) > start ? 1 : -1, isCut = Boolean(row.dropped || row.unsent);
    const peer = start === broker ? row.to : row.from, isCaller = xs.get(peer) < broker;
    const end = row.dropped ? xs.get(row.to) - way * 13 : row.unsent ? start + way * 30 : xs.get(row.to);
    const head = isCut
      ? `<g class="c-timed"><path class="arrow" d="M${end - 4} ${y - 1}l8 8m0 -8l-8 8"/></g>`
      : `<path class="arrow" d="M${end - way * 7} ${y - 1}L${end - way * 2} ${y + 3}L${end - way * 7} ${y + 7}"/>`;
    const count = (row.count ?? 1) > 1 ? ` × ${row.count}` : "";
    const bytes = row.size && !isNarrow ? ` <tspan class="size">${size(row.size)}</tspan>` : "";
    const reason = isCut ? ` <tspan class="note c-timed" dx="6">${text(row.dropped || row.unsent)}</tspan>` : "";
    marks.push(`<g class="${text(colours.get(peer))}"><path class="arrow${isCut ? " dashed" : ""}" d="M${start + way * 5} ${y + 3}H${end - way * 2}"/>${head}<text class="message" x="${broker + (isCaller ? -12 : 12)}" y="${y - 3}" text-anchor="${isCaller ? "end" : "start"}">${text(row.message)}${count}${bytes}${reason}</text></g>`);
  }

  for (const row of withBreaks(rows)) {
    if (typeof row === "number") pause(row);
    else if (row.attempt) band(row);
    else {
      y += ROW;
      if (row.ends) bar(row.ends);
      marks.push(`<text class="time" x="${GUTTER}" y="${y + 4}" text-anchor="end">${since(row.t)}</text>`);
      if (row.note) note(row);
      else if (row.lost) lost(row);
      else message(row);
    }
  }
  for (const lane of [...began.keys()]) bar(lane);
  if (conversation.more) {
    y += ROW;
    marks.push(`<text class="size" x="12" y="${y + 4}">… ${conversation.more} more</text>`);
  }
  if (conversation.recorded === "milestones") {
    y += ROW;
    marks.push(`<text class="size" x="12" y="${y + 4}">${RECONSTRUCTED}</text>`);
  }
  const bottom = y + 22;
  const lives = columns.map((x) => `<path class="life" d="M${x} ${HEAD - 5}V${bottom}"/>`).join("");
  return `<svg class="ladder" viewBox="${-MARGIN} 0 ${width + 2 * MARGIN} ${bottom + 6}" role="img" aria-label="Messages in the order in which the broker saw them">${lives}${bars.join("")}${heads(lanes, xs, colours, isNarrow)}${marks.join("")}</svg>`;
}

/** Return the lanes and rows of a picture. Of many workers, it shows the first ones and the last one. */
function forPicture({ lanes, messages }) {
  const of = (role) => lanes.filter((lane) => lane.role === role);
  const callers = of("caller").slice(0, MOST_CALLERS), workers = of("worker"), most = MOST_LANES - 1 - callers.length;
  const folded = workers.length > most ? workers.slice(most - 1, -1) : [];
  const hidden = new Set([...folded, ...of("caller").slice(MOST_CALLERS)].map((lane) => lane.id));
  const attempts = messages.filter((row) => row.attempt && hidden.has(row.lane)).length;
  const rows = [];
  let isHidden = false, isTold = false;
  for (const row of messages) {
    if (row.attempt) {
      isHidden = hidden.has(row.lane);
      if (isHidden && !isTold) rows.push({ t: row.t, attempt: row.attempt, title: `… ${attempts} more attempts` });
      isTold ||= isHidden;
    }
    if (!(isHidden && (row.attempt || row.note)) && ![row.from, row.to, row.at].some((id) => hidden.has(id))) rows.push(row);
  }
  return { lanes: [...callers, ...of("broker"), ...workers.filter((lane) => !hidden.has(lane.id))], rows };
}

/** Return the x of each lane. */
function places(lanes, broker, isNarrow) {
  const xs = new Map(), workers = lanes.filter((lane) => lane.role === "worker");
  const first = isNarrow ? 302 : 474, last = isNarrow ? 302 : WIDTH - 58;
  lanes.filter((lane) => lane.role === "caller").forEach((lane, i) => xs.set(lane.id, isNarrow ? 74 : 112 + 88 * i));
  for (const lane of lanes) if (lane.role === "broker") xs.set(lane.id, broker);
  workers.forEach((lane, i) => xs.set(lane.id, workers.length === 1 ? (isNarrow ? first : first + 120) : first + Math.floor((last - first) * i / (workers.length - 1))));
  return xs;
}

function heads(lanes, xs, colours, isNarrow) {
  const workers = lanes.filter((lane) => lane.role === "worker").length, taken = new Set();
  return lanes.map((lane) => {
    const x = xs.get(lane.id);
    if (taken.has(x)) return "";
    taken.add(x);
    const isShared = isNarrow && lane.role === "worker" && workers > 1;
    const isCrowded = isNarrow || (workers > CROWD && lane.role === "worker");
    const name = isShared ? `${workers} workers` : cut(lane.name, isCrowded ? 12 : 18);
    const role = isShared ? "" : lane.dialect && !isCrowded ? `${dialectName(lane.dialect)} ${lane.role}` : dialectName(lane.dialect ?? "") || lane.role;
    return `<g class="${isShared ? "c-none" : text(colours.get(lane.id))}"><text class="who" x="${x}" y="16" text-anchor="middle">${text(name)}</text><text class="role" x="${x}" y="33" text-anchor="middle">${text(role)}</text><circle class="dot" cx="${x}" cy="${HEAD - 8}" r="3"/></g>`;
  }).join("");
}

/** Return the rows, and before each the length of a long silence, if there was one. */
function withBreaks(rows) {
  const gaps = rows.slice(1).map((row, i) => Math.max(row.t - rows[i].t, 0));
  const median = [...gaps].sort((a, b) => a - b)[Math.floor((gaps.length - 1) / 2)] ?? 0;
  return rows.flatMap((row, i) => i && gaps[i - 1] > SILENCE && gaps[i - 1] > TIMES_MEDIAN * median ? [gaps[i - 1], row] : [row]);
}

const since = (t) => t < 1 ? `${fixed(t * 1000, 1)} ms` : `${fixed(t, 2)} s`;
const duration = (s) => s < 10 ? `${fixed(s, 1)} s` : s < 120 ? `${fixed(s, 0)} s` : `${fixed(s / 60, 0)} min`;

/** @param {number} count of bytes */
function size(count) {
  if (count < 1024) return `${count} B`;
  const [unit, letters] = count < 2 ** 20 ? [1024, "KiB"] : [2 ** 20, "MiB"];
  return `${fixed(count / unit, 1)} ${letters}`;
}

/** Return a number with these digits after the point; halves are rounded up. */
function fixed(number, digits) {
  const scale = 10 ** digits, scaled = Math.floor(number * scale + 0.5);
  return digits ? `${Math.floor(scaled / scale)}.${String(scaled % scale).padStart(digits, "0")}` : String(scaled);
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };

/** Escape a text for SVG. Control characters become their escapes. */
function text(value) {
  return escaped(String(value ?? "")).replace(/[&<>"']/g, (sign) => ENTITIES[sign]);
}

/** @param {string} value @param {number} most letters */
function cut(value, most) {
  const letters = [...value];
  return letters.length <= most ? value : `${letters.slice(0, most - 1).join("")}…`;
}
