// Requests to the broker. An error has the broker's own sentence.

export class Problem extends Error {
  constructor(status, type, detail) {
    super(detail);
    Object.assign(this, { status, type, detail });
  }
}

/** Path with a query; fields without a value are left out. */
export function url(path, query = {}) {
  const fields = Object.entries(query).filter(([, value]) => value != null && value !== "");
  return fields.length ? `${path}?${new URLSearchParams(fields)}` : path;
}

export const get = (path, query, signal) => request("GET", url(path, query), undefined, signal);
export const send = (method, path, body) => request(method, path, body);

async function request(method, target, body, signal) {
  const options = { method, signal, headers: { accept: "application/json" } };
  if (body !== undefined) { options.headers["content-type"] = "application/json"; options.body = JSON.stringify(body); }
  let response;
  try {
    response = await fetch(target, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The broker does not answer. Check that it runs, and try again.");
  }
  const type = response.headers.get("content-type") ?? "";
  const answer = type.includes("json") ? await response.json() : await response.text();
  if (response.ok) return answer;
  if (response.status === 401) location.reload(); // the server shows the login page
  const detail = answer.detail || answer.title || `The broker answered ${response.status}.`;
  throw new Problem(response.status, answer.type ?? "", detail);
}
