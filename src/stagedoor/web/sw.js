// Stores the page's own files for the time without a connection (answers of the API are never stored), and shows what
// the server has to tell while the page is closed.

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const CACHE = "stagedoor-3";
const FILES = ["/", "/static/icon.svg", "/static/manifest.webmanifest", "/static/page.css", "/static/page.js"];

worker.addEventListener("install", (event) => event.waitUntil(install()));

async function install() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES);
  await worker.skipWaiting();
}

worker.addEventListener("activate", (event) => event.waitUntil(activate()));

async function activate() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)));
  await worker.clients.claim();
}

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  const isFile = url.pathname === "/" || url.pathname.startsWith("/static/");
  if (request.method === "GET" && url.origin === location.origin && isFile) event.respondWith(load(request));
});

/**
 * The server's file if it can be reached, else the stored one.
 * @param {Request} request
 */
async function load(request) {
  try {
    const response = await fetch(request);
    if (response.ok) store(request, response.clone());
    return response;
  } catch {
    return (await caches.match(request)) ?? Response.error();
  }
}

/**
 * @param {Request} request
 * @param {Response} response
 */
async function store(request, response) {
  const cache = await caches.open(CACHE);
  await cache.put(request, response);
}

const TITLES = { question: "Needs approval", done: "Done", failed: "Failed", test: "Test" };

worker.addEventListener("push", (event) => event.waitUntil(showPush(event.data?.json() ?? {})));

/** @param {{ kind: keyof TITLES, session?: string, title?: string, text?: string }} message */
function showPush({ kind, session = "", title, text }) {
  const body = [title, text].filter(Boolean).join("\n") || "Stagedoor";
  const data = session ? `#/s/${encodeURIComponent(session)}` : "#/";
  const options = { body, tag: session || kind, renotify: true, icon: "/static/icons/any-192.png", data };
  return worker.registration.showNotification(TITLES[kind] ?? "Stagedoor", options);
}

// The push service has given this browser another address.
worker.addEventListener("pushsubscriptionchange", (event) =>
  /** @type {ExtendableEvent} */ (event).waitUntil(subscribeAgain()),
);

async function subscribeAgain() {
  const { publicKey, subscribed, events, content } = await (await fetch("/api/push")).json();
  if (!subscribed) return;
  const options = { userVisibleOnly: true, applicationServerKey: publicKey };
  const subscription = await worker.registration.pushManager.subscribe(options);
  const body = JSON.stringify({ ...subscription.toJSON(), events, content });
  await fetch("/api/push", { method: "POST", headers: { "content-type": "application/json" }, body });
}

// A tap on a notification opens its session.
worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openSession(event.notification.data));
});

/** @param {string} hash */
async function openSession(hash) {
  const [page] = await worker.clients.matchAll({ type: "window" });
  if (!page) return worker.clients.openWindow(`/${hash}`);
  page.postMessage(hash);
  return page.focus();
}
