// The field to write to an agent: pictures and files by paste, drop or choice, and completion of @files and /commands.

import { messageOf } from "../core/api.js";
import { announce, button, h, icon, replace, toast } from "../core/dom.js";
import { plain } from "../core/text.js";

const TALLEST = 200;
const LARGEST_SIDE = 1568; // pixels; models see no more
const LARGEST = 2_500_000; // bytes of all attachments: the server takes 4 MB, and base64 adds a third
const PAUSE = 120;
const WORD = /(?:^|\s)([@/])([^\s@]*)$/;

export class MessageComposer extends HTMLElement {
  /** @type {Page.Attachment[]} */
  attachments = [];
  /** @type {Page.Complete} */
  complete = (_mark, _text) => Promise.resolve([]);
  /** @type {() => unknown} */
  submit = () => undefined;
  timer = 0;
  asked = 0;
  input = h("textarea", { rows: 1, "aria-label": "Message to the agent", enterkeyhint: "send" });
  files = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach" });
  chips = h("div", { class: "attachments" });
  options = h("ul", {
    class: "completions",
    role: "listbox",
    "aria-label": "Suggestions",
    id: "completions",
    hidden: true,
  });
  actions = h("div", { class: "actions" });
  attach = button("", () => this.files.click(), { glyph: "clip", kind: "plain", title: "Attach pictures or files" });

  connectedCallback() {
    if (this.firstElementChild) return;
    replace(
      this,
      this.options,
      this.chips,
      h("div", { class: "entry" }, this.attach, this.files, this.input, this.actions),
    );
    this.input.addEventListener("input", () => this.typed());
    this.input.addEventListener("blur", () => setTimeout(() => this.closeOptions(), 200));
    this.input.addEventListener("keydown", (event) => this.pressed(event));
    this.input.addEventListener("paste", ({ clipboardData }) => this.add(clipboardData?.files));
    this.files.addEventListener("change", () => {
      this.add(this.files.files);
      this.files.value = "";
    });
    this.addEventListener("dragover", (event) => event.preventDefault());
    this.addEventListener("drop", (event) => {
      event.preventDefault();
      this.add(event.dataTransfer?.files);
    });
  }

  get prompt() {
    return this.input.value.trim() || (this.attachments.length ? "See what is attached." : "");
  }

  clear() {
    this.input.value = "";
    this.attachments = [];
    this.resize();
    this.drawChips();
  }

  /** @param {FileList | null | undefined} files */
  async add(files) {
    for (const file of files ?? []) {
      try {
        const { name, blob } = await shrunk(file);
        const url = await dataUrl(blob);
        const isPicture = blob.type.startsWith("image/");
        const total = this.attachments.reduce((sum, { size }) => sum + size, blob.size);
        if (total > LARGEST) throw new Error(`${file.name} is too large to attach`);
        const content = url.slice(url.indexOf(",") + 1);
        this.attachments.push({ name, content, size: blob.size, picture: isPicture ? url : "" });
        announce(`${name} attached`);
      } catch (fault) {
        toast(messageOf(fault), "error");
      }
    }
    this.drawChips();
  }

  drawChips() {
    const remove = (/** @type {Page.Attachment} */ one) => () => {
      this.attachments = this.attachments.filter((other) => other !== one);
      this.drawChips();
      this.input.focus();
    };
    replace(
      this.chips,
      this.attachments.map((one) =>
        h(
          "span",
          { class: "chip attachment" },
          one.picture ? h("img", { src: one.picture, alt: "" }) : icon("file"),
          h("span", {}, plain(one.name)),
          button("", remove(one), { glyph: "cross", kind: "plain", title: `Remove ${one.name}` }),
        ),
      ),
    );
  }

  resize() {
    this.input.style.height = "auto";
    if (this.input.value) this.input.style.height = `${Math.min(this.input.scrollHeight, TALLEST)}px`;
  }

  // -- completion

  typed() {
    this.resize();
    clearTimeout(this.timer);
    if (this.word()) this.timer = setTimeout(() => this.suggest(), PAUSE);
    else this.closeOptions();
  }

  word() {
    const before = this.input.value.slice(0, this.input.selectionStart);
    const [, mark = "", text = ""] = before.match(WORD) ?? [];
    const isCommand = mark === "/" && before.trim() === `/${text}`; // only at the beginning
    return mark && (mark === "@" || isCommand) ? { mark, text, from: before.length - text.length } : null;
  }

  async suggest() {
    const word = this.word();
    this.asked += 1;
    const asked = this.asked;
    const choices = word ? await this.complete(word.mark, word.text).catch(() => []) : [];
    if (asked !== this.asked || !this.word()) return;
    replace(
      this.options,
      choices.slice(0, 8).map(([value, help], at) =>
        h(
          "li",
          {
            role: "option",
            id: `completion-${at}`,
            "aria-selected": at === 0 ? "true" : "false",
            "data-value": value,
            onpointerdown: (/** @type {Event} */ event) => {
              event.preventDefault();
              this.choose(value);
            },
          },
          h("code", {}, plain(value)),
          help && h("span", { class: "quiet" }, plain(help)),
        ),
      ),
    );
    this.options.hidden = !choices.length;
    this.aim(0);
  }

  closeOptions() {
    this.asked += 1;
    this.options.hidden = true;
    this.input.removeAttribute("aria-activedescendant");
  }

  /** @param {number} step */
  aim(step) {
    const rows = [...this.options.children];
    const at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
    const next = rows[(at + step + rows.length) % rows.length];
    for (const row of rows) row.setAttribute("aria-selected", row === next ? "true" : "false");
    if (next) this.input.setAttribute("aria-activedescendant", next.id);
    next?.scrollIntoView({ block: "nearest" });
  }

  /** @param {string} value */
  choose(value) {
    const word = this.word();
    if (!word) return;
    const { value: text, selectionStart } = this.input;
    this.input.value = `${text.slice(0, word.from)}${value} ${text.slice(selectionStart)}`;
    const end = word.from + value.length + 1;
    this.input.setSelectionRange(end, end);
    this.closeOptions();
    this.resize();
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.isComposing) return;
    if (!this.options.hidden) {
      const chosen = this.options.querySelector("[aria-selected=true]");
      if (event.key === "ArrowDown" || event.key === "ArrowUp") this.aim(event.key === "ArrowDown" ? 1 : -1);
      else if (event.key === "Escape") this.closeOptions();
      else if ((event.key === "Enter" || event.key === "Tab") && chosen instanceof HTMLElement)
        this.choose(chosen.dataset.value ?? "");
      else return;
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    this.submit();
  }
}

/**
 * A picture as large as models look at it; a phone's is far larger.
 * @param {File} file
 */
async function shrunk(file) {
  const { name } = file;
  if (!file.type.startsWith("image/") || file.type === "image/gif") return { name, blob: file };
  const picture = await createImageBitmap(file).catch(() => null);
  if (!picture) throw new Error(`${name} cannot be read as a picture`);
  const scale = Math.min(1, LARGEST_SIDE / Math.max(picture.width, picture.height));
  const fits = ["image/png", "image/jpeg", "image/webp"].includes(file.type) && file.size < LARGEST / 4;
  if (scale === 1 && fits) return { name, blob: file };
  const canvas = h("canvas", { width: picture.width * scale, height: picture.height * scale });
  canvas.getContext("2d")?.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((/** @type {(blob: Blob | null) => void} */ done) =>
    canvas.toBlob(done, "image/jpeg", 0.85),
  );
  if (!blob) throw new Error(`${name} cannot be made smaller`);
  return { name: name.replace(/\.\w+$/, ".jpg"), blob };
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(String(reader.result)));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}

customElements.define("message-composer", MessageComposer);
