// Rights of the principal that has opened the page, from the attributes of the page. The broker checks them again.

const facts = document.documentElement.dataset;

/** True if the listener allows acts. */
export const hasActs = () => facts.acts !== "none";

/** True if the principal may see all services: totals, listeners and the broker itself. */
export const seesAll = () => facts.sees === "all";

/** True if the listener shows sizes of payloads, and no content. */
export const hidesPayloads = () => facts.payloads === "none";

/** True if the principal may act on what this owner has made. @param {string} owner */
export const isOwn = (owner) => hasActs() && owner === facts.principal;

/** True if the principal administers a service. A pattern is a name, or a prefix that ends in `*`.
 * @param {string} service */
export function administers(service) {
  if (!hasActs()) return false;
  const patterns = JSON.parse(facts.administers || "[]");
  return patterns.some((each) => (each.endsWith("*") ? service.startsWith(each.slice(0, -1)) : service === each));
}

/** True if the principal administers all of these services. @param {string[]} services */
export const administersEach = (services) => services.length ? services.every(administers) : facts.acts === "all";
