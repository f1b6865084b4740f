// Icons as paths in a box of 16 × 16, drawn as lines.

import { html } from "./dom.js";

const PATHS = {
  overview: "M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5",
  services: "M2.5 4h11M2.5 8h11M2.5 12h7",
  workers: "M3 3h4v4H3zM9 3h4v4H9zM3 9h4v4H3zM9 9h4v4H9z",
  jobs: "M3 2.5h7l3 3v8H3zM5.5 8h5M5.5 10.5h5",
  quarantine: "M8 2.2 14 13H2zM8 6.5v3M8 11.3v0",
  schedules: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  broker: "M5 2.5v11M11 2.5v11M5 5.5h6M11 10.5H5",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  table: "M2.5 3.5h11v9h-11zM2.5 6.5h11M6.5 3.5v9",
  save: "M8 2.5v7m-3-3 3 3 3-3M3 13h10",
};
/** Shapes of job states within a circle: a state is always also a shape and a word. */
export const STATE_PATHS = {
  waiting: "M8 4.2V8l2.5 1.5", delayed: "M5.5 8h5", dependent: "M5 8h5.5M8.2 5.7 10.5 8l-2.3 2.3", running: "M6.5 5.5v5l4-2.5z", done: "m5 8.2 2 2 4-4.2",
  failed: "m5.8 5.8 4.4 4.4m0-4.4-4.4 4.4", "timed out": "M8 4.5V8H5.5",
  lost: "M8 9.2c0-1.6 1.7-1.5 1.7-3A1.7 1.7 0 0 0 6.4 6M8 11.2v0",
  cancelled: "M5.5 10.5l5-5", refused: "M5.5 8h5",
};

export const icon = (name) => html`<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${PATHS[name]}"/></svg>`;
