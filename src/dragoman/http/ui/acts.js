// The dialog of an act. The focus starts on *Leave it*, Escape leaves, and a failed act stays in the dialog.

import { html, put } from "./dom.js";
import { VERBS } from "./verbs.js";
import { exact } from "./visible.js";

let latest = 0; // number of the last request for a dialog: facts for an earlier one are dropped

/** Show the dialog of an act with the facts of now, and execute the act if it is confirmed.
 * `context` is that of app.js, `button` the one that gets the focus back. */
export async function ask(name, target, context, button) {
  const verb = VERBS[name], { dialog, say } = context, number = ++latest;
  let now;
  try {
    now = await verb.look(target);
  } catch (problem) {
    say(problem.message);
    return;
  }
  if (number !== latest || dialog.open) return;
  const typed = verb.typed?.(now) ?? null;
  dialog.className = "";
  put(dialog, html``);
  put(dialog, form(verb, now, typed));
  const accept = dialog.querySelector(".primary"), refusal = dialog.querySelector(".refusal");
  const leave = dialog.querySelector(".leave"), isDone = () => number !== latest || !dialog.open;
  leave.onclick = () => dialog.close();
  // A name with characters that no keyboard has is typed as it is shown.
  dialog.querySelector("form").oninput = ({ target: { value } }) => {
    accept.disabled = value !== typed && value !== exact(typed ?? "");
  };
  dialog.onclose = () => { if (button?.isConnected) button.focus({ preventScroll: true }); };
  dialog.querySelector("form").onsubmit = async (event) => {
    event.preventDefault();
    accept.disabled = true;
    refusal.hidden = true;
    try {
      const answer = await verb.send(now);
      if (!isDone()) dialog.close();
      say(verb.report(now, answer));
      const next = verb.next?.(now, answer);
      await (next ? context.go(next) : context.reload());
    } catch (problem) {
      put(refusal, html`${problem.message}`);
      refusal.hidden = false;
      accept.disabled = false;
    }
  };
  dialog.showModal();
  leave.focus();
}

const form = (verb, now, typed) => html`<form class="act" aria-labelledby="act-title">
  <h2 id="act-title">${verb.title(now)}</h2>
  <ul>${verb.facts(now).filter(Boolean).map((each) => html`<li>${each}</li>`)}</ul>
  ${typed && html`<label><span>Type <b>${exact(typed)}</b> to continue</span>
    <input name="typed" autocomplete="off" autocapitalize="off" spellcheck="false"></label>`}
  <p class="refusal" role="alert" hidden></p>
  <div class="acts">
    <button type="button" class="leave">Leave it</button>
    <button class="primary ${verb.danger && "danger"}" ${typed && html`disabled`}>${verb.yes(now)}</button>
  </div>
</form>`;
