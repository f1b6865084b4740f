// The stream of snapshots: one EventSource a tab, closed while the tab is hidden, and opened again after an error.

import { get } from "./api.js";

const SLOW = 3, LOST = 6; // seconds without a snapshot
const HIDDEN = 10; // seconds until a hidden tab closes its stream
const POLL = 5; // seconds between two requests where the broker has too many streams
const POLLS = 6; // requests until such a tab tries a stream again
const LONGEST = 15; // seconds between two attempts

/** `state`: "live", "slow", "lost" or "polling". `changed()` is called when it changes, and each second while lost. */
export class Live {
  page = "";
  state = "slow";
  answered = null; // time of the last snapshot, by the clock of this machine
  #last = performance.now();
  #source = null;
  #timer = null;
  #hiding = null;
  #check = null; // the request that is made after an error
  #attempts = 0;
  #polls = 0;
  #hasStreamed = false; // the last stream has delivered a snapshot

  constructor({ snapshot, changed }) {
    this.snapshot = snapshot;
    this.changed = changed;
    setInterval(() => this.#look(), 1000);
    document.addEventListener("visibilitychange", () => this.#visibility());
  }

  /** Seconds since the last snapshot. */
  get silence() { return (performance.now() - this.#last) / 1000; }

  /** Follow the snapshots of this page; of a hidden tab, when it is shown. */
  open(page) {
    if (page === this.page && this.#isActive) return;
    this.page = page;
    if (document.hidden) this.#close();
    else this.#connect();
  }

  get #isActive() { return this.#source !== null || this.#timer !== null || this.#check !== null; }

  #connect() {
    this.#close();
    this.#hasStreamed = false;
    const source = this.#source = new EventSource(`/v1/live?page=${encodeURIComponent(this.page)}`);
    source.addEventListener("snapshot", (event) => {
      if (source !== this.#source) return;
      this.#hasStreamed = true;
      this.#receive(JSON.parse(event.data), "live");
    });
    source.onerror = () => { if (source === this.#source) this.#failed(); };
  }

  #close() {
    this.#source?.close();
    clearTimeout(this.#timer);
    this.#source = this.#timer = this.#check = null;
  }

  #receive(snapshot, state) {
    this.#last = performance.now();
    this.answered = Date.now();
    this.#attempts = 0;
    this.#become(state);
    this.snapshot(snapshot);
  }

  #failed() {
    this.#close();
    this.#later(this.#backoff(), () => this.#ask());
  }

  /** EventSource reports no statuses: a request tells if the broker is gone, or has too many streams. */
  async #ask() {
    const check = this.#check = {};
    let overview = null, isGone = false;
    try {
      overview = await get("/v1/overview", { range: "5m" });
    } catch (error) {
      isGone = !error.status || error.status >= 500;
    }
    if (check !== this.#check) return; // another page was opened meanwhile
    if (isGone) this.#failed();
    else if (this.#hasStreamed || overview === null) this.#connect();
    else this.#poll(overview);
  }

  #poll(overview) {
    this.#receive(overview, "polling");
    this.#polls += 1;
    this.#later(POLL, () => this.#polls % POLLS ? this.#ask() : this.#connect());
  }

  /** 1, 2, 4 … 15 seconds, a quarter more or less, so that the tabs of many people do not come at once. */
  #backoff() { return Math.min(LONGEST, 2 ** this.#attempts++) * (0.75 + Math.random() / 2); }

  #later(seconds, act) {
    this.#check = null;
    this.#timer = setTimeout(() => { this.#timer = null; act(); }, seconds * 1000);
  }

  #look() {
    if (document.hidden) return;
    const limit = this.state === "polling" ? LOST + POLL : LOST;
    if (this.silence > limit) { this.#become("lost"); this.changed(); }
    else if (this.silence > SLOW && this.state === "live") this.#become("slow");
  }

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.changed();
  }

  #visibility() {
    clearTimeout(this.#hiding);
    if (document.hidden) { this.#hiding = setTimeout(() => this.#close(), HIDDEN * 1000); return; }
    if (this.#isActive) return;
    this.#last = performance.now();
    this.#connect();
  }
}
