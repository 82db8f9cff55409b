// Where we are is in the address (#/…); which view that is, stands in one table.

import { messageOf, Problem } from "./core/api.js";
import { announce, button, h, icon, replace, toast } from "./core/dom.js";
import { store } from "./core/store.js";
import { firstLine } from "./core/text.js";
import "./parts/compare-view.js";
import "./parts/history-view.js";
import "./parts/inbox-view.js";
import "./parts/new-session.js";
import { renew } from "./parts/notify.js";
import "./parts/overview-view.js";
import "./parts/pair-view.js";
import { showKeys, showPalette } from "./parts/palette.js";
import "./parts/session-list.js";
import "./parts/session-view.js";

/** @param {string} id */
const place = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const main = place("main");
const side = place("side");
const nav = place("nav");
const banner = place("banner");
const badge = h("span", { class: "badge", hidden: true });
const inboxLink = navLink("#/inbox", "inbox", "Inbox", badge);
const FIELDS = "input,textarea,select";
const LOOK = 20000;
let wasOnline = false;

/** @type {[RegExp, (name: string) => HTMLElement][]} */
const VIEWS = [
  [/^#\/s\/([^/]+)$/, (id) => show("session-view", { session: decodeURIComponent(id) })],
  [/^#\/new$/, () => show("new-session")],
  [/^#\/inbox$/, () => show("inbox-view")],
  [/^#\/compare\/(.+)$/, (group) => show("compare-view", { group: decodeURIComponent(group) })],
  [/^#\/overview$/, () => show("overview-view")],
  [/^#\/history$/, () => show("history-view")],
];

/**
 * @param {string} tag
 * @param {object} [properties]
 */
function show(tag, properties = {}) {
  const element = document.createElement(tag);
  replace(main, element);
  return Object.assign(element, properties);
}

function route() {
  const hash = location.hash || "#/";
  main.dataset.shows = hash;
  document.body.dataset.at = hash.split("/")[1] || "list";
  const current = hash.startsWith("#/s/") ? decodeURIComponent(hash.slice(4)) : "";
  Object.assign(side.querySelector("session-list") ?? {}, { current });
  for (const link of nav.querySelectorAll("a")) {
    if (link.getAttribute("href") === hash) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const [shape, showView] of VIEWS) {
    const match = hash.match(shape);
    if (!match) continue;
    focusOn(showView(match[1]));
    return;
  }
  const start = h("a", { class: "button primary", href: "#/new" }, icon("add"), "New session");
  const hint = h("p", {}, "Choose a session, or start one.");
  replace(main, h("div", { class: "empty desk-only" }, h("h2", {}, "Stagedoor"), hint, start));
}

/**
 * A screen reader begins to read where the new view begins; a view may have put the focus somewhere better itself.
 * @param {HTMLElement} view
 */
function focusOn(view) {
  const active = document.activeElement;
  if (!view.contains(active) && !active?.closest("#side")) main.focus({ preventScroll: true });
}

/**
 * @param {string} href
 * @param {string} glyph
 * @param {string} label
 * @param {Page.Child} [extra]
 */
function navLink(href, glyph, label, extra) {
  return h("a", { href, "aria-label": label }, icon(glyph), h("span", {}, label), extra);
}

function questionsChanged() {
  const count = store.questions.size;
  badge.textContent = String(count);
  badge.hidden = !count;
  inboxLink.setAttribute("aria-label", count ? `Inbox, ${count} waiting` : "Inbox");
  document.title = count ? `(${count}) Stagedoor` : "Stagedoor";
  for (const question of store.newQuestions) {
    const { target, nativeName } = question.request;
    const words = `${question.agent} asks: ${firstLine(target || nativeName, 120)}`;
    announce(words);
    const isMissed = document.hidden && !store.pushed;
    if (isMissed && globalThis.Notification?.permission === "granted") notify(words, question);
  }
  store.newQuestions = [];
}

/**
 * By the service worker: phones allow nothing else.
 * @param {string} body
 * @param {Page.Question} question
 */
async function notify(body, { id, sessionId }) {
  const worker = await navigator.serviceWorker?.ready;
  const icon = "/static/icons/any-192.png";
  worker?.showNotification("Stagedoor", { body, tag: id, icon, data: `#/s/${sessionId}` });
}

function linkChanged() {
  const unsent = store.outbox.length;
  const messages = unsent === 1 ? "1 message" : `${unsent} messages`;
  let words = "";
  if (!store.online) words = "Offline. Reconnecting…";
  if (words && unsent) words += ` ${messages} will be sent when you are online.`;
  if (banner.textContent !== words) banner.textContent = words;
  banner.hidden = !words;
  if (store.online && !wasOnline && main.querySelector(".unloaded")) route();
  wasOnline = store.online;
}

/**
 * The desk's keys: j k through the sessions, y n a for the question on screen, m to write, / to search. Never while
 * typing; Escape ends that.
 * @param {KeyboardEvent} event
 */
function keyPressed(event) {
  const target = /** @type {Element} */ (event.target);
  if (event.key === "Escape" && target.closest(FIELDS) && !target.closest("dialog")) {
    main.focus({ preventScroll: true });
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key === "k" && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    if (store.loaded) showPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest(`${FIELDS},dialog`)) return;
  if (pressKey(event.key, event.repeat)) event.preventDefault();
}

/**
 * @param {string} key
 * @param {boolean} repeated
 * @returns {boolean} whether the key means something
 */
function pressKey(key, repeated) {
  if (key === "j" || key === "k") openNeighbour(key === "j" ? 1 : -1);
  else if (key === "/") document.getElementById("search")?.focus();
  else if (key === "m") /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus();
  else if (key === "c") location.hash = "#/new";
  else if (key === "i") location.hash = "#/inbox";
  else if (key === "?") showKeys();
  else {
    const card = document.querySelector("#main .question:not(.closed)");
    if (!card || repeated || !["y", "n", "a"].includes(key)) return false;
    answerByKey(card, key);
  }
  return true;
}

/** @param {number} step */
function openNeighbour(step) {
  /** @type {HTMLElement[]} */
  const rows = [...document.querySelectorAll("a.session")].filter((row) => row instanceof HTMLElement);
  const at = rows.findIndex((row) => row.getAttribute("aria-current") === "page");
  rows[Math.min(Math.max(at + step, 0), rows.length - 1)]?.click();
}

/**
 * Looked at before it is answered: the first press shows which question is meant, the second answers it.
 * @param {Element} card
 * @param {string} key
 */
function answerByKey(card, key) {
  if (key === "a" || card.classList.contains("aimed")) {
    /** @type {HTMLElement | null} */ (card.querySelector(`[data-key="${key}"]`))?.click();
    return;
  }
  for (const other of document.querySelectorAll(".aimed")) other.classList.remove("aimed");
  card.classList.add("aimed");
  card.scrollIntoView({ block: "nearest" });
  announce(`Press ${key} again to ${key === "y" ? "allow" : "deny"}`);
}

function showPairing() {
  document.body.classList.add("unpaired");
  delete main.dataset.shows;
  show("pair-view");
}

async function start() {
  document.body.classList.remove("unpaired");
  const links = [navLink("#/new", "add", "New"), navLink("#/overview", "chart", "Overview")];
  replace(nav, navLink("#/", "list", "Sessions"), inboxLink, links);
  const add = h("a", { class: "button primary", href: "#/new" }, icon("add"), "New");
  replace(side, h("header", { class: "bar" }, h("h1", {}, "Sessions"), add), document.createElement("session-list"));
  try {
    await store.start();
    setInterval(() => document.hidden || store.loadMachines(), LOOK);
  } catch (fault) {
    if (fault instanceof Problem && fault.status === 401) showPairing();
    else {
      const again = button("Try again", () => location.reload());
      const title = h("h2", {}, "The server cannot be reached");
      replace(main, h("div", { class: "empty" }, title, h("p", {}, messageOf(fault)), again));
    }
    return;
  }
  renew().catch(() => {});
  // The user may have opened a view while this was loading: it, and what was typed, stays.
  if (main.dataset.shows !== (location.hash || "#/")) route();
}

store.listen("questions", questionsChanged);
store.listen("link", linkChanged);
store.listen("refused", () => toast(store.sendFailure, "error"));
addEventListener("hashchange", () => {
  if (location.hash.includes("pair=")) showPairing();
  else if (!document.body.classList.contains("unpaired")) route();
});
addEventListener("stagedoor:unpaired", showPairing);
addEventListener("stagedoor:paired", () => location.reload());
addEventListener("keydown", keyPressed);

const theme = localStorage.getItem("stagedoor-theme");
if (theme) document.documentElement.dataset.theme = theme;
if ("serviceWorker" in navigator) {
  navigator.serviceWorker.register("/sw.js").catch(() => {});
  navigator.serviceWorker.addEventListener("message", (event) => {
    location.hash = event.data; // a notification was tapped
  });
}
if (location.hash.includes("pair=")) showPairing();
else start();
