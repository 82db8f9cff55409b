// The first visit: a code from the terminal or from a paired device pairs this browser.

import { messageOf, post } from "../core/api.js";
import { h, icon, replace } from "../core/dom.js";

class PairView extends HTMLElement {
  code = h("input", {
    type: "text",
    required: true,
    placeholder: "Code",
    "aria-label": "Pairing code",
    autocomplete: "one-time-code",
    autocapitalize: "characters",
    spellcheck: "false",
  });
  label = h("input", {
    type: "text",
    value: deviceName(),
    required: true,
    "aria-label": "Name of this device",
    maxlength: 60,
  });
  note = h("p", { class: "note error", role: "alert", hidden: true });

  connectedCallback() {
    this.code.value = new URLSearchParams(location.hash.replace(/^#\/?/, "")).get("pair") ?? "";
    const form = h(
      "form",
      { class: "pair-form" },
      h("label", { class: "field" }, "Code", this.code),
      h("label", { class: "field" }, "Name of this device", this.label),
      this.note,
      h("button", { class: "button primary wide", type: "submit" }, icon("check"), "Pair"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.pair();
    });
    const command = h("code", {}, "stagedoor pair");
    replace(
      this,
      h(
        "div",
        { class: "pair-page" },
        h("img", { src: "/static/icon.svg", alt: "", width: 64, height: 64 }),
        h("h1", {}, "Stagedoor"),
        h(
          "p",
          { class: "quiet" },
          "Pair this browser with the server: run ",
          command,
          " on its machine to get a code.",
        ),
        form,
      ),
    );
    if (this.code.value) this.pair();
    else this.code.focus();
  }

  async pair() {
    this.note.hidden = true;
    try {
      const name = this.label.value.trim() || "browser";
      await post("/api/pair", { code: this.code.value.trim(), name, cookie: true });
      history.replaceState(null, "", "#/");
      dispatchEvent(new CustomEvent("stagedoor:paired"));
    } catch (fault) {
      this.note.textContent = messageOf(fault);
      this.note.hidden = false;
      this.code.focus();
    }
  }
}

function deviceName() {
  const firstIn = (/** @type {string[]} */ names) => names.find((name) => navigator.userAgent.includes(name));
  const system = firstIn(["iPhone", "iPad", "Android", "Mac", "Windows", "Linux"]) ?? "device";
  const browser = firstIn(["Firefox", "Edg", "Chrome", "Safari"]) ?? "browser";
  return `${browser === "Edg" ? "Edge" : browser} on ${system}`;
}

customElements.define("pair-view", PairView);
