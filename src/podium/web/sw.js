// Keeps the page's own files for the time without a connection. Answers of the API are never kept.

const SHELF = "podium-1";
const FILES = ["/", "/static/app.js", "/static/icon.svg"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(SHELF).then((shelf) => shelf.addAll(FILES)).then(() => self.skipWaiting()));
});

addEventListener("activate", (event) => {
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter((name) => name !== SHELF).map((name) => caches.delete(name)))).then(() => self.clients.claim()));
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
