// The console's icons: strokes on a grid of 20 by 20, drawn for it.

import { s } from "./dom.js";

const PATHS = {
  overview: "M3 11l7-7 7 7 M5 9.5V16.5h10V9.5",
  topics: "M3 5.5h14 M3 10h14 M3 14.5h9",
  groups: "M7 9a2.5 2.5 0 1 0 0-5a2.5 2.5 0 0 0 0 5z M2.5 16c0-2.8 2-4.5 4.5-4.5s4.5 1.7 4.5 4.5 M13 9.2a2.2 2.2 0 1 0-.6-4.3 M13.5 11.7c2.3.1 4 1.8 4 4.3",
  cluster: "M10 3.5l6 3.4v6.2l-6 3.4l-6-3.4V6.900z M4 6.900l6 3.200l6-3.200 M10 10.100V16.500",
  transactions: "M4 7h11 M12 4l3 3l-3 3 M16 13H5 M8 10l-3 3l3 3",
  pipelines: "M3 5h4v4H3z M13 11h4v4h-4z M7 7h3.500a1.500 1.500 0 0 1 1.500 1.500V11.500a1.500 1.500 0 0 0 1.500 1.500",
  clients: "M3.500 4.500h13v8.500h-13z M7.500 16.500h5 M10 13v3.500",
  devices: "M10 15.500v-5 M7.500 16.500h5 M7 8a4 4 0 0 1 6 0 M4.500 5.500a8 8 0 0 1 11 0",
  access: "M5.500 9h9v7.500h-9z M7.500 9V6.500a2.500 2.500 0 0 1 5 0V9 M10 12v1.500",
  learn: "M10 4.500L2.500 8L10 11.500L17.500 8z M5.500 9.800V13.500c2.500 2 6.500 2 9 0V9.800",
  sun: "M10 13.500a3.500 3.500 0 1 0 0-7a3.500 3.500 0 0 0 0 7z M10 1.800v1.700 M10 16.500v1.700 M1.800 10h1.700 M16.500 10h1.700 M4.200 4.200l1.200 1.200 M14.600 14.600l1.200 1.200 M4.200 15.800l1.200-1.200 M14.600 5.400l1.200-1.200",
  moon: "M16.500 11.500A7 7 0 0 1 8.500 3.500a7 7 0 1 0 8 8z",
  monitor: "M3 4.500h14v9H3z M7 16.500h6 M10 13.500v3",
  menu: "M3 5.500h14 M3 10h14 M3 14.500h14",
  close: "M5 5l10 10 M15 5L5 15",
  search: "M8.800 14.200a5.400 5.400 0 1 0 0-10.800a5.400 5.400 0 0 0 0 10.800z M13 13l4 4",
  up: "M10 16V4 M5 9l5-5l5 5",
  down: "M10 4v12 M5 11l5 5l5-5",
  left: "M12 4.500L6.500 10l5.500 5.500",
  right: "M8 4.500L13.500 10L8 15.500",
  copy: "M7 7h9v9H7z M4 13V4h9",
  link: "M8.500 11.500l3-3 M7.500 9L5.300 11.200a2.500 2.500 0 0 0 3.500 3.500L11 12.500 M12.500 11l2.200-2.200a2.500 2.500 0 0 0-3.500-3.500L9 7.500",
  warning: "M10 3.500l7.500 13h-15z M10 8.500v3.500 M10 14.200v.1",
  check: "M4 10.500l4 4l8-9",
  info: "M10 17a7 7 0 1 0 0-14a7 7 0 0 0 0 14z M10 9v4.500 M10 6.500v.1",
  play: "M6 4l10 6l-10 6z",
  pause: "M7 4.500v11 M13 4.500v11",
  plus: "M10 4v12 M4 10h12",
  logout: "M8 4H4v12h4 M8 10h9 M13.500 6.500L17 10l-3.500 3.500",
  refresh: "M15.500 7.500A6 6 0 1 0 16 10.500 M16 4v3.800h-3.800",
};

/** An icon for the eye; whoever listens hears the label of what it stands in. */
export function icon(name) {
  const picture = s("svg.icon", { viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" });
  picture.append(s("path", { d: PATHS[name] ?? "" }));
  return picture;
}

/** Moldau's mark: two waves of a river. */
export function mark() {
  const picture = s("svg.mark", { viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" });
  picture.append(
    s("path", { d: "M2 9c4-5 6-5 10 0s6 5 10 0" }),
    s("path.second", { d: "M2 16c4-5 6-5 10 0s6 5 10 0" }),
  );
  return picture;
}
