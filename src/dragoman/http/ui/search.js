// Search of the top bar: opens the job, service or worker that the text names; else lists the jobs that are like it.

import { get } from "./api.js";
import { hrefOf } from "./routes.js";

const PREFIX = /^[0-9a-f]{4,32}$/i;

/** The path of the page for this text. */
export async function find(text) {
  const [service, workers, jobs] = await Promise.allSettled([
    get(`/v1/services/${encodeURIComponent(text)}`),
    get("/v1/workers", { text, limit: 2 }),
    PREFIX.test(text) ? get("/v1/jobs", { text: text.toLowerCase(), limit: 2 }) : null,
  ]);
  /** @param {any} settled @param {string} list */
  const only = ({ value }, list) => value?.[list].length === 1 ? value[list][0] : null;
  const job = only(jobs, "jobs");
  if (job?.id.startsWith(text.toLowerCase())) return hrefOf("job", job.id);
  if (service.status === "fulfilled") return hrefOf("service", text);
  const worker = only(workers, "workers");
  if (worker && worker.name === text) return hrefOf("worker", worker.id);
  return hrefOf("jobs", "", { text });
}
