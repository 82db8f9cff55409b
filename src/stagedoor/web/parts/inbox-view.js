// Everything that waits for an answer, across sessions.

import { bar, empty, h, replace, skeleton } from "../core/dom.js";
import { store } from "../core/store.js";
import { firstLine } from "../core/text.js";
import { notifyButton } from "./notify.js";
import { questionCard } from "./question-card.js";

class InboxView extends HTMLElement {
  leave = new AbortController();
  /** @type {Map<string, HTMLElement>} */
  cards = new Map();
  list = h("div", { class: "page inbox" });

  connectedCallback() {
    replace(this, bar("Needs approval", notifyButton()), this.list);
    store.listen("questions", () => this.draw(), { signal: this.leave.signal });
    this.draw();
  }

  disconnectedCallback() {
    this.leave.abort();
  }

  // A card stays as long as its question is open: it must not move or be made again under a finger.
  draw() {
    for (const [id, card] of this.cards) {
      if (store.questions.has(id)) continue;
      card.remove();
      this.cards.delete(id);
    }
    if (!store.loaded) replace(this.list, skeleton());
    else if (!store.questions.size) {
      const text = "When an agent asks for permission, the question appears here and in its session.";
      replace(this.list, empty("Nothing to answer", text));
    } else this.drawCards();
  }

  drawCards() {
    for (const other of this.list.querySelectorAll(".skeleton, .empty")) other.remove();
    const open = [...store.questions.values()].sort((a, b) => (a.askedAt ?? 0) - (b.askedAt ?? 0));
    for (const question of open) {
      if (this.cards.has(question.id)) continue;
      const title = store.sessions.get(question.sessionId)?.title ?? question.sessionId;
      const card = questionCard(question, { link: firstLine(title, 80) });
      this.cards.set(question.id, card);
      this.list.append(card);
    }
  }
}

customElements.define("inbox-view", InboxView);
