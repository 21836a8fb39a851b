// The one way to the server: JSON both ways, the session's token on whatever changes something, errors in words.

let token = null;
let onLogin = () => {};
let onAnswer = () => {};

export function useToken(value) {
  token = value;
}

/** What to do when the server asks for a login. */
export function whenLoginIsNeeded(action) {
  onLogin = action;
}

/** Who hears how old an answer is: those from the console's memory have `read_ms` and `read_error`. */
export function whenAnswered(action) {
  onAnswer = action;
}

export class ApiError extends Error {
  constructor(message, { status = 0, code = "", hint = "", column = null } = {}) {
    super(message);
    Object.assign(this, { status, code, hint, column });
  }
}

export function path(template, values = {}, query = {}) {
  const filled = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name]));
  const search = queryString(query);
  return search ? `${filled}?${search}` : filled;
}

export function queryString(query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) search.set(name, String(value));
  }
  return search.toString();
}

async function send(method, url, { body, signal } = {}) {
  const headers = { accept: "application/json" };
  if (method !== "GET" && token) headers["x-console-token"] = token;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url, {
      method, headers, signal, credentials: "same-origin", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The console does not answer.", { hint: "Is `moldau console` still running?" });
  }
  const data = await answer.json().catch(() => null);
  if (answer.ok) {
    if (data?.read_error !== undefined) onAnswer(data);
    return data;
  }
  const told = data?.error ?? {};
  const error = new ApiError(told.message || `The console answered ${answer.status}.`, { status: answer.status, code: told.code, hint: told.hint, column: told.column });
  if (told.code === "LOGIN_REQUIRED") onLogin();
  throw error;
}

/** Errors that pass by themselves: a leader or a coordinator is being chosen. */
const PASSING = new Set([
  "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_COORDINATOR",
  "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_CONTROLLER",
]);
const WAITS_MS = [300, 1000, 2500];

/** Ask; what only reads is asked again while a new leader is chosen. */
export async function get(url, options) {
  for (const wait of WAITS_MS) {
    try {
      return await send("GET", url, options);
    } catch (error) {
      if (!PASSING.has(error.code)) throw error;
      await new Promise((resolve) => { setTimeout(resolve, wait); });
    }
  }
  return send("GET", url, options);
}

export const post = (url, body, options) => send("POST", url, { body: body ?? {}, ...options });
export const patch = (url, body, options) => send("PATCH", url, { body, ...options });
export const remove = (url, body, options) => send("DELETE", url, { body, ...options });
