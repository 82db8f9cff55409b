// The first visit: a code from the terminal or a paired device lets this browser in.

import { h, icon, replace } from "../core/dom.js";
import { post } from "../core/api.js";

class PairView extends HTMLElement {
  connectedCallback() {
    const code = new URLSearchParams(location.hash.replace(/^#\/?/, "")).get("pair") ?? "";
    this.code = h("input", {
      type: "text",
      value: code,
      required: true,
      placeholder: "Code",
      "aria-label": "Pairing code",
      autocomplete: "one-time-code",
      autocapitalize: "characters",
      spellcheck: "false",
    });
    this.label = h("input", {
      type: "text",
      value: deviceName(),
      required: true,
      "aria-label": "Name of this device",
      maxlength: 60,
    });
    this.note = h("p", { class: "note error", role: "alert", hidden: true });
    const go = h("button", { class: "button primary wide", type: "submit" }, icon("check"), "Pair");
    const form = h(
      "form",
      { class: "pair-form" },
      h("label", { class: "field" }, "Code", this.code),
      h("label", { class: "field" }, "Name of this device", this.label),
      this.note,
      go,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.pair();
    });
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
          "Pair this browser with the server. ",
          h("code", {}, "stagedoor pair"),
          " on the machine it runs on gives you a code.",
        ),
        form,
      ),
    );
    if (code) this.pair();
    else this.code.focus();
  }

  async pair() {
    this.note.hidden = true;
    try {
      await post("/api/pair", {
        code: this.code.value.trim(),
        name: this.label.value.trim() || "browser",
        cookie: true,
      });
      history.replaceState(null, "", "#/");
      dispatchEvent(new CustomEvent("stagedoor:paired"));
    } catch (fault) {
      this.note.textContent = fault.message;
      this.note.hidden = false;
      this.code.focus();
    }
  }
}

function deviceName() {
  const agent = navigator.userAgent;
  const system =
    ["iPhone", "iPad", "Android", "Mac", "Windows", "Linux"].find((name) => agent.includes(name)) ?? "device";
  const browser = ["Firefox", "Edg", "Chrome", "Safari"].find((name) => agent.includes(name)) ?? "browser";
  return `${browser === "Edg" ? "Edge" : browser} on ${system}`;
}

customElements.define("pair-view", PairView);
