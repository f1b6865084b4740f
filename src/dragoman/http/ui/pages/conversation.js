// The conversation of a job or a worker: a ladder, text or Mermaid, to copy and to save.

import { get } from "../api.js";
import { html, raw } from "../dom.js";
import { moduleOf } from "../modules.js";
import { panel } from "../parts.js";
import { choices } from "./elements.js";

let off = null; // the answer of a broker that records no messages: it is not asked again
const NARROW = 720; // pixels, as in the style sheets
const FORMS = [["", "picture"], ["text"], ["mermaid"]];

/** A job whose messages were not recorded: a part of the jobs is, and those that are not done. */
export const UNRECORDED = { problem: "The messages of this job are not recorded." };

/** Fetches the conversation in the form of the address. Without one, the reason is kept.
 * @param {string} path of the job or worker */
export async function loadConversation(path, { query }) {
  const { form = "" } = query;
  if (off) return off;
  try {
    if (form === "text" || form === "mermaid") return { form, text: await get(`${path}/ladder?format=${form}`) };
    const drawing = moduleOf(() => import("../ladder.js"));
    const [{ drawLadder }, story] = await Promise.all([drawing, get(`${path}/ladder?format=json`)]);
    return { form: "", story, draw: drawLadder };
  } catch (problem) {
    if (problem.status === 409) off = { form, problem: problem.message };
    return { form, problem: problem.status ? problem.message : "Conversations are not available." };
  }
}

/** The conversation with the messages of a snapshot, if it is drawn as a picture. */
export const withLadder = (recorded, ladder) => (ladder && recorded.draw ? { ...recorded, story: ladder } : recorded);

/** @param {string} path of the ladder */
export function conversation(recorded, address, path) {
  const { story, problem } = recorded, hasNone = problem != null || (story && !hasMessages(story));
  const note = story?.recorded === "milestones" ? "reconstructed from the attempts" : "messages in their own dialects";
  const side = !hasNone && html`${choices("Form", FORMS, "form", address.query)}
    ${recorded.text != null && html`<button class="small" data-copy="${recorded.text}">Copy</button>`}
    <a class="btn small" href="${path}?format=${recorded.form || "svg"}" download>Save</a>`;
  return panel("Conversation", body(recorded, hasNone), { note: hasNone ? "" : note, side });
}

const hasMessages = (story) => (story.messages ?? []).length > 0;

function body(recorded, hasNone) {
  if (hasNone) return html`<p class="hint">${recorded.problem ?? "No messages are recorded yet. They are recorded while this page is open."}</p>`;
  if (recorded.text != null) return html`<pre class="tall" tabindex="0">${recorded.text}</pre>`;
  return html`<div class="scroll">${raw(recorded.draw(recorded.story, { isNarrow: innerWidth <= NARROW }))}</div>`;
}
