// The REST door. Whoever is not paired is sent to the pairing view; every POST carries a key, so that a repeated one
// (a flaky train, a double tap) happens once.

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? body?.title ?? `the server answered ${status}`);
    this.status = status;
    this.body = body;
  }
}

export class Offline extends Error {}

export async function call(method, path, body, { key } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method === "POST") headers["idempotency-key"] = key ?? newKey();
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new Offline("the server cannot be reached");
  }
  const text = await answer.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    found = { detail: text.slice(0, 300) };
  }
  if (answer.ok) return found;
  if (answer.status === 401 && path !== "/api/pair") dispatchEvent(new CustomEvent("stagedoor:unpaired"));
  throw new Problem(answer.status, found);
}

export const get = (path) => call("GET", path);
export const post = (path, body, options) => call("POST", path, body ?? {}, options);

export function newKey() {
  return crypto.randomUUID
    ? crypto.randomUUID()
    : [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

export function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

export function socketUrl(path) {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;
}
