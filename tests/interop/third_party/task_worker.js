// A worker that is a task, and a caller of one, for Node and without packages. Written from docs/tasks.md ("On the
// wire") and docs/http.md alone.
//
//     node task_worker.js work http://127.0.0.1:7480
//     node task_worker.js call http://127.0.0.1:7480 SERVICE '{"name": "value"}'

const [, , role, broker, service, payload] = process.argv;

// The task: def shorten(text: str, length: int = 10, *words: str, **names: int) -> Shortened
const PARAMETERS = { text: "string", length: "number", words: "object", names: "object" };

class WrongArguments extends Error {}

function shorten({ text, length = 10, words = [], names = {} }) {
  if (text === "unlucky") throw new RangeError("not today");
  const cut = text.slice(0, length);
  return { text: [cut, ...words].join(" "), cut: text.length - cut.length, names, at: "2026-11-16T12:00:00Z" };
}

function read(body) {
  let given;
  try {
    given = JSON.parse(body);
  } catch (error) {
    throw new WrongArguments(`the arguments of shorten cannot be decoded: ${error.message}`);
  }
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("@")) continue; // the retry rules of a Python caller
    if (!(name in PARAMETERS)) throw new WrongArguments(`shorten has no parameter '${name}'`);
    if (typeof value !== PARAMETERS[name]) throw new WrongArguments(`argument '${name}' of shorten: wrong type`);
  }
  if (!("text" in given)) throw new WrongArguments("argument 'text' of shorten is missing");
  return given;
}

async function post(path, body, headers = {}) {
  return fetch(broker + path, { method: "POST", body, headers });
}

async function work() {
  const json = { "Content-Type": "application/json" };
  const joined = await post("/v1/workers", JSON.stringify({ services: ["shorten"], name: "task_worker.js" }), json);
  const { id, token } = await joined.json();
  console.log("joined");
  for (;;) {
    const me = { "Dragoman-Worker-Token": token };
    const job = await post(`/v1/workers/${id}/next`, "", me);
    if (job.status !== 200) continue;
    const headers = { ...me, "Dragoman-Attempt": job.headers.get("Dragoman-Attempt") };
    try {
      await post(`/v1/workers/${id}/result`, JSON.stringify(shorten(read(await job.text()))), headers);
    } catch (error) {
      const isWrong = error instanceof WrongArguments;
      const failure = { type: isWrong ? "dragoman.WrongArguments" : error.name, message: error.message, detail: error.stack };
      if (isWrong) failure.retry_in = "never";
      await post(`/v1/workers/${id}/result?outcome=failed`, JSON.stringify(failure), { ...headers, ...json });
    }
  }
}

async function call() {
  const answer = await post(`/v1/call/${encodeURIComponent(service)}`, payload);
  const problem = answer.ok ? null : await answer.json();
  console.log(answer.ok ? JSON.stringify(await answer.json()) : `${problem.error.type}: ${problem.error.message}`);
}

(role === "work" ? work : call)();
