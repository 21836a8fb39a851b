// The start of everything: asks for the session, draws the frame, and shows the page of the address.

import { ApiError, get, post, useToken, whenAnswered, whenLoginIsNeeded } from "./api.js";
import { append, h, replace, set } from "./dom.js";
import { errorNotice, notice, words } from "./components.js";
import * as format from "./format.js";
import { icon, mark } from "./icons.js";
import { live } from "./live.js";
import { Router } from "./router.js";
import { themeSwitch } from "./theme.js";
import { tellError, toastRegion } from "./toast.js";

const PAGES = [
  ["overview", "Overview", "/"],
  ["topics", "Topics", "/topics"],
  ["groups", "Groups", "/groups"],
  ["cluster", "Cluster", "/cluster"],
  ["transactions", "Transactions", "/transactions"],
  ["pipelines", "Pipelines", "/pipelines"],
  ["clients", "Clients", "/clients"],
  ["devices", "Devices", "/devices"],
  ["access", "Access", "/access"],
  ["learn", "Learn", "/learn"],
];
const KEYS = { o: "/", a: "/access", t: "/topics", g: "/groups", c: "/cluster", x: "/transactions", p: "/pipelines", l: "/learn" };

/** A page whose module is loaded when it is shown first. */
function lazy(module, name) {
  return async (context) => {
    let loaded;
    try {
      loaded = await import(`./pages/${module}.js`);
    } catch {
      throw new ApiError("The page could not be loaded.", { hint: "Is `moldau console` still running? Load the page again if it was updated." });
    }
    if (!context.signal.aborted) await loaded[name](context);
  };
}

const loginPage = lazy("login", "loginPage");

const ROUTES = [
  { pattern: "/", page: lazy("overview", "overviewPage") },
  { pattern: "/topics", page: lazy("topics", "topicsPage") },
  { pattern: "/topics/{topic}", page: lazy("topic", "topicPage") },
  { pattern: "/topics/{topic}/records", page: lazy("records", "recordsPage") },
  { pattern: "/topics/{topic}/records/{partition}/{offset}", page: lazy("record", "recordPage") },
  { pattern: "/topics/{topic}/{tab}", page: lazy("topic", "topicPage") },
  { pattern: "/groups", page: lazy("groups", "groupsPage") },
  { pattern: "/groups/{group}", page: lazy("group", "groupPage") },
  { pattern: "/cluster", page: lazy("cluster", "clusterPage") },
  { pattern: "/brokers/{broker}", page: lazy("cluster", "brokerPage") },
  { pattern: "/transactions", page: lazy("transactions", "transactionsPage") },
  { pattern: "/transactions/{id}", page: lazy("transactions", "transactionPage") },
  { pattern: "/pipelines", page: lazy("pipelines", "pipelinesPage") },
  { pattern: "/clients", page: lazy("clients", "clientsPage") },
  { pattern: "/clients/{instance}", page: lazy("clients", "clientPage") },
  { pattern: "/devices", page: lazy("gateways", "gatewaysPage") },
  { pattern: "/access", page: lazy("access", "accessPage") },
  { pattern: "/access/{tab}", page: lazy("access", "accessPage") },
  { pattern: "/learn", page: lazy("learn", "learnPage") },
  { pattern: "/login", page: loginPage },
];

function unknownPage({ root, crumbs }) {
  crumbs([["Not found"]]);
  append(root, [h("h1", "There is no such page"), h("p", "The address is not one of the console's. ", h("a", { href: "/" }, "Go to the overview"), ".")]);
}

class App {
  constructor() {
    this.session = null;
    this.leaving = new AbortController();
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.age = h("div.age");
    this.crumbBox = h("nav.crumbs", { "aria-label": "Where you are" });
    this.liveSign = h("span.live", { hidden: true, role: "status" });
    this.side = h("nav.side", { id: "side", "aria-label": "Pages" });
    this.userBox = h("div.side-foot");
    this.router = new Router(ROUTES, (page, place) => this.show(page, place), unknownPage);
    whenLoginIsNeeded(() => this.askAgain());
    whenAnswered((data) => this.tellAge(data));
  }

  async start() {
    this.draw();
    await this.readSession();
    this.router.render();
  }

  async readSession() {
    try {
      this.setSession(await get("/api/session"));
    } catch (error) {
      replace(this.main, errorNotice(error));
      throw error;
    }
  }

  setSession(session) {
    this.session = session;
    useToken(session.token);
    const leave = async () => {
      await post("/api/logout").catch(tellError);
      await this.readSession();
      this.toLogin();
    };
    replace(this.userBox,
      session.read_only && h("div", h("span.badge.warn", "read-only")),
      session.user && h("div.row", h("span", { class: "mono" }, session.user), h("button.icon-button", { type: "button", "aria-label": "Log out", title: "Log out", onclick: leave }, icon("logout"))),
      h("div.mono", { title: session.bootstrap }, serverWords(session.bootstrap)), h("div", `Moldau ${session.version}`));
  }

  /** A request or a stream was refused: the session may have ended, or another tab has begun one. */
  async askAgain() {
    if (this.asking) return;
    this.asking = true;
    try {
      await this.readSession();
    } catch (error) {
      console.warn(error);
      return;
    } finally {
      this.asking = false;
    }
    if (this.session.login_required && !this.session.user) this.toLogin();
  }

  toLogin() {
    if (location.pathname === "/login") return;
    this.router.go(`/login?to=${encodeURIComponent(location.pathname + location.search)}`, { replace: true });
  }

  draw() {
    const menu = h("button.icon-button.menu-button", { type: "button", "aria-label": "Menu", "aria-controls": "side", "aria-expanded": "false" }, icon("menu"));
    menu.addEventListener("click", () => {
      menu.setAttribute("aria-expanded", String(this.side.classList.toggle("open")));
    });
    this.menu = menu;
    append(this.side, [
      h("a.brand", { href: "/" }, mark(), "Moldau"),
      h("ul", PAGES.map(([name, label, href]) => h("li", h("a", { href, data: { page: name } }, icon(name), label)))),
      this.userBox,
    ]);
    append(document.body, [
      h("a.skip.button", { href: "#main", onclick: (event) => { event.preventDefault(); this.main.focus(); } }, "Skip to the content"),
      h("div.frame", this.side, h("header.top", menu, this.crumbBox, this.liveSign, themeSwitch()), this.main),
      toastRegion(),
    ]);
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** g then a letter goes to a page; / goes to the filter. Not while somebody writes. */
  onKey(event) {
    if (event.key === "Escape" && this.side.classList.contains("open")) this.closeMenu();
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    const waiting = this.goKey && event.timeStamp - this.goKey < 1500;
    this.goKey = null;
    if (waiting && KEYS[event.key]) {
      event.preventDefault();
      this.router.go(KEYS[event.key]);
    } else if (event.key === "g") this.goKey = event.timeStamp;
    else if (event.key === "/") {
      const filter = this.main.querySelector("[data-filter]");
      if (filter) {
        event.preventDefault();
        filter.focus();
      }
    }
  }

  closeMenu() {
    this.side.classList.remove("open");
    this.menu.setAttribute("aria-expanded", "false");
  }

  async show(page, { params, query }) {
    if (this.session?.login_required && !this.session.user && page !== loginPage) {
      this.toLogin();
      return;
    }
    this.leaving.abort();
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    this.closeMenu();
    this.liveSign.hidden = true;
    const root = h("div.stack", { style: { gap: "var(--space-4)" } });
    this.tellAge({});
    replace(this.main, this.age, root);
    window.scrollTo(0, 0);
    this.markPage();
    const context = {
      root, params, query, signal, session: this.session,
      crumbs: (items) => this.crumbs(items),
      go: (url, options) => this.router.go(url, options),
      live: (url, options) => this.live(url, signal, options),
      every: (seconds, action) => every(seconds, action, signal),
      setSession: (session) => this.setSession(session),
      may: !this.session?.read_only,
    };
    try {
      await page(context);
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return;
      console.warn(error);
      replace(root, error.status === 404 ? notice("bad", error.message) : errorNotice(error),
        h("div", h("button", { type: "button", onclick: () => this.router.render() }, icon("refresh"), "Try again")));
    }
    if (!signal.aborted && document.activeElement === document.body) this.main.focus({ preventScroll: true });
  }

  /** Say once, above every page, that the cluster cannot be read and what is shown is old. */
  tellAge({ read_error: problem = null, read_ms: at = null }) {
    if (problem === this.problem) return; // screen readers say what changed
    this.problem = problem;
    const since = at ? `What is shown was read at ${format.clock(at)}.` : "What is shown was read before.";
    replace(this.age, problem && notice("bad", "The cluster cannot be read", [words(problem), h("div", since)]));
  }

  markPage() {
    const first = location.pathname.split("/")[1] || "overview";
    const name = first === "brokers" ? "cluster" : first;
    for (const anchor of this.side.querySelectorAll("a[data-page]")) {
      set(anchor, { "aria-current": anchor.dataset.page === name ? "page" : null });
    }
  }

  /** [[text, href], …, [text]]: the last is this page. */
  crumbs(items) {
    document.title = `${items.map(([text]) => text).reverse().join(" · ")} · Moldau`;
    replace(this.crumbBox, items.map(([text, href], at) => [
      at > 0 && h("span", { "aria-hidden": "true" }, "/"),
      href ? h("a", { href }, text) : h("span.now", { "aria-current": "page" }, text),
    ]));
  }

  live(url, signal, { on, failed = tellError }) {
    const states = { on: "live", off: "connecting …", paused: "paused" };
    this.liveSign.hidden = false;
    this.liveSign.textContent = "connecting …";
    const status = (state) => {
      if (signal.aborted || this.liveSign.textContent === states[state]) return;
      this.liveSign.className = `live ${state}`;
      this.liveSign.textContent = states[state];
    };
    const aged = Object.entries(on).map(([name, action]) => [name, (data) => {
      if (data?.read_error !== undefined) this.tellAge(data);
      action(data);
    }]);
    return live(url, { on: Object.fromEntries(aged), signal, status, failed, refused: () => this.askAgain() });
  }
}

/** The first address; the others are in the title. */
function serverWords(bootstrap) {
  const [first, ...others] = bootstrap.split(",");
  return others.length ? `${first} and ${others.length} more` : first;
}

/** Repeat something while the page is shown and can be seen. */
function every(seconds, action, signal) {
  let busy = false;
  const timer = setInterval(async () => {
    if (document.hidden || busy) return;
    busy = true;
    try {
      await action();
    } finally {
      busy = false;
    }
  }, seconds * 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

new App().start().catch((error) => console.warn(error));
