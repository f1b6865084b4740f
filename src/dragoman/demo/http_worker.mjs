// A worker over HTTP for Node 18 and newer: returns each payload backwards. It uses no code of Dragoman.
//
//   node http_worker.mjs http://127.0.0.1:7480 SERVICE
//
// docs/http.md describes the requests. It ends when the broker does not answer.

const [url, service] = process.argv.slice(2);

async function post(path, headers, body) {
  const response = await fetch(`${url}/v1/workers${path}`, { method: "POST", headers, body });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response;
}

const joined = await (
  await post("", { "Content-Type": "application/json" }, JSON.stringify({ services: [service], name: "demo.js" }))
).json();
const token = { "Dragoman-Worker-Token": joined.token };

process.on("SIGTERM", async () => {
  await fetch(`${url}/v1/workers/${joined.id}`, { method: "DELETE", headers: token }).catch(() => {});
  process.exit(0);
});

for (;;) {
  const job = await post(`/${joined.id}/next`, token);
  if (job.status === 204) continue; // no job yet
  const payload = Buffer.from(await job.arrayBuffer());
  const headers = { ...token, "Dragoman-Attempt": job.headers.get("Dragoman-Attempt") };
  await post(`/${joined.id}/result`, headers, payload.reverse());
}
