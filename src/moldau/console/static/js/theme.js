// Light, dark, or as the system has it.

import { h, replace } from "./dom.js";
import { icon } from "./icons.js";

const KEY = "moldau.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const ICON = { system: "monitor", light: "sun", dark: "moon" };

function stored() {
  try {
    return localStorage.getItem(KEY) in NEXT ? localStorage.getItem(KEY) : "system";
  } catch {
    return "system"; // no storage: the system decides
  }
}

function apply(theme) {
  if (theme === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
}

export function themeSwitch() {
  let theme = stored();
  const button = h("button.icon-button", { type: "button" });
  const show = () => {
    apply(theme);
    const label = `Colours: ${theme === "system" ? "as the system" : theme}. Change to ${NEXT[theme]}.`;
    button.setAttribute("aria-label", label);
    button.title = label;
    replace(button, icon(ICON[theme]));
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    try {
      localStorage.setItem(KEY, theme);
    } catch { /* no storage: the choice lasts as long as the page */ }
    show();
  });
  show();
  return button;
}

apply(stored());
