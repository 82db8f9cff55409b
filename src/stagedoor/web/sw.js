// Keeps the page's own files for the time without a connection. Answers of the API are never kept.

const SHELF = "stagedoor-1";
const FILES = [
  "/",
  "/static/app.js",
  "/static/core/api.js",
  "/static/core/dom.js",
  "/static/core/fold.js",
  "/static/core/link.js",
  "/static/core/markdown.js",
  "/static/core/store.js",
  "/static/core/text.js",
  "/static/core/virtual.js",
  "/static/icon.svg",
  "/static/icons/any-192.png",
  "/static/icons/any-512.png",
  "/static/icons/maskable-512.png",
  "/static/icons/touch-180.png",
  "/static/manifest.webmanifest",
  "/static/parts/compare-view.js",
  "/static/parts/diff-view.js",
  "/static/parts/inbox-view.js",
  "/static/parts/items.js",
  "/static/parts/new-session.js",
  "/static/parts/overview-view.js",
  "/static/parts/pair-view.js",
  "/static/parts/question-card.js",
  "/static/parts/session-list.js",
  "/static/parts/session-view.js",
  "/static/parts/wish-form.js",
  "/static/style/frame.css",
  "/static/style/stream.css",
  "/static/style/tokens.css",
  "/static/style/views.css",
];

addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(SHELF)
      .then((shelf) => shelf.addAll(FILES))
      .then(() => self.skipWaiting()),
  );
});

addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter((name) => name !== SHELF).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  const isFile = url.pathname === "/" || url.pathname.startsWith("/static/");
  if (request.method !== "GET" || url.origin !== location.origin || !isFile) return;
  // The server's file when it can be had, ours when not.
  event.respondWith(
    fetch(request)
      .then((answer) => {
        if (answer.ok) {
          const copy = answer.clone();
          caches.open(SHELF).then((shelf) => shelf.put(request, copy));
        }
        return answer;
      })
      .catch(() => caches.match(request).then((kept) => kept ?? Response.error())),
  );
});

// A tap on what an agent asks leads to its session.
addEventListener("notificationclick", (event) => {
  const { notification } = event;
  notification.close();
  event.waitUntil(
    clients.matchAll({ type: "window" }).then(([page]) => {
      if (!page) return clients.openWindow(`/${notification.data}`);
      page.postMessage(notification.data);
      return page.focus();
    }),
  );
});
