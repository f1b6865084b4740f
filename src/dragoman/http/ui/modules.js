// Modules that are loaded when they are needed, and the repair of a page that could not load one.
//
// A browser remembers for the life of a document that a module, or one that it needs, could not be fetched: it does not
// ask for it again. So the document is loaded again when the broker answers. Its address has all that is needed for it.

import { Problem } from "./api.js";

const YOUNG = 10_000; // milliseconds: a document that cannot load a module so early is not loaded again by itself

let isBroken = false;

/** The module that `load` imports. @param {() => Promise<any>} load @returns {Promise<any>} */
export async function moduleOf(load) {
  try {
    return await load();
  } catch (error) {
    console.error(error);
    isBroken ||= performance.now() > YOUNG;
    const next = isBroken ? "Check that the broker runs: the page is loaded again when it answers."
      : "Check that the broker runs, and load the page again.";
    throw new Problem(0, "unreachable", `A part of the page cannot be loaded. ${next}`);
  }
}

/** Load the document again if a module is missing. Called when the broker has answered. */
export function repair() {
  if (!isBroken) return;
  isBroken = false;
  location.reload();
}
