// Where we are is in the address (#/…); which view that is, stands in one table.

import { announce, h, icon, replace, toast } from "./core/dom.js";
import { Problem } from "./core/api.js";
import { store } from "./core/store.js";
import { firstLine } from "./core/text.js";
import "./parts/session-list.js";
import "./parts/session-view.js";
import "./parts/new-session.js";
import "./parts/inbox-view.js";
import "./parts/compare-view.js";
import "./parts/overview-view.js";
import "./parts/pair-view.js";

const main = document.getElementById("main");
const side = document.getElementById("side");
const nav = document.getElementById("nav");
const banner = document.getElementById("banner");
let badge;
let online = false;

const VIEWS = [
  [/^#\/s\/([^/]+)$/, (id) => view("session-view", { session: decodeURIComponent(id) })],
  [/^#\/new$/, () => view("new-session")],
  [/^#\/inbox$/, () => view("inbox-view")],
  [/^#\/compare\/(.+)$/, (group) => view("compare-view", { group: decodeURIComponent(group) })],
  [/^#\/overview$/, () => view("overview-view")],
];

function view(tag, properties = {}) {
  const element = document.createElement(tag);
  replace(main, element);
  return Object.assign(element, properties);
}

function route() {
  const hash = location.hash || "#/";
  main.dataset.shows = hash;
  document.body.dataset.at = hash.split("/")[1] || "list";
  const list = side.querySelector("session-list");
  if (list) list.current = hash.startsWith("#/s/") ? decodeURIComponent(hash.slice(4)) : "";
  for (const link of nav.querySelectorAll("a"))
    link.getAttribute("href") === hash
      ? link.setAttribute("aria-current", "page")
      : link.removeAttribute("aria-current");
  for (const [shape, show] of VIEWS) {
    const found = hash.match(shape);
    if (found) return arrive(show(...found.slice(1)));
  }
  replace(
    main,
    h(
      "div",
      { class: "empty desk-only" },
      h("h2", {}, "Stagedoor"),
      h("p", {}, "Choose a session, or start one."),
      h("a", { class: "button primary", href: "#/new" }, icon("add"), "New session"),
    ),
  );
  return undefined;
}

// A screen reader begins to read where the new view begins; a view may have put the focus somewhere better itself.
function arrive(shown) {
  if (!shown.contains(document.activeElement) && document.activeElement?.closest("#side") === null)
    main.focus({ preventScroll: true });
  return shown;
}

function drawNav() {
  badge = h("span", { class: "badge", hidden: true });
  const link = (href, glyph, label, extra) =>
    h("a", { href, "aria-label": label }, icon(glyph), h("span", {}, label), extra);
  replace(
    nav,
    link("#/", "list", "Sessions"),
    link("#/inbox", "inbox", "Inbox", badge),
    link("#/new", "add", "New"),
    link("#/overview", "chart", "Overview"),
  );
}

function questionsChanged() {
  const count = store.questions.size;
  badge.textContent = count;
  badge.hidden = !count;
  badge.parentElement.setAttribute("aria-label", count ? `Inbox, ${count} waiting` : "Inbox");
  document.title = count ? `(${count}) Stagedoor` : "Stagedoor";
  for (const question of store.fresh ?? []) {
    const words = `${question.agent} asks: ${firstLine(question.request.target || question.request.nativeName, 120)}`;
    announce(words);
    if (document.hidden && globalThis.Notification?.permission === "granted") notify(words, question);
  }
  store.fresh = [];
}

// By the service worker: phones let nobody else do it.
async function notify(body, question) {
  const worker = await navigator.serviceWorker?.ready;
  worker?.showNotification("Stagedoor", {
    body,
    tag: question.id,
    icon: "/static/icons/any-192.png",
    data: `#/s/${question.sessionId}`,
  });
}

function linkChanged() {
  const unsent = store.outbox.length;
  const words = store.online
    ? ""
    : `Offline. Reconnecting…${unsent ? ` ${unsent} message${unsent > 1 ? "s" : ""} will be sent then.` : ""}`;
  if (banner.textContent !== words) banner.textContent = words;
  banner.hidden = !words;
  if (store.online && !online && main.querySelector(".unloaded")) route();
  online = store.online;
}

// The desk's keys: j k through the sessions, y n a for the question on screen, m to write, / to search. Never while
// typing; Escape ends that.
function pressed(event) {
  if (event.key === "Escape" && event.target.closest("input,textarea,select") && !event.target.closest("dialog"))
    return main.focus({ preventScroll: true });
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select,dialog")) return;
  const rows = [...document.querySelectorAll(".session")];
  const at = rows.findIndex((row) => row.getAttribute("aria-current") === "page");
  const card = document.querySelector("#main .question:not(.over)");
  if (event.key === "j" || event.key === "k")
    rows[Math.min(Math.max(at + (event.key === "j" ? 1 : -1), 0), rows.length - 1)]?.click();
  else if (event.key === "/") document.getElementById("search")?.focus();
  else if (event.key === "m") document.querySelector(".composer textarea")?.focus();
  else if (event.key === "c") location.hash = "#/new";
  else if (event.key === "i") location.hash = "#/inbox";
  else if ("yna".includes(event.key) && card && !event.repeat) {
    const key = card.querySelector(`[data-key="${event.key}"]`);
    // Looked at before it is answered: the first press shows which question is meant, the second answers it.
    if (event.key !== "a" && !card.classList.contains("aimed")) {
      for (const other of document.querySelectorAll(".aimed")) other.classList.remove("aimed");
      card.classList.add("aimed");
      card.scrollIntoView({ block: "nearest" });
      announce(`Press ${event.key} again to ${event.key === "y" ? "allow" : "deny"}`);
    } else key?.click();
  } else return;
  event.preventDefault();
}

function pairing() {
  document.body.classList.add("unpaired");
  delete main.dataset.shows;
  replace(main, document.createElement("pair-view"));
}

async function begin() {
  document.body.classList.remove("unpaired");
  drawNav();
  if (!side.querySelector("session-list"))
    replace(
      side,
      h(
        "header",
        { class: "bar" },
        h("h1", {}, "Sessions"),
        h("a", { class: "button primary", href: "#/new" }, icon("add"), "New"),
      ),
      document.createElement("session-list"),
    );
  try {
    await store.start();
  } catch (fault) {
    if (fault instanceof Problem && fault.status === 401) return pairing();
    replace(
      main,
      h(
        "div",
        { class: "empty" },
        h("h2", {}, "The server cannot be reached"),
        h("p", {}, fault.message),
        h("button", { class: "button", onclick: () => location.reload() }, "Try again"),
      ),
    );
    return undefined;
  }
  // Somebody may have gone on while this was loading: what they see, and have typed, stays.
  if (main.dataset.shows !== (location.hash || "#/")) route();
  return undefined;
}

store.listen("questions", questionsChanged);
store.listen("link", linkChanged);
store.listen("refused", () => toast(store.failed.message, "error"));
addEventListener("hashchange", () =>
  location.hash.includes("pair=") ? pairing() : document.body.classList.contains("unpaired") || route(),
);
addEventListener("stagedoor:unpaired", pairing);
addEventListener("stagedoor:paired", () => location.reload());
addEventListener("keydown", pressed);

const theme = localStorage.getItem("stagedoor-theme");
if (theme) document.documentElement.dataset.theme = theme;
if ("serviceWorker" in navigator) {
  navigator.serviceWorker.register("/sw.js").catch(() => {});
  navigator.serviceWorker.addEventListener("message", (event) => (location.hash = event.data)); // a notification was tapped
}
if (location.hash.includes("pair=")) pairing();
else begin();
