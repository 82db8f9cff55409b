"""Being told with the page closed: Web Push through a real service worker, and the receivers that are set up here.

No browser of the tests can reach a push service: ``pushManager.subscribe`` is played, with keys of the test's own, and
the endpoint is a receiver on loopback. What arrives there is decrypted with code of others (``http_ece``) and handed to
the real service worker by the browser itself (``ServiceWorker.deliverPushMessage``).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import http_ece
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from playwright.sync_api import expect

AUTH = bytes(range(16))
SUBSCRIBE = """([endpoint, p256dh, auth]) => {
  let current = null;
  Object.assign(PushManager.prototype, {
    async subscribe(options) {
      const raw = options.applicationServerKey.replaceAll("-", "+").replaceAll("_", "/");
      const applicationServerKey = Uint8Array.from(atob(raw), (letter) => letter.charCodeAt(0)).buffer;
      current = {
        options: { applicationServerKey },
        toJSON: () => ({ endpoint, expirationTime: null, keys: { p256dh, auth } }),
        unsubscribe: async () => { current = null; return true; },
      };
      return current;
    },
    getSubscription: async () => current,
  });
}"""
SHOWN = """async () => {
  const registration = await navigator.serviceWorker.ready;
  return (await registration.getNotifications()).map(({ title, body, data, tag }) => ({ title, body, data, tag }));
}"""

TAP = """async () => {
  const [notification] = await registration.getNotifications();
  dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}"""


class PushService:
    """A push service on loopback: keeps what it gets, and answers with ``status``."""

    def __init__(self) -> None:
        self.status = 201
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.key = ec.generate_private_key(ec.SECP256R1())
        outer = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = outer.status
                outer.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def subscription(self) -> list[str]:
        public = self.key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        return [f"http://{self.host}/push/one", *(base64.urlsafe_b64encode(one).decode() for one in (public, AUTH))]

    def message(self, at: int) -> dict[str, Any]:
        plain = http_ece.decrypt(self.requests[at][1], private_key=self.key, auth_secret=AUTH, version="aes128gcm")
        message: dict[str, Any] = json.loads(plain)
        return message

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def push() -> Iterator[PushService]:
    service = PushService()
    yield service
    service.close()


@pytest.fixture(scope="module")
def more_settings(push: PushService) -> dict[str, Any]:
    return {"push_hosts": (push.host,)}


@pytest.mark.parametrize("size", ["phone", "desk"])
def test_a_closed_page_is_told_and_a_tap_opens_the_session(
    visit: Any, stage: Any, push: PushService, size: str
) -> None:
    push.requests.clear()
    page = visit("#/overview", size, service_workers="allow", permissions=["notifications"])
    context = page.context
    page.evaluate(SUBSCRIBE, push.subscription)
    card = page.get_by_role("region", name="Notifications")
    card.get_by_label("Notify this device, also while the page is closed").check()
    expect(card.get_by_label("Needs approval")).to_be_checked()
    card.get_by_role("button", name="Send a test").first.click()
    expect(page.locator(".toast")).to_have_text("Delivered")
    assert push.message(0) == {"kind": "test"}
    card.get_by_label("Done").uncheck()
    stage.until(lambda: stage.run(_told(stage)) == {("question", "failed")} or page.wait_for_timeout(20), "the choice")

    # The page is closed; what the server sends is delivered to the worker by the browser.
    page.goto("about:blank")
    session = stage.start([{"shell": "touch private"}], [{"say": "Done."}], title="A private title")
    stage.until(lambda: len(push.requests) == 2, "a push message")
    message = push.message(1)
    assert message == {"kind": "question", "session": session}
    headers = push.requests[1][0]
    assert (headers["content-encoding"], headers["urgency"]) == ("aes128gcm", "high")
    helper = context.new_page()
    helper.goto(f"{stage.url}/static/icon.svg")
    deliver(context, helper, stage.url, json.dumps(message))
    shown = stage.until(lambda: helper.evaluate(SHOWN) or helper.wait_for_timeout(20), "a notification")
    assert shown == [{"title": "Needs approval", "body": "Stagedoor", "data": f"#/s/{session}", "tag": session}]
    helper.close()
    [question] = [entry for entry in stage.questions() if entry["sessionId"] == session]
    stage.http.post(f"/api/permissions/{question['id']}", json={"decision": "allow"})
    stage.idle(session)
    assert len(push.requests) == 2  # "done" was not chosen

    # A push service that knows the browser no more ends it.
    push.status = 410
    page.goto(f"{stage.url}/#/overview")
    page.evaluate(SUBSCRIBE, push.subscription)
    card.get_by_role("button", name="Send a test").first.click()
    expect(card.get_by_label("Notify this device, also while the page is closed")).not_to_be_checked()
    assert stage.run(_told(stage)) == set()
    push.status = 201
    expect(page.locator(".toast.error")).to_contain_text("does not take notifications any more")

    # A tap, while a page is open: it goes to the session.
    worker = context.service_workers[0]
    worker.evaluate(TAP)
    expect(page).to_have_url(f"{stage.url}/#/s/{session}")


async def _told(stage: Any) -> set[tuple[str, ...]]:
    return {view.events for view in stage.service.receivers.list()}


def deliver(context: Any, page: Any, origin: str, message: str) -> None:
    """By the browser, to the real worker of ``origin``."""
    session = context.new_cdp_session(page)
    registrations: list[str] = []
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: registrations.extend(one["registrationId"] for one in event["registrations"]),
    )
    session.send("ServiceWorker.enable")
    while not registrations:
        page.wait_for_timeout(20)
    body = {"origin": origin, "registrationId": registrations[-1], "data": message}
    session.send("ServiceWorker.deliverPushMessage", body)
    session.detach()


@pytest.mark.parametrize("size", ["phone", "desk"])
def test_receivers_are_added_tried_and_removed_on_the_page(
    visit: Any, stage: Any, push: PushService, size: str
) -> None:
    push.requests.clear()
    page = visit("#/overview", size)
    card = page.get_by_role("region", name="Notifications")
    card.get_by_label("Address").fill(f"http://{push.host}/topic?secret=1")
    card.get_by_label("Access token or secret").fill("tk_1")
    card.get_by_role("button", name="Add").click()
    row = card.get_by_role("listitem").filter(has_text=push.host)
    expect(row).to_contain_text("nothing sent yet")
    assert "secret=1" not in card.inner_text()
    row.get_by_role("button", name="Send a test").click()
    expect(row).to_contain_text("sent now")
    headers, _ = push.requests[0]
    assert (headers["title"], headers["authorization"]) == ("Test", "Bearer tk_1")
    push.status = 403
    row.get_by_role("button", name="Send a test").click()
    expect(row).to_contain_text("it answered 403")
    push.status = 201
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    card.get_by_label("Kind of receiver").select_option("webhook")
    card.get_by_label("Address").fill("ftp://example.org")
    card.get_by_role("button", name="Add").click()
    expect(page.locator(".toast.error").filter(has_text="must begin with https://")).to_be_visible()
    visit.forgiven = ("400",)
    card.get_by_label("Address").fill(f"http://{push.host}/hook")
    card.get_by_role("button", name="Add").click()
    expect(card).to_contain_text("Signing secret: whsec_")
    for view in stage.http.get("/api/receivers").json()["receivers"]:
        stage.http.delete(f"/api/receivers/{view['id']}")
