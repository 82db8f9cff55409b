// What the agents' own programs have stored on this computer: open one, and go on with it here.

import { get, messageOf, post } from "../core/api.js";
import { bar, empty, failed, h, replace, skeleton, toast } from "../core/dom.js";
import { ago, firstLine, lastPart, plain, titleOf } from "../core/text.js";

const MOST = 200;

class HistoryView extends HTMLElement {
  search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search stored sessions" });
  list = h("ul", { class: "sessions" }, h("li", {}, skeleton()));
  /** @type {Page.PastSession[]} */
  past = [];

  async connectedCallback() {
    replace(this, bar("On this computer"), h("div", { class: "filters" }, this.search), this.list);
    this.search.addEventListener("input", () => this.draw());
    try {
      /** @type {{ sessions: Page.PastSession[] }} */
      const { sessions } = await get("/api/history");
      this.past = sessions.filter(({ sessionId }) => !sessionId).sort((a, b) => b.updatedAt - a.updatedAt);
      this.draw();
    } catch (fault) {
      replace(this.list, h("li", {}, failed("Cannot list them now", messageOf(fault))));
    }
  }

  draw() {
    const words = this.search.value.trim().toLowerCase();
    const matches = this.past.filter(({ title, firstPrompt, cwd, agent }) =>
      `${title} ${firstPrompt} ${cwd} ${agent}`.toLowerCase().includes(words),
    );
    const none = () => h("li", {}, empty("Nothing here", "Sessions that you run in a terminal appear here."));
    replace(this.list, matches.length ? matches.slice(0, MOST).map((one) => this.row(one)) : none());
  }

  /** @param {Page.PastSession} session */
  row(session) {
    const { agent, nativeId, cwd, place, title, firstPrompt, updatedAt } = session;
    const open = async () => {
      try {
        const { id } = await post("/api/history/import", { agent, nativeId, cwd, place });
        location.hash = `#/s/${id}`;
      } catch (fault) {
        toast(messageOf(fault), "error");
      }
    };
    return h(
      "li",
      {},
      h(
        "button",
        { class: "session", type: "button", onclick: open },
        h("span", { class: "title", dir: "auto" }, firstLine(title || firstPrompt || nativeId, 120)),
        h(
          "span",
          { class: "meta" },
          h("span", {}, titleOf(agent)),
          h("span", { class: "place", title: plain(cwd) }, lastPart(cwd)),
          place ? h("span", { class: "machine" }, plain(place.replace(/^host:/, ""))) : null,
          h("span", { class: "spacer" }),
          h("time", {}, ago(updatedAt)),
        ),
      ),
    );
  }
}

customElements.define("history-view", HistoryView);
