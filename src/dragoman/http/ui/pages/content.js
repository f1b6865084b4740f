// Payloads and results: size, kind, and the first bytes as text, JSON or hexadecimal.

import { html } from "../dom.js";
import { bytes } from "../format.js";

const SHOWN = 4096; // bytes
const ROW = 8; // bytes in a row of hexadecimal
const ROWS = 32;

// First bytes of common formats.
const KINDS = [
  ["image/png", "89504e47"], ["image/jpeg", "ffd8ff"], ["image/gif", "474946383"], ["application/pdf", "255044462d"],
  ["application/zip", "504b0304"], ["application/gzip", "1f8b"], ["image/webp", "52494646"], ["zstd", "28b52ffd"],
  ["SQLite database", "53514c697465"], ["Parquet", "50415231"], ["ELF program", "7f454c46"],
];

/** Fetches the first bytes of a payload: the job's view has fewer. Returns null if the view is enough.
 * @param {{id: string, payload: {size: number, text?: string, base64?: string} | null}} job */
export async function beginning({ id, payload }) {
  if (!payload || shownBytes(payload).length >= Math.min(payload.size, SHOWN)) return null;
  const headers = { range: `bytes=0-${SHOWN - 1}` };
  const answer = await fetch(`/v1/jobs/${id}/payload`, { headers }).catch(() => null);
  return answer?.ok ? new Uint8Array(await answer.arrayBuffer()) : null;
}

/** @param {{text?: string, base64?: string, size?: number, kind?: string}} view
 * @param {Uint8Array | null} [known] more of its first bytes */
export function content(view, known = null) {
  const held = known ?? shownBytes(view), size = view.size ?? held.length, first = held.slice(0, SHOWN);
  const text = decode(first, first.length < size), shape = text == null ? null : pretty(text, first.length === size);
  const kind = text == null ? guess(first) ?? view.kind ?? "bytes" : shape != null ? "JSON" : "text, UTF-8";
  if (size === 0) return html`<p class="hint">Empty.</p>`;
  const shown = text == null ? Math.min(first.length, ROW * ROWS) : first.length;
  return html`<p class="hint">${bytes(size)}, ${kind}${shown < size && `. The first ${bytes(shown)}:`}</p>
    <pre tabindex="0">${shape ?? text ?? hex(first.slice(0, ROW * ROWS))}</pre>`;
}

/** @param {{text?: string, base64?: string}} view */
function shownBytes({ text, base64 }) {
  if (text != null) return new TextEncoder().encode(text);
  return Uint8Array.from(atob(base64 ?? ""), (each) => each.charCodeAt(0));
}

function decode(first, isCut) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(first, { stream: isCut });
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

function pretty(text, isWhole) {
  if (!isWhole || !/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

function guess(first) {
  const digits = [...first.slice(0, 8)].map((each) => each.toString(16).padStart(2, "0")).join("");
  return KINDS.find(([, mark]) => digits.startsWith(mark))?.[0];
}

function hex(first) {
  const rows = [];
  for (let at = 0; at < first.length; at += ROW) {
    const row = [...first.slice(at, at + ROW)];
    const digits = row.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(ROW * 3 - 1);
    rows.push(`${digits}  ${row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("")}`);
  }
  return rows.join("\n");
}
