// One crosshair for all charts of a page, and the values of a chart as a table.

import { html, put } from "./dom.js";
import { clock, time } from "./format.js";
import { drawn } from "./charts.js";

/** Show the values under the pointer in every chart: they have the same time axis. */
export function watchPointer(main) {
  main.addEventListener("pointermove", (event) => {
    const chart = event.target.closest("[data-chart]");
    clear(main);
    if (!chart) return;
    const box = chart.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    for (const each of main.querySelectorAll("[data-chart]")) mark(each, share, each === chart);
  });
  main.addEventListener("pointerleave", () => clear(main));
}
const clear = (main) => main.querySelectorAll(".chart > .keep").forEach((node) => node.remove());

function mark(chart, share, isPointed) {
  const known = drawn.get(chart.dataset.chart);
  if (!known?.series[0]?.values.length) return;
  const { series, format, step } = known, last = series[0].values.length - 1, i = Math.round(share * last);
  const place = last ? i / last * 100 : 0;
  const cross = document.createElement("div"), tip = document.createElement("div");
  cross.className = "cross keep";
  tip.className = "tip keep";
  cross.style.left = `${place}%`;
  tip.style[place > 60 ? "right" : "left"] = `calc(${place > 60 ? 100 - place : place}% + 8px)`;
  const ago = isPointed && html`<span class="dim">${i === last ? "now" : `${time((last - i) * step)} ago`}</span>`;
  put(tip, html`${ago}${series.map((each) => html`
    <span><i class="dot sq c-${each.color}"></i>${each.name}<b>${shown(each.values[i], format)}</b></span>`)}`);
  chart.append(cross, tip);
}

const shown = (value, format) => value == null ? "–" : format(value);

/** Open a dialog with the values of a chart, newest first. */
export function showTable(dialog, key, now) {
  const known = drawn.get(key);
  if (!known) return;
  const { series, format, step, label } = known, count = series[0].values.length;
  const rows = Array.from({ length: count }, (_, row) => count - 1 - row);
  dialog.className = "wide";
  put(dialog, html`<form method="dialog"><h2>${label}</h2><div class="scroll" tabindex="0"><table>
    <thead><tr><th>Time</th>${series.map((each) => html`<th class="num">${each.name}</th>`)}</tr></thead>
    <tbody>${rows.map((i) => html`<tr><td>${clock(now - (count - 1 - i) * step * 1000)}</td>
      ${series.map((each) => html`<td class="num">${shown(each.values[i], format)}</td>`)}</tr>`)}</tbody>
  </table></div><div class="acts"><button>Close</button></div></form>`);
  dialog.showModal();
}
