// Numbers and times as people read them. Seconds and bytes in, text out.

/** Duration: `< 0.5 ms`, `17 ms`, `1.9 s`, `21 s`, `2 m 05 s`, `16 min`, `2.3 h`, `2.3 d`. */
export function time(s) {
  if (s == null) return "–";
  if (s <= 0.0005) return "< 0.5 ms";
  if (s < 0.0995) return `${(s * 1000).toFixed(s < 0.00995 ? 1 : 0)} ms`;
  if (s < 9.95) return `${s.toFixed(s < 0.995 ? 2 : 1)} s`;
  if (s < 90) return `${s.toFixed(0)} s`;
  if (s < 900) return `${Math.floor(s / 60)} m ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 129600 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} d`;
}

/** Duration between two times of the broker. They are in whole milliseconds, and so is it. */
export const took = (s) => (s < 0.0095 ? `${Math.round(s * 1000) || "< 1"} ms` : time(s));

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Exact number with separators; from a million on, in millions. */
export function count(n) {
  if (n == null) return "–";
  return n < 1e6 ? whole.format(Math.round(n)) : `${(n / 1e6).toFixed(2)} M`;
}

/** Jobs that wait for a time or for other jobs: `+ 3 delayed, 2 dependent`. */
export function later({ delayed, dependent }) {
  const parts = [delayed && `${count(delayed)} delayed`, dependent && `${count(dependent)} dependent`].filter(Boolean);
  return parts.length ? `+ ${parts.join(", ")}` : "";
}

/** Number a second. */
export function rate(n) {
  if (n == null) return "–";
  if (n >= 1e6) return `${(n / 1e6).toFixed(2)} M`;
  if (n >= 10000) return `${(n / 1000).toFixed(1)} k`;
  if (n >= 100) return count(n);
  if (n >= 9.95) return n.toFixed(0);
  return n >= 0.05 ? n.toFixed(1) : n > 0 ? "< 0.1" : "0";
}

export function bytes(n) {
  if (n == null) return "–";
  if (n < 1024) return `${Math.round(n)} B`;
  if (n < 2 ** 20) return `${(n / 1024).toFixed(1)} KiB`;
  return n < 2 ** 30 ? `${(n / 2 ** 20).toFixed(1)} MiB` : `${(n / 2 ** 30).toFixed(2)} GiB`;
}

/** Share of 1 as a percentage: two digits that matter. */
export function percent(share) {
  if (share == null || Number.isNaN(share)) return "–";
  const value = share * 100;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  return `${value.toFixed(value < 0.1 ? 2 : value < 10 ? 1 : 0)} %`;
}

/** Time of day of an RFC 3339 time; another day shows its date. */
export function clock(at, now = Date.now()) {
  if (at == null) return "–";
  const date = new Date(at), day = new Date(now);
  const pad = (n) => String(n).padStart(2, "0");
  const hours = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  if (date.toDateString() === day.toDateString()) return hours;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${hours}`;
}

/** Seconds from an RFC 3339 time to another; null if there is none. */
export const since = (at, now) => at == null ? null : Math.max(0, (new Date(now).getTime() - new Date(at).getTime()) / 1000);

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
