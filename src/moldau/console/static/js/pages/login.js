// Login with the cluster's own credentials. They stay in the console's memory, as long as the session.

import { post } from "../api.js";
import { errorNotice, words } from "../components.js";
import { append, h, replace } from "../dom.js";
import { field, select } from "../dialog.js";
import { mark } from "../icons.js";

/** Only paths of ours: an address with a host in it is somebody else's. */
export function safeTarget(text) {
  return text && /^\/(?![/\\])/.test(text) && !text.startsWith("/login") && !text.startsWith("/api/") ? text : "/";
}

export async function loginPage({ root, query, session, crumbs, go, setSession }) {
  const target = safeTarget(query.get("to"));
  crumbs([["Log in"]]);
  if (!session.login_required || session.user) {
    go(target, { replace: true });
    return;
  }
  const problem = h("div");
  const submit = h("button.primary", { type: "submit" }, "Log in");
  const form = h("form.card.login",
    h("div.row", mark(), h("h1", "Log in")),
    h("p.muted", "With your user of the cluster ", h("span.mono", session.bootstrap), ". You see and do what its ACLs let you."),
    field("User", h("input", { name: "user", required: true, autocomplete: "username", spellcheck: "false", autocapitalize: "none" })),
    field("Password", h("input", { name: "password", type: "password", required: true, autocomplete: "current-password" })),
    session.mechanisms?.length > 1 && field("Mechanism", select("mechanism", session.mechanisms, session.mechanisms[0])),
    problem, submit,
    h("p.muted.small", words("The password is kept in the console's memory until you log out. `moldau user add NAME` adds a user.")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const data = new FormData(form);
    submit.disabled = true;
    replace(problem);
    try {
      setSession(await post("/api/login", { user: data.get("user"), password: data.get("password"), mechanism: data.get("mechanism") ?? session.mechanisms?.[0] }));
      go(target, { replace: true });
    } catch (error) {
      const wrong = error.code === "LOGIN_FAILED" ? { message: "User or password is wrong.", hint: error.message } : error;
      replace(problem, errorNotice(wrong));
      form.elements.password.value = "";
      form.elements.password.focus();
    } finally {
      submit.disabled = false;
    }
  });
  append(root, [form]);
  form.elements.user.focus();
}
