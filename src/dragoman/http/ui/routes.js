// The pages and their paths. The server answers each of these paths with the same HTML file.

/**
 * Each page is a module with
 *   title(address)    text of the heading, the path in the top bar and the tab; the default is the name in this table
 *   live(address)     the value of `page` at /v1/live; the default is "overview"
 *   load(address)     promise of the page's data; called again if the query changes, at `reload()` and after a restart
 *   refresh(address)  seconds after which `load` is called again; the default is never
 *   advance(data, snapshot, address)  optional: adds a snapshot to the data
 *   render({address, data, live, error})  HTML; called after each snapshot. `live` is the last one, and may be null
 *   acts              optional: {verb(target, context, button)}; all other verbs are those of acts.js
 * An address is {page, id, query}; `query` is an object of strings.
 */
export const ROUTES = [
  { page: "overview", path: "/", name: "Overview", key: "o", module: () => import("./pages/overview.js") },
  { page: "services", path: "/services", name: "Services", key: "s", module: () => import("./pages/services.js") },
  { page: "service", path: "/service/", owner: "services", module: () => import("./pages/service.js") },
  { page: "workers", path: "/workers", name: "Workers", key: "w", module: () => import("./pages/workers.js") },
  { page: "worker", path: "/worker/", owner: "workers", module: () => import("./pages/worker.js") },
  { page: "jobs", path: "/jobs", name: "Jobs", key: "j", module: () => import("./pages/jobs.js") },
  { page: "job", path: "/job/", owner: "jobs", module: () => import("./pages/job.js") },
  { page: "quarantine", path: "/quarantine", name: "Quarantine", key: "q", module: () => import("./pages/quarantine.js") },
  { page: "schedules", path: "/schedules", name: "Schedules", key: "r", module: () => import("./pages/schedules.js") },
  { page: "broker", path: "/broker", name: "Broker", key: "b", module: () => import("./pages/broker.js") },
];

const prefixed = (pathname) =>
  ROUTES.find(({ path }) => path.endsWith("/") && path !== "/" && pathname.startsWith(path));

/** The address of a URL, or null if it is not of a page. */
export function addressOf({ pathname, search }) {
  const query = Object.fromEntries(new URLSearchParams(search));
  const exact = ROUTES.find(({ path }) => path === pathname);
  if (exact) return { page: exact.page, id: "", query };
  const route = prefixed(pathname), rest = route && pathname.slice(route.path.length);
  if (!rest || rest.includes("/")) return null;
  try {
    return { page: route.page, id: decodeURIComponent(rest), query };
  } catch {
    return null;
  }
}

export const routeOf = (page) => ROUTES.find((each) => each.page === page);
/** The route of the list that a page belongs to. */
export const ownerOf = (page) => { const route = routeOf(page); return route?.owner ? routeOf(route.owner) : route; };

/** True for names that a browser takes for folders of an address, in every spelling: it cannot ask for them. */
export const isFolder = (name) => name === "." || name === "..";

export const hrefOf = (page, id = "", query = {}) => {
  if (page === "service" && isFolder(id)) return hrefOf("services", "", { text: id });
  const fields = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const path = routeOf(page)?.path ?? `/${page}${id ? "/" : ""}`;
  return `${path}${id === "" ? "" : encodeURIComponent(id)}${fields.length ? `?${new URLSearchParams(fields)}` : ""}`;
};
