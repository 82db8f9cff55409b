// Everything that waits for an answer, across sessions.

import { bar, button, empty, h, replace, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { firstLine } from "../core/text.js";
import { questionCard } from "./question-card.js";

class InboxView extends HTMLElement {
  connectedCallback() {
    this.leave = new AbortController();
    this.cards = new Map();
    this.list = h("div", { class: "page inbox" });
    replace(this, bar("Waiting for you", notifying()), this.list);
    store.listen("questions", () => this.draw(), { signal: this.leave.signal });
    this.draw();
  }

  disconnectedCallback() {
    this.leave.abort();
  }

  // Cards are kept as long as their question is open: one must not move or be made again under a finger.
  draw() {
    const open = [...store.questions.values()].sort((a, b) => a.askedAt - b.askedAt);
    for (const [id, card] of this.cards) {
      if (store.questions.has(id)) continue;
      card.remove();
      this.cards.delete(id);
    }
    if (!store.loaded) return replace(this.list, h("div", { class: "skeleton" }));
    this.list.querySelector(".skeleton")?.remove();
    if (!open.length)
      return replace(
        this.list,
        empty("Nothing waits", "When an agent asks for permission, it is shown here and in its session."),
      );
    this.list.querySelector(".empty")?.remove();
    for (const question of open) {
      if (this.cards.has(question.id)) continue;
      const session = store.sessions.get(question.sessionId);
      const card = questionCard(question, { store, link: firstLine(session?.title ?? question.sessionId, 80) });
      this.cards.set(question.id, card);
      this.list.append(card);
    }
    return undefined;
  }
}

// Asked for where it makes sense, and only by somebody who wants it.
function notifying() {
  if (globalThis.Notification?.permission !== "default") return null;
  const ask = button(
    "Notify me",
    async () => {
      const said = await Notification.requestPermission();
      toast(said === "granted" ? "You will be told when an agent asks" : "The browser does not allow it");
      ask.remove();
    },
    { kind: "plain", title: "Tell me when an agent asks something" },
  );
  return ask;
}

customElements.define("inbox-view", InboxView);
