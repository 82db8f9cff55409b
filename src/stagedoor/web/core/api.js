// The REST door. A browser that is not paired is sent to the pairing view; every POST carries a key, so that a repeated
// one (a flaky train, a double tap) happens once.

export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{ title?: string, detail?: string } | null} body
   */
  constructor(status, body) {
    super(body?.detail ?? body?.title ?? `the server answered ${status}`);
    this.status = status;
  }
}

export class Offline extends Error {}

/** @param {unknown} fault */
export const messageOf = (fault) => (fault instanceof Error ? fault.message : String(fault));

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {{ key?: string }} [options]
 * @returns {Promise<any>}
 */
export async function call(method, path, body, { key } = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method === "POST") headers["idempotency-key"] = key ?? newKey();
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new Offline("the server cannot be reached");
  }
  const result = parse(await response.text());
  if (response.ok) return result;
  if (response.status === 401 && path !== "/api/pair") dispatchEvent(new CustomEvent("stagedoor:unpaired"));
  throw new Problem(response.status, result);
}

/** @param {string} text */
function parse(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return { detail: text.slice(0, 300) };
  }
}

/** @param {string} path */
export const get = (path) => call("GET", path);

/**
 * @param {string} path
 * @param {unknown} [body]
 * @param {{ key?: string }} [options]
 */
export const post = (path, body, options) => call("POST", path, body ?? {}, options);

/** @param {string} id */
export const sessionPath = (id) => `/api/sessions/${encodeURIComponent(id)}`;

export function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID(); // only over HTTPS or from this machine
  const bytes = [...crypto.getRandomValues(new Uint8Array(16))];
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {Record<string, string | number | undefined>} values */
export function query(values) {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return pairs.length ? `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}` : "";
}

/** @param {string} path */
export function socketUrl(path) {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;
}
