// Being told: this device by Web Push, also while the page is closed; and the other receivers of the server.

import { call, get, post } from "../core/api.js";
import { button, h, icon, replace, toast, tried } from "../core/dom.js";
import { store } from "../core/store.js";
import { ago, plain } from "../core/text.js";

const KINDS = { question: "Needs approval", done: "Done", failed: "Failed" };

// What is missing in this browser, and how to get it; nothing where it can be told.
function missing() {
  if (!isSecureContext) return "Notifications need HTTPS: see docs/reach.md.";
  if (globalThis.Notification?.permission === "denied") return "This browser blocks notifications of this page.";
  if (globalThis.PushManager && navigator.serviceWorker) return "";
  return "This browser has no notifications. On an iPhone, add the page to the Home Screen first.";
}

/** @param {{ events?: string[], content?: boolean }} [choice] */
export async function turnOn(choice) {
  if ((await Notification.requestPermission()) !== "granted")
    throw new Error("The browser does not allow notifications");
  const { pushManager } = await navigator.serviceWorker.ready;
  const { publicKey } = await get("/api/push");
  const options = { userVisibleOnly: true, applicationServerKey: publicKey };
  const subscription = await pushManager.subscribe(options).catch(async () => {
    await (await pushManager.getSubscription())?.unsubscribe(); // of an earlier key of the server
    return pushManager.subscribe(options);
  });
  store.pushed = true;
  return post("/api/push", { ...subscription.toJSON(), ...choice });
}

async function turnOff() {
  const { pushManager } = await navigator.serviceWorker.ready;
  await (await pushManager.getSubscription())?.unsubscribe();
  store.pushed = false;
  await call("DELETE", "/api/push");
}

// The server may have a new key since this browser subscribed.
export async function renew() {
  if (missing() || Notification.permission !== "granted") return;
  const { pushManager } = await navigator.serviceWorker.ready;
  const subscription = await pushManager.getSubscription();
  if (!subscription) return;
  const { publicKey, subscribed, events, content } = await get("/api/push");
  const key = String.fromCharCode(...new Uint8Array(subscription.options.applicationServerKey ?? new ArrayBuffer(0)));
  const isSame = btoa(key).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") === publicKey;
  store.pushed = subscribed && isSame;
  if (!isSame) await turnOn({ events, content });
}

// The browser's permission is requested only by somebody who wants it.
export function notifyButton() {
  if (missing() || Notification.permission !== "default") return null;
  const request = async () => {
    ask.remove();
    await turnOn();
    toast("You will be notified, also while this page is closed");
  };
  const ask = button("Notify me", request, { kind: "plain", title: "When an agent asks, is done or has failed" });
  return ask;
}

/**
 * @param {HTMLElement} body
 * @param {() => void} again
 */
export async function fillNotifications(body, again) {
  const isAdmin = store.me?.scopes.includes("admin");
  /** @type {[Page.Push, { receivers: Page.Receiver[] }]} */
  const [push, { receivers }] = await Promise.all([
    get("/api/push"),
    isAdmin ? get("/api/receivers") : { receivers: [] },
  ]);
  replace(body, device(push, again), isAdmin && [list(receivers, again), addForm(again)]);
}

/**
 * @param {Page.Push} push
 * @param {() => void} again
 */
function device({ subscribed, events, content, last }, again) {
  const problem = missing();
  if (problem && !subscribed) return h("p", { class: "quiet" }, problem);
  const choices = Object.entries(KINDS).map(([value, label]) => check(label, events.includes(value), value));
  const details = check("Show what it is about", content);
  const on = check("Notify this device, also while the page is closed", subscribed);
  const box = h("div", { class: "notify" }, on, subscribed && [choices, details]);
  const change = () =>
    tried(async () => {
      const chosen = choices.map((label) => input(label)).filter(({ checked }) => checked);
      const wanted = chosen.map(({ value }) => value);
      if (input(on).checked && wanted.length) await turnOn({ events: wanted, content: input(details).checked });
      else await turnOff();
    }).then(again);
  box.addEventListener("change", change);
  return [box, subscribed && h("div", { class: "row-actions" }, testButton("/api/push/test", again), result(last))];
}

/** @param {HTMLElement} label */
const input = (label) => /** @type {HTMLInputElement} */ (label.querySelector("input"));

/**
 * @param {string} label
 * @param {boolean} checked
 */
function check(label, checked, value = "") {
  return h("label", { class: "check" }, h("input", { type: "checkbox", checked, value }), label);
}

/**
 * @param {string} path
 * @param {() => void} again
 */
function testButton(path, again) {
  const send = async () => {
    const { problem } = await post(path);
    toast(problem ? `Not delivered: ${problem}` : "Delivered", problem && "error");
    again();
  };
  return button("Send a test", send, { kind: "plain" });
}

/** @param {Page.Delivery | null} last */
function result(last) {
  if (!last) return h("span", { class: "quiet" }, "nothing sent yet");
  const when = ago(last.at).replace(/\d.*/, "$& ago");
  return h(
    "span",
    { class: last.problem ? "bad" : "quiet" },
    last.problem ? `${last.problem}, ${when}` : `sent ${when}`,
  );
}

/**
 * @param {Page.Receiver[]} receivers
 * @param {() => void} again
 */
function list(receivers, again) {
  const row = (/** @type {Page.Receiver} */ { id, kind, origin, name, last }) => {
    const path = `/api/receivers/${encodeURIComponent(id)}`;
    const remove = async () => {
      await call("DELETE", path);
      again();
    };
    return h(
      "li",
      {},
      icon(kind === "push" ? "device" : "network"),
      h("b", {}, plain(name)),
      h("span", { class: "quiet" }, { push: "Web Push", webhook: "webhook", ntfy: "ntfy" }[kind]),
      result(last),
      testButton(`${path}/test`, again),
      origin === "config"
        ? h("span", { class: "chip" }, "config.yaml")
        : button("", remove, { kind: "plain", glyph: "cross", title: `Remove ${plain(name)}` }),
    );
  };
  return h("ul", { class: "rows" }, receivers.map(row));
}

/** @param {() => void} again */
function addForm(again) {
  const options = [
    ["ntfy", "ntfy topic"],
    ["webhook", "Webhook"],
  ].map(([value, label]) => h("option", { value }, label));
  const kind = h("select", { "aria-label": "Kind of receiver" }, options);
  const url = h("input", {
    type: "text",
    inputmode: "url",
    placeholder: "https://ntfy.sh/…",
    "aria-label": "Address",
    required: true,
  });
  const token = h("input", {
    type: "text",
    placeholder: "Access token",
    "aria-label": "Access token or secret",
    autocomplete: "off",
  });
  const place = h("p", { class: "code-big", hidden: true });
  kind.addEventListener("change", () => {
    token.placeholder = kind.value === "ntfy" ? "Access token" : "Secret (made if empty)";
  });
  const add = async () => {
    const secret = { [kind.value === "ntfy" ? "token" : "secret"]: token.value };
    const added = await post("/api/receivers", { kind: kind.value, url: url.value, ...secret });
    if (!added.secret) return again();
    // Shown this once: whoever checks the signatures needs it.
    place.hidden = false;
    return replace(place, "Signing secret: ", h("code", {}, added.secret));
  };
  const form = h("div", { class: "row-actions" }, kind, url, token, button("Add", add, { glyph: "add" }));
  return [form, place];
}
