// Untrusted text as people see it: characters that are invisible or change the order of others become their escapes, as
// in commands (sdk/printable.py). Names of services come from callers, and a person decides by what is shown.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const PLAIN = /^[\x21-\x7e][\x20-\x7e]*$/;
// Letters that are written from right to left, and what stands between two of them without a letter of another script.
const SCRIPTS = ["Hebrew", "Arabic", "Syriac", "Thaana", "Nko", "Adlam"];
const RTL = `[${SCRIPTS.map((each) => `\\p{Script=${each}}`).join("")}]`;
const RIGHT_TO_LEFT = new RegExp(`${RTL}(?:[^\\p{L}]*${RTL})*`, "gu");

/** The text with escapes for all characters that nobody can see, ends of lines too. */
export const escaped = (text) => PLAIN.test(text) ? text : text.replace(HIDDEN, escape);

/** The same; a text of spaces only is escaped, too. */
export const visible = (text) => spaced(escaped(text), /^ +$/);

/** The same for a text that may have several lines: ends of lines and tabs stay. */
export const visibleLines = (text) => PLAIN.test(text) ? text
  : spaced(text.replace(HIDDEN, (sign, at) => isLine(text, sign, at) ? sign : escape(sign)), /^ +$/);
const isLine = (text, sign, at) => sign === "\n" || sign === "\t" || (sign === "\r" && text[at + 1] === "\n");

/** The same for a text that must be typed: spaces at its ends, and all but the first of several, are escaped. */
export const exact = (text) => spaced(escaped(text), /^ +| +$|(?<= ) +/g);

const spaced = (text, where) => text.replace(where, (spaces) => "\\x20".repeat(spaces.length));

/** HTML with every run of letters that are written from right to left isolated: the text around it keeps its order. */
export const isolated = (html) => PLAIN.test(html) ? html : html.replace(RIGHT_TO_LEFT, "<bdi>$&</bdi>");

function escape(sign) {
  const code = sign.codePointAt(0);
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return SHORT[sign] ?? `\\${mark}${code.toString(16).padStart(digits, "0")}`;
}
