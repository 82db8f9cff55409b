// One session: its stream, what can be done with it, and the place to say more.

import { announce, bar, button, failed, h, icon, replace, toast } from "../core/dom.js";
import { get } from "../core/api.js";
import { store } from "../core/store.js";
import { firstLine, money, number, place, plain } from "../core/text.js";
import "../core/virtual.js";
import { isWide, itemElement } from "./items.js";
import { diffView } from "./diff-view.js";

class SessionView extends HTMLElement {
  connectedCallback() {
    this.leave = new AbortController();
    this.head = h("header", { class: "bar" });
    this.list = document.createElement("virtual-list");
    this.list.setAttribute("role", "log");
    this.list.setAttribute("aria-live", "off"); // elements come and go with scrolling; what matters is announced
    this.list.setAttribute("aria-label", "What the agent does");
    this.jump = button("Latest", () => this.list.toEnd(), { glyph: "down", kind: "jump", hidden: true });
    this.status = h("p", { class: "status", role: "status" });
    this.foot = h("footer", { class: "composer" });
    replace(this, this.head, h("div", { class: "stream" }, this.list, this.jump), this.status, this.foot);
    this.list.addEventListener("top", () => this.opened?.earlier());
    for (const what of ["scroll", "drawn"]) this.list.addEventListener(what, () => this.drawJump(), { passive: true });
    store.listen("session sessions link questions", () => this.draw(), { signal: this.leave.signal });
    this.context = {
      store,
      cards: new Map(),
      cwd: () => this.opened?.view?.cwd,
      place: () => place(this.opened.view),
      questionOf: (request) => this.questionOf(request),
    };
    this.compose();
    if (this.wanted) this.load(this.wanted);
  }

  disconnectedCallback() {
    this.leave.abort();
    store.close();
  }

  set session(id) {
    this.wanted = id;
    if (this.isConnected) this.load(id);
  }

  async load(id) {
    try {
      this.opened = await store.open(id);
      this.draw();
    } catch (fault) {
      replace(
        this,
        bar(),
        failed("This session cannot be shown", fault, h("a", { class: "button", href: "#/" }, "All sessions")),
      );
    }
  }

  questionOf(request) {
    const id = `${this.opened.id}:${request.requestId}`;
    return (
      store.questions.get(id) ?? {
        id,
        sessionId: this.opened.id,
        agent: request.agent,
        request,
        open: !this.opened.over,
      }
    );
  }

  draw() {
    if (!this.opened?.view) return;
    const { view, fold } = this.opened;
    this.drawHead(view);
    if (fold.items.length === 0 && !this.opened.over) {
      this.list.show([{ key: "wait", version: 0, kind: "wait" }], () =>
        h("div", { class: "waiting-first" }, h("span", { class: "spinner" }), "Waiting for the agent"),
      );
    } else {
      const missing = this.opened.missing ? [{ key: "gap", version: 0, kind: "gap" }] : [];
      this.list.show([...missing, ...fold.items, ...this.opened.waiting()], (item, before) =>
        item.kind === "gap"
          ? h(
              "p",
              { class: "item note warning" },
              `Events ${this.opened.missing.missingFrom}–${this.opened.missing.missingTo} were removed from the log`,
            )
          : itemElement(item, this.context, before),
      );
    }
    this.drawStatus(view);
    this.drawComposer(view);
  }

  drawHead(view) {
    const elsewhere = [...store.questions.values()].filter((one) => one.sessionId !== view.id).length;
    const key = JSON.stringify([
      view.title,
      view.activity,
      view.state,
      view.cwd,
      view.archived,
      view.branch,
      view.openQuestions,
      elsewhere,
    ]);
    if (this.headKey === key) return;
    this.headKey = key;
    const running = view.activity !== "ended";
    replace(
      this.head,
      h(
        "a",
        {
          class: "button plain back",
          href: "#/",
          "aria-label": elsewhere ? `All sessions, ${elsewhere} waiting` : "All sessions",
        },
        icon("back"),
        elsewhere > 0 && h("span", { class: "badge" }, elsewhere),
      ),
      h(
        "div",
        { class: "heading" },
        h("h1", { dir: "auto" }, firstLine(view.title || view.id, 120)),
        h(
          "p",
          { class: "quiet" },
          h("span", { class: `dot ${view.openQuestions ? "waiting" : running ? view.activity : view.state}` }),
          ` ${[view.agent, place(view), view.worktree ? "" : plain(view.branch)].filter(Boolean).join(" · ")}`,
        ),
      ),
      ["working", "waiting", "starting"].includes(view.activity) &&
        button("Stop", () => this.act("interrupt"), { glyph: "stop", kind: "plain", title: "Interrupt the turn" }),
      button("", () => this.menu(view), { glyph: "more", kind: "plain", title: "More", "aria-haspopup": "dialog" }),
    );
  }

  // Never over the answers of a question: then it stands at the top.
  drawJump() {
    const edge = this.list.getBoundingClientRect().bottom;
    const covers = (card) => card.getBoundingClientRect().top < edge && card.getBoundingClientRect().bottom > edge - 60;
    this.jump.hidden = this.list.atEnd;
    this.jump.classList.toggle("aside", [...this.list.querySelectorAll(".question:not(.over)")].some(covers));
  }

  drawStatus(view) {
    const { fold } = this.opened;
    const parts = [];
    if (!this.opened.linked && !this.opened.over) parts.push("offline, reconnecting…");
    else if (view.openQuestions) parts.push("waits for your answer");
    else if (view.activity === "working" || view.activity === "starting") parts.push("working…");
    if (view.queued) parts.push(`${view.queued} queued`);
    const unsent = store.outbox.filter((one) => one.id === view.id).length;
    if (unsent) parts.push(`${unsent} to be sent`);
    const tokens = fold.usage?.totalTokens ?? view.usage?.totalTokens;
    if (tokens) parts.push(`${number(tokens)} tokens`);
    const cost = fold.cost ?? view.costUsd;
    if (cost) parts.push(money(cost));
    const words = parts.join(" · ");
    if (this.status.textContent !== words) this.status.textContent = words;
  }

  compose() {
    this.input = h("textarea", {
      rows: 1,
      placeholder: "Say what comes next",
      "aria-label": "Message to the agent",
      enterkeyhint: "send",
    });
    this.input.addEventListener("input", () => {
      this.input.style.height = "auto";
      this.input.style.height = `${Math.min(this.input.scrollHeight, 200)}px`;
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.submit();
      }
    });
    this.sendButton = button("", () => this.submit(), { glyph: "send", kind: "primary", title: "Send" });
  }

  drawComposer(view) {
    const ended = view.activity === "ended";
    const key = `${ended} ${view.keepOpen} ${view.nativeId} ${view.worktree}`;
    if (this.composerKey === key) return;
    this.composerKey = key;
    if (!ended) return replace(this.foot, this.input, this.sendButton);
    this.input.placeholder = "Go on from here";
    const left = { kept: `Its work is on branch ${plain(view.branch)}.`, removed: "Its worktree was removed." }[
      view.worktree
    ];
    if (!view.nativeId || left) return replace(this.foot, h("p", { class: "quiet" }, "This session is over. ", left));
    return replace(
      this.foot,
      this.input,
      button("Resume", () => this.submit("resume"), { glyph: "send", kind: "primary" }),
      button("Fork", () => this.submit("fork"), { glyph: "fork" }),
    );
  }

  async submit(verb) {
    const prompt = this.input.value.trim();
    if (!prompt) return this.input.focus();
    const view = this.opened.view;
    try {
      if (view.activity === "ended") {
        const made = await store.act(view.id, verb ?? "resume", { prompt });
        this.input.value = "";
        location.hash = `#/s/${made.id}`;
      } else {
        this.input.value = "";
        this.input.style.height = "auto";
        await store.send(view.id, prompt);
        announce("Sent");
      }
    } catch (fault) {
      this.input.value ||= prompt;
      toast(fault.message, "error");
    }
  }

  async act(verb, body) {
    try {
      return await store.act(this.opened.id, verb, body);
    } catch (fault) {
      toast(fault.message, "error");
      return null;
    }
  }

  menu(view) {
    const dialog = h("dialog", { class: "sheet", "aria-label": "Session" });
    const close = () => dialog.close();
    const doing = (work) => async () => {
      close();
      try {
        await work();
      } catch (fault) {
        toast(fault.message, "error");
      }
    };
    const title = h("input", { type: "text", value: view.title, "aria-label": "Title", maxlength: 200 });
    const ended = view.activity === "ended";
    dialog.append(
      ...[
        h(
          "form",
          {
            class: "rename",
            onsubmit: (event) => (event.preventDefault(), doing(() => store.change(view.id, { title: title.value }))()),
          },
          title,
          button(
            "Rename",
            doing(() => store.change(view.id, { title: title.value })),
            { kind: "plain" },
          ),
        ),
        button(
          "Changes since it began",
          doing(() => this.showDiff(view)),
          { glyph: "file" },
        ),
        view.group &&
          h(
            "a",
            { class: "button", href: `#/compare/${encodeURIComponent(view.group)}`, onclick: close },
            icon("fork"),
            "Compare with the others",
          ),
        !ended &&
          button(
            "End the session",
            doing(() => this.act("cancel")),
            { glyph: "stop", kind: "deny" },
          ),
        !ended &&
          view.nativeId &&
          button(
            "Fork…",
            doing(() => this.fork(view)),
            { glyph: "fork" },
          ),
        button(
          view.archived ? "Take out of the archive" : "Archive",
          doing(() => store.change(view.id, { archived: !view.archived })),
          { glyph: "folder" },
        ),
        h(
          "a",
          { class: "button", href: `/api/sessions/${view.id}/export?format=markdown`, download: `${view.id}.md` },
          icon("down"),
          "Export as Markdown",
        ),
        h(
          "a",
          { class: "button", href: `/api/sessions/${view.id}/export?format=json`, download: `${view.id}.jsonl` },
          icon("down"),
          "Export as JSON",
        ),
        button("Close", close, { kind: "plain", autofocus: true }), // not the title: a phone would bring its keyboard
      ].filter(Boolean),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  async fork(view) {
    const prompt = this.input.value.trim();
    if (!prompt) return toast("Write first what the fork should do, then fork");
    const made = await store.act(view.id, "fork", { prompt });
    this.input.value = "";
    location.hash = `#/s/${made.id}`;
    return undefined;
  }

  async showDiff(view) {
    const found = await get(`/api/sessions/${view.id}/diff`);
    const dialog = h("dialog", { class: "sheet tall", "aria-label": "Changes" }, h("h2", {}, "Changes since it began"));
    if (!found.diff) dialog.append(h("p", { class: "quiet" }, "Nothing has changed."));
    for (const part of (found.diff ?? "").split(/^(?=diff --git )/m).filter(Boolean)) {
      const name = part.match(/^\+\+\+ (?:b\/)?(.+)$/m)?.[1] ?? part.match(/^--- (?:a\/)?(.+)$/m)?.[1] ?? "";
      dialog.append(h("h3", {}, plain(name)), diffView(part, { wide: isWide() }));
    }
    dialog.append(button("Close", () => dialog.close(), { kind: "plain" }));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}

customElements.define("session-view", SessionView);
