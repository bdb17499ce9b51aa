// Two columns of words and the lines between them: the attention of chosen layers and heads.

import { merged, words } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const FAINT = 0.04; // weights below this have no line

/** The view of an explanation.
 *
 * `languages` names those of `source` and `target`. `onActive(side, weights)` is called with ("source" | "target" | null, weight of each word of the
 * other side) whenever another word is pointed at. */
export class Graph {
  constructor(element, languages, onActive) {
    this.element = element;
    this.onActive = onActive;
    this.layer = null; // null for the mean of all layers
    this.heads = new Set(); // empty for the mean of the layer's heads
    this.merge = true;
    this.held = null;
    this.active = null;
    const [source, target] = ["source", "target"].map((side) => column(side, languages[side]));
    this.columns = { source, target };
    this.lines = document.createElementNS(SVG, "svg");
    this.lines.setAttribute("preserveAspectRatio", "none");
    this.lines.setAttribute("aria-hidden", "true");
    element.append(this.columns.source, this.lines, this.columns.target);
    element.addEventListener("pointerover", (event) => this.point(wordAt(event.target)));
    element.addEventListener("pointerleave", () => this.point(null));
    element.addEventListener("focusin", (event) => this.point(wordAt(event.target)));
    element.addEventListener("focusout", () => this.point(null));
    element.addEventListener("click", (event) => this.hold(wordAt(event.target)));
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows another explanation. */
  show(explanation) {
    this.explanation = explanation;
    const layers = explanation.heads.length;
    if (this.layer !== null && this.layer >= layers) this.layer = null;
    this.held = null;
    this.draw();
  }

  /** Number of layers and of heads in each. */
  get shape() {
    const heads = this.explanation?.heads ?? [];
    return { layers: heads.length, heads: heads[0]?.length ?? 0 };
  }

  draw() {
    if (!this.explanation) return;
    const { source_tokens: source, target_tokens: target } = this.explanation;
    this.words = { source: words(source, this.merge), target: words(target, this.merge) };
    this.shown = this.chosen().map(({ color, weights }) => (
      { color, weights: merged(weights, this.words.source, this.words.target) }
    ));
    for (const side of ["source", "target"]) {
      this.columns[side].replaceChildren(...this.words[side].map((word, index) => (
        item(word, side, index)
      )));
    }
    this.columns.source.querySelector("button")?.setAttribute("tabindex", "0");
    this.drawLines();
    this.point(null);
  }

  /** The weights to show: [{color, weights [target][source]}]. */
  chosen() {
    const { attention, heads } = this.explanation;
    if (this.layer === null) return [{ color: "var(--accent)", weights: attention }];
    const layer = heads[this.layer];
    const picked = [...this.heads].filter((head) => head < layer.length).sort((a, b) => a - b);
    if (picked.length) {
      return picked.map((head) => ({ color: `var(--head-${head % 8})`, weights: layer[head] }));
    }
    const mean = layer[0].map((row, t) => row.map((_, s) => (
      layer.reduce((sum, head) => sum + head[t][s], 0) / layer.length
    )));
    return [{ color: "var(--accent)", weights: mean }];
  }

  drawLines() {
    const rows = Math.max(this.words.source.length, this.words.target.length, 1);
    this.lines.setAttribute("viewBox", `0 0 100 ${rows}`);
    this.element.style.setProperty("--rows", rows);
    const paths = [];
    this.shown.forEach(({ color, weights }, layer) => {
      const offset = (layer + 1) / (this.shown.length + 1); // side by side, one line for each head
      weights.forEach((row, t) => row.forEach((weight, s) => {
        if (weight >= FAINT) paths.push(line(s + offset, t + offset, weight, color, s, t));
      }));
    });
    this.lines.replaceChildren(...paths);
  }

  /** Highlights what a word ({side, index}) attended to, or what attended to it. */
  point(word) {
    const now = word ?? this.held;
    if (!this.words || same(now, this.active)) return;
    this.active = now;
    this.element.classList.toggle("pointing", now !== null);
    for (const path of this.lines.children) {
      path.classList.toggle("lit", now !== null && Number(path.dataset[now.side]) === now.index);
    }
    for (const side of ["source", "target"]) {
      const buttons = this.columns[side].querySelectorAll("button");
      const shares = now && now.side !== side ? this.shares(now) : null;
      buttons.forEach((button, index) => {
        button.classList.toggle("active", now?.side === side && now.index === index);
        paint(button, shares?.[index] ?? []);
      });
    }
    const totals = now && this.shares(now).map((heads) => mean(heads.map((head) => head.weight)));
    this.onActive(now?.side ?? null, now?.index ?? null, totals);
  }

  /** For each word of the other side: [{color, weight}], one for each head that is shown. */
  shares({ side, index }) {
    const other = this.words[side === "target" ? "source" : "target"];
    return other.map((_, place) => this.shown.map(({ color, weights }) => (
      { color, weight: side === "target" ? weights[index][place] : weights[place][index] }
    )));
  }

  /** Keeps a word highlighted after the pointer leaves; a second call, or one without a word, ends it. */
  hold(word) {
    this.held = same(word, this.held) ? null : word;
    for (const button of this.element.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(same(wordAt(button), this.held)));
    }
    this.point(word);
  }

  key(event) {
    const word = wordAt(event.target);
    if (!word) return;
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const side = { ArrowLeft: "source", ArrowRight: "target" }[event.key];
    if (event.key === "Escape") {
      this.hold(null);
    } else if (step || side || event.key === "Home" || event.key === "End") {
      event.preventDefault();
      const buttons = this.columns[side ?? word.side].querySelectorAll("button");
      const index = { Home: 0, End: buttons.length - 1 }[event.key] ?? word.index + (step ?? 0);
      const next = buttons[Math.max(0, Math.min(index, buttons.length - 1))];
      if (!next) return;
      event.target.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    }
  }
}

function column(side, language) {
  const list = document.createElement("ol");
  list.className = `words ${side}`;
  list.setAttribute("aria-label", `${language} words`);
  return list;
}

function item(word, side, index) {
  const button = document.createElement("button");
  button.type = "button";
  button.tabIndex = -1;
  button.dataset.side = side;
  button.dataset.index = index;
  button.classList.toggle("end", word.end);
  button.append(word.text || "·");
  const entry = document.createElement("li");
  entry.append(button);
  return entry;
}

function line(from, to, weight, color, source, target) {
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", `M0 ${from}C45 ${from} 55 ${to} 100 ${to}`);
  path.dataset.source = source;
  path.dataset.target = target;
  path.style.stroke = color;
  path.style.setProperty("--weight", weight.toFixed(3));
  return path;
}

/** Colours a word by its weights, with one stripe for each head. */
function paint(button, heads) {
  const stripes = heads.map(({ color, weight }, n) => {
    const percent = `color-mix(in srgb, ${color} ${(100 * Math.sqrt(weight)).toFixed(0)}%, transparent)`;
    return `${percent} ${(100 * n) / heads.length}% ${(100 * (n + 1)) / heads.length}%`;
  });
  button.style.background = stripes.length ? `linear-gradient(90deg, ${stripes.join(", ")})` : "";
  const share = mean(heads.map((head) => head.weight));
  button.classList.toggle("strong", share > 0.5);
  if (share >= 0.01) button.dataset.share = `${Math.round(100 * share)} %`;
  else delete button.dataset.share;
}

function wordAt(element) {
  const button = element.closest?.("button[data-side]");
  return button ? { side: button.dataset.side, index: Number(button.dataset.index) } : null;
}

function same(one, other) {
  return one === other || (one?.side === other?.side && one?.index === other?.index);
}

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
}
