// A list of thousands of items of unknown height, of which only those near the screen exist. Heights are measured when
// an item was on screen and guessed before; what the reader looks at stays where it is.

import { reachable } from "./dom.js";

const AROUND = 800;
const GUESS = 72;

export class VirtualList extends HTMLElement {
  connectedCallback() {
    if (this.inner) return;
    this.heights = new Map();
    this.nodes = new Map();
    this.items = [];
    this.sticky = true;
    this.tabIndex = 0;
    this.inner = document.createElement("div");
    this.inner.className = "virtual-inner";
    this.above = document.createElement("div");
    this.below = document.createElement("div");
    this.inner.append(this.above, this.below);
    this.append(this.inner);
    this.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.sizes = new ResizeObserver((entries) => this.measured(entries));
    this.frame = new ResizeObserver(() => this.later());
    this.frame.observe(this);
  }

  disconnectedCallback() {
    this.sizes?.disconnect();
    this.frame?.disconnect();
  }

  // ``make(item)`` gives an element; it is made again when the item's version has changed.
  show(items, make) {
    const anchor = this.follows ? null : this.anchor();
    this.items = items;
    this.make = make;
    this.draw(anchor);
  }

  scrolled() {
    const rest = this.scrollHeight - this.scrollTop - this.clientHeight;
    this.sticky = rest < 40;
    if (this.scrollTop < AROUND) this.dispatchEvent(new Event("top"));
    this.later();
  }

  later() {
    this.asked ??= requestAnimationFrame(() => ((this.asked = null), this.draw()));
  }

  toEnd() {
    this.sticky = this.forced = true;
    this.draw();
    this.forced = false;
  }

  // To the end with what comes; but never while a question is on screen, which must not move under a hand.
  get follows() {
    return this.sticky && (this.forced || !this.held());
  }

  held() {
    const { top, bottom } = this.getBoundingClientRect();
    return [...this.querySelectorAll(".question:not(.over)")].some((card) => {
      const place = card.getBoundingClientRect();
      return place.top >= top - 1 && place.bottom <= bottom + 1;
    });
  }

  get atEnd() {
    return this.scrollHeight - this.scrollTop - this.clientHeight < 40;
  }

  height(item) {
    return this.heights.get(item.key) ?? GUESS;
  }

  // While the reader is somewhere in the middle, the first item on screen is the anchor: it stays where it is, also
  // when others came before it.
  draw(given) {
    if (!this.make) return;
    const follows = this.follows;
    const anchor = follows ? null : (given ?? this.anchor());
    const total = this.items.reduce((sum, item) => sum + this.height(item), 0);
    let top = follows ? Math.max(0, total - this.clientHeight) : this.scrollTop;
    if (anchor) top = this.offset(anchor);
    const from = top - AROUND;
    const to = top + this.clientHeight + AROUND;
    let y = 0;
    let before = 0;
    let after = 0;
    const wanted = [];
    for (const item of this.items) {
      const height = this.height(item);
      if (y + height < from) before += height;
      else if (y > to) after += height;
      else wanted.push(item);
      y += height;
    }
    this.place(wanted);
    this.above.style.height = `${before}px`;
    this.below.style.height = `${after}px`;
    if (follows) this.scrollTop = this.scrollHeight;
    else if (anchor && Math.abs(this.scrollTop - top) > 1) this.scrollTop = top;
    this.dispatchEvent(new Event("drawn"));
  }

  place(wanted) {
    const keys = new Set(wanted.map((item) => item.key));
    for (const [key, kept] of this.nodes) {
      if (keys.has(key)) continue;
      this.sizes.unobserve(kept.node);
      kept.node.remove();
      this.nodes.delete(key);
    }
    let behind = this.above;
    for (const item of wanted) {
      let kept = this.nodes.get(item.key);
      if (!kept || kept.version !== item.version) {
        const node = this.make(item, kept?.node);
        if (kept && kept.node !== node) {
          this.sizes.unobserve(kept.node);
          exchange(kept.node, node);
        }
        kept = { node, version: item.version };
        node.dataset.key = item.key;
        this.nodes.set(item.key, kept);
        this.sizes.observe(node);
      }
      if (behind.nextSibling !== kept.node) behind.after(kept.node);
      behind = kept.node;
    }
  }

  // The items from the top of the screen on, with how far each stands below it (above: less than nothing).
  anchor() {
    const top = this.scrollTop;
    const found = [];
    let y = 0;
    for (const item of this.items) {
      const height = this.height(item);
      if (y + height > top) found.push({ key: item.key, below: y - top });
      if (found.length === 20) break;
      y += height;
    }
    return found;
  }

  // Where the screen begins, so that the first of the anchor's items that is still there stands where it stood.
  offset(anchor) {
    const below = new Map(anchor.map((one) => [one.key, one.below]));
    let y = 0;
    for (const item of this.items) {
      if (below.has(item.key)) return Math.max(0, y - below.get(item.key));
      y += this.height(item);
    }
    return this.scrollTop;
  }

  measured(entries) {
    let changed = false;
    for (const entry of entries) {
      const key = entry.target.dataset.key;
      const height = entry.borderBoxSize?.[0]?.blockSize ?? entry.target.offsetHeight;
      reachable(entry.target);
      if (!height || this.heights.get(key) === height) continue;
      // Items above the screen that turn out taller must not push what is being read.
      const above = !this.follows && entry.target.offsetTop + height < this.scrollTop;
      if (above) this.scrollTop += height - (this.heights.get(key) ?? GUESS);
      this.heights.set(key, height);
      changed = true;
    }
    if (changed) this.later();
  }
}

// An element made anew takes the focus over from the one it stands for.
function exchange(before, node) {
  const place = before.contains(document.activeElement) ? focusable(before).indexOf(document.activeElement) : -1;
  before.replaceWith(node);
  if (place >= 0) focusable(node)[place]?.focus({ preventScroll: true });
}

const focusable = (element) => [...element.querySelectorAll("summary, button, a, textarea, input, [tabindex]")];

customElements.define("virtual-list", VirtualList);
