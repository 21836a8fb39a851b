// Addresses and pages: every page has an address, and every address works when it is opened afresh.

/** A route is a pattern like /topics/{topic}/records and the page it shows. */
export function compile(pattern) {
  const names = [];
  const source = pattern.replace(/\{(\w+)\}/g, (_, name) => {
    names.push(name);
    return "([^/]+)";
  });
  return { pattern, names, match: new RegExp(`^${source}/?$`) };
}

export class Router {
  /** routes: [{pattern, page}], show: (page, location) => void */
  constructor(routes, show, unknown) {
    this.routes = routes.map((route) => ({ ...route, ...compile(route.pattern) }));
    this.show = show;
    this.unknown = unknown;
    window.addEventListener("popstate", () => this.render());
    document.addEventListener("click", (event) => this.follow(event));
  }

  /** Links of ours change the page without a reload; all other clicks are the browser's. */
  follow(event) {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest?.("a[href]");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname.startsWith("/api/")) return;
    if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
    event.preventDefault();
    this.go(link.pathname + link.search + link.hash);
  }

  go(url, { replace = false } = {}) {
    history[replace ? "replaceState" : "pushState"](null, "", url);
    this.render();
  }

  render() {
    const route = this.routes.find((each) => each.match.test(location.pathname));
    const found = route?.match.exec(location.pathname);
    const params = {};
    try {
      route?.names.forEach((name, index) => { params[name] = decodeURIComponent(found[index + 1]); });
    } catch {
      this.show(this.unknown, { params: {}, query: new URLSearchParams() });
      return;
    }
    this.show(route?.page ?? this.unknown, { params, query: new URLSearchParams(location.search) });
  }
}

/** The address of something of ours, its parts escaped: link("topics", name, "records"). */
export function link(...parts) {
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

/** Change the query of this page without a new page: what is filtered and sorted belongs to the address. */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === "" || value === false) query.delete(name);
    else query.set(name, String(value));
  }
  const search = query.toString();
  history.replaceState(null, "", location.pathname + (search ? `?${search}` : "") + location.hash);
  return query;
}
