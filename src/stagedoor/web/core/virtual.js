// A list of thousands of items of unknown height, of which only those near the screen exist. Heights are measured when
// an item was on screen and guessed before; what the user reads stays where it is.

import { focusable, isHeld, makeReachable } from "./dom.js";

const AROUND = 800;
const GUESS = 72;
const NEAR_END = 40;
const ANCHORS = 20;
const ARRIVAL = 500; // ms; a card takes no tap for longer than that, so none can be missed
const QUIET = 100;

export class VirtualList extends HTMLElement {
  /** @type {Map<string, number>} */
  heights = new Map();
  /** @type {Map<string, { node: HTMLElement, version: number }>} */
  nodes = new Map();
  /** @type {Page.Item[]} */
  items = [];
  /** @type {Page.MakeElement | null} */
  make = null;
  sticky = true;
  lastTop = 0;
  forced = false;
  /** Until what stands at the end has its true height, the end is kept in view, also with a question there. */
  arrived = 0;
  quiet = 0;
  nextFrame = 0;
  above = document.createElement("div");
  below = document.createElement("div");
  sizes = new ResizeObserver((entries) => this.measure(entries));
  frame = new ResizeObserver(() => this.drawSoon());

  connectedCallback() {
    if (this.firstElementChild) return;
    this.tabIndex = 0;
    const inner = document.createElement("div");
    inner.className = "virtual-inner";
    inner.append(this.above, this.below);
    this.append(inner);
    this.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.frame.observe(this);
  }

  disconnectedCallback() {
    this.sizes.disconnect();
    this.frame.disconnect();
  }

  /**
   * ``make(item)`` gives an element; it is made again when the item's version has changed.
   * @param {Page.Item[]} items
   * @param {Page.MakeElement} make
   */
  show(items, make) {
    if (!this.arrived && items.length > 1) {
      this.arrived = performance.now();
      this.quiet = this.arrived + QUIET;
    }
    const anchor = this.follows ? undefined : this.anchor();
    this.items = items;
    this.make = make;
    this.draw(anchor);
  }

  // Only a reader who goes up leaves the end; what comes and grows moves the end away from the reader, too.
  scrolled() {
    this.sticky = this.atEnd || (this.sticky && this.scrollTop >= this.lastTop);
    this.lastTop = this.scrollTop;
    if (this.scrollTop < AROUND) this.dispatchEvent(new Event("top"));
    this.drawSoon();
  }

  /** @param {number} top */
  moveTo(top) {
    this.scrollTop = top;
    this.lastTop = this.scrollTop; // not the reader's doing
  }

  drawSoon() {
    this.nextFrame ||= requestAnimationFrame(() => {
      this.nextFrame = 0;
      this.draw();
    });
  }

  toEnd() {
    this.sticky = true;
    this.forced = true;
    this.draw();
    this.forced = false;
  }

  // Scroll with what comes; but never while a question is on screen, which must not move under a hand.
  get follows() {
    return this.sticky && (this.forced || this.arriving || !this.showsQuestion());
  }

  get arriving() {
    const now = performance.now();
    return now < this.quiet && now < this.arrived + ARRIVAL;
  }

  showsQuestion() {
    const { top, bottom } = this.getBoundingClientRect();
    return [...this.querySelectorAll(".question:not(.closed)")].some((card) => {
      const place = card.getBoundingClientRect();
      return place.top >= top - 1 && place.bottom <= bottom + 1;
    });
  }

  get atEnd() {
    return this.scrollHeight - this.scrollTop - this.clientHeight < NEAR_END;
  }

  /** @param {Page.Item} item */
  height(item) {
    return this.heights.get(item.key) ?? GUESS;
  }

  /**
   * While the reader is in the middle, the first item on screen is the anchor: it stays where it is, also when others
   * came before it.
   * @param {Page.Anchor} [before] as it was before the items changed
   */
  draw(before) {
    if (!this.make) return;
    const follows = this.follows;
    const anchor = follows ? undefined : (before ?? this.anchor());
    const total = this.items.reduce((sum, item) => sum + this.height(item), 0);
    let top = follows ? Math.max(0, total - this.clientHeight) : this.scrollTop;
    if (anchor) top = this.offset(anchor);
    const from = top - AROUND;
    const to = top + this.clientHeight + AROUND;
    let y = 0;
    let heightAbove = 0;
    let heightBelow = 0;
    const near = [];
    for (const item of this.items) {
      const height = this.height(item);
      if (y + height < from) heightAbove += height;
      else if (y > to) heightBelow += height;
      else near.push(item);
      y += height;
    }
    this.place(near, this.make);
    this.above.style.height = `${heightAbove}px`;
    this.below.style.height = `${heightBelow}px`;
    if (follows) this.moveTo(this.scrollHeight);
    else if (anchor && Math.abs(this.scrollTop - top) > 1) this.moveTo(top);
    this.dispatchEvent(new Event("drawn"));
  }

  /**
   * @param {Page.Item[]} near
   * @param {Page.MakeElement} make
   */
  place(near, make) {
    const keys = new Set(near.map((item) => item.key));
    for (const [key, { node }] of this.nodes) {
      if (keys.has(key)) continue;
      this.sizes.unobserve(node);
      node.remove();
      this.nodes.delete(key);
    }
    let behind = this.above;
    for (const item of near) {
      const old = this.nodes.get(item.key);
      const stays = old && (old.version === item.version || isHeld(old.node, () => this.drawSoon()));
      const node = stays ? old.node : this.remake(item, make, old?.node);
      if (behind.nextSibling !== node) behind.after(node);
      behind = /** @type {HTMLDivElement} */ (node);
    }
  }

  /**
   * @param {Page.Item} item
   * @param {Page.MakeElement} make
   * @param {HTMLElement} [before]
   */
  remake(item, make, before) {
    const node = make(item, before);
    if (before && before !== node) {
      this.sizes.unobserve(before);
      exchange(before, node);
    }
    node.dataset.key = item.key;
    this.nodes.set(item.key, { node, version: item.version });
    this.sizes.observe(node);
    return node;
  }

  /** @returns {Page.Anchor} */
  anchor() {
    const top = this.scrollTop;
    const anchor = [];
    let y = 0;
    for (const item of this.items) {
      const height = this.height(item);
      if (y + height > top) anchor.push({ key: item.key, below: y - top });
      if (anchor.length === ANCHORS) break;
      y += height;
    }
    return anchor;
  }

  /**
   * Where the screen begins, so that the first of the anchor's items that still exists stands where it was.
   * @param {Page.Anchor} anchor
   */
  offset(anchor) {
    const below = new Map(anchor.map((item) => [item.key, item.below]));
    let y = 0;
    for (const item of this.items) {
      const distance = below.get(item.key);
      if (distance !== undefined) return Math.max(0, y - distance);
      y += this.height(item);
    }
    return this.scrollTop;
  }

  /** @param {ResizeObserverEntry[]} entries */
  measure(entries) {
    let changed = false;
    for (const entry of entries) {
      const node = /** @type {HTMLElement} */ (entry.target);
      const key = node.dataset.key ?? "";
      const height = entry.borderBoxSize?.[0]?.blockSize ?? node.offsetHeight;
      makeReachable(node);
      if (!height || this.heights.get(key) === height) continue;
      // Items above the screen that turn out taller must not push what is being read.
      const isAbove = !this.follows && node.offsetTop + height < this.scrollTop;
      if (isAbove) this.moveTo(this.scrollTop + height - (this.heights.get(key) ?? GUESS));
      this.heights.set(key, height);
      changed = true;
    }
    if (!changed) return;
    if (this.arriving) this.quiet = performance.now() + QUIET;
    this.drawSoon();
  }
}

/**
 * A new element takes over the focus from the one it stands for.
 * @param {HTMLElement} before
 * @param {HTMLElement} node
 */
function exchange(before, node) {
  const active = document.activeElement;
  const place = active && before.contains(active) ? focusable(before).indexOf(active) : -1;
  before.replaceWith(node);
  const next = focusable(node)[place];
  if (next instanceof HTMLElement) next.focus({ preventScroll: true });
}

customElements.define("virtual-list", VirtualList);
