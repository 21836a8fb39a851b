// The dialogs of users: add one, give a new password, remove one. A password goes to the server once and is never shown.

import { patch, path, post, remove } from "../api.js";
import { h } from "../dom.js";
import { field } from "../dialog.js";
import { planDialog } from "../plan.js";

const shown = (answer) => answer.changes.map((each) => h("p", h("strong", each.user), ` ${each.effect}.`));

function passwordFields() {
  const input = (name) => h("input", { name, type: "password", autocomplete: "new-password", maxlength: "500" });
  return h("div.fields", field("Password", input("password")), field("The same again", input("again")));
}

function passwordOf(data) {
  const password = data.get("password");
  if (!password) throw new Error("Write a password.");
  if (password !== data.get("again")) throw new Error("The two passwords differ.");
  return { password };
}

export function addUser() {
  return planDialog({
    title: "Add a user", wide: false,
    fields: () => [field("Name", h("input", { name: "name", required: true, maxlength: "500", autocomplete: "off", spellcheck: "false" })), passwordFields()],
    bodyOf: (data) => {
      passwordOf(data);
      return { name: data.get("name").trim() };
    },
    secretOf: passwordOf, send: (body) => post("/api/users", body), shown, action: () => "Add the user",
  });
}

export function newPassword(user) {
  return planDialog({
    title: `New password for ${user}`, wide: false, fields: passwordFields,
    bodyOf: (data) => {
      passwordOf(data);
      return {};
    },
    secretOf: passwordOf, send: (body) => patch(path("/api/users/{user}", { user }), body), shown, action: () => "Set the password",
  });
}

export async function removeUser(user) {
  const url = path("/api/users/{user}", { user });
  return planDialog({
    title: `Remove ${user}`, wide: false, danger: true, planned: await remove(url, {}),
    bodyOf: () => ({}), send: (body) => remove(url, body), shown, action: () => "Remove the user",
  });
}
