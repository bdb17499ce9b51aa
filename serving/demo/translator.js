// The view of translators: a text of any length, its best translations, and what each word attended to.

import { ask } from "./api.js";
import { Graph } from "./graph.js";
import { Texts } from "./texts.js";
import { available, seen } from "./views.js";
import { differences } from "./words.js";

const at = (id) => document.getElementById(id);
const TOUCH = matchMedia("(pointer: coarse)").matches;
const HINT = TOUCH
  ? "Tap a word to see what it attends to; tap it again to let go."
  : "Point at a word to see what it attends to, or use the arrow keys. Click or Enter keeps it.";
const CHOOSE = `${TOUCH ? "tap" : "click"} a sentence to see its attention`;

export class Translator {
  constructor({ later, fails }) {
    const [source, target] = ["source", "translation"].map(languageOf);
    this.names = { source: source ?? "Source", target: target ?? "Translation" };
    this.title = source && target ? `From ${source} to ${target}` : "A translator";
    this.labels = {
      translation: `${this.names.target} to ${this.names.source}`,
      source: `within ${this.names.source}`,
      target: `within ${this.names.target}`,
    };
    this.fails = fails;
    at("terms").addEventListener("input", () => {
      this.forget();
      later(250);
    });
    this.graph = new Graph(at("graph"), this.names, (...word) => this.light(...word));
    this.texts = new Texts(at("source"), at("backdrop"), at("translation"));
    this.signal = null; // of the current text's requests
    this.explanation = null; // the last one; the graph shows one view of it
    this.view = "translation";
    this.shown = null; // the sentence that is explained
    this.wanted = null; // the sentence that was asked for last, and its answers
    this.pasted = 0; // where what is being pasted begins
    this.listen();
    this.light(null);
  }

  /** What the copy button copies. */
  get text() {
    return at("translation").textContent;
  }

  /** Terms and their given translations, as they are written below the text; null without any. */
  get terms() {
    const pairs = at("terms").value.split("\n").map((line) => line.split(/[=\t]/).map((part) => part.trim()));
    const found = pairs.filter(([term, translation]) => term && translation);
    return found.length ? Object.fromEntries(found) : null;
  }

  listen() {
    const source = at("source");
    source.addEventListener("beforeinput", () => { this.pasted = source.selectionStart; });
    source.addEventListener("input", ({ inputType }) => {
      this.texts.place = inputType?.startsWith("insertFrom") ? this.pasted : source.selectionStart;
    });
    source.addEventListener("change", () => { this.texts.place = source.selectionStart; });
    for (const event of ["click", "keyup"]) {
      source.addEventListener(event, () => this.choose(source.selectionStart));
    }
    const translation = at("translation");
    translation.addEventListener("click", ({ target }) => {
      const sentence = this.texts.sentences[target.closest("[data-sentence]")?.dataset.sentence];
      if (!sentence) return;
      this.choose(sentence.start);
      const card = at("attention");
      if (card.getBoundingClientRect().top > 0.8 * innerHeight) card.scrollIntoView({ block: "nearest" });
    });
    for (const [event, over] of [["pointerover", true], ["pointerout", false]]) {
      translation.addEventListener(event, ({ target }) => {
        const { index } = target.dataset;
        if (index !== undefined) this.graph.point(over ? { side: "target", index: Number(index) } : null);
      });
    }
    at("pieces").addEventListener("change", (event) => {
      this.graph.merge = !event.target.checked;
      this.graph.draw();
      if (this.shown !== null) this.mark();
    });
    at("views").addEventListener("change", ({ target }) => {
      this.view = target.value;
      if (this.explanation) this.showView();
    });
    for (const name of ["layers", "heads"]) at(name).addEventListener("change", () => this.chooseHeads());
  }

  /** Translates the paragraphs that are new, the first ones first, and shows them as they come. */
  async update(text, signal) {
    this.signal = signal;
    let [milliseconds, truncated] = [0, false];
    const groups = this.texts.read();
    for (const group of groups) {
      const answer = await ask("document", { texts: group, terms: this.terms }, signal);
      this.texts.answer(group, answer.documents);
      milliseconds += answer.milliseconds;
      truncated ||= answer.documents.some((one) => one.truncated);
      document.body.classList.remove("waiting");
      this.explain().catch(() => {}); // asked again below, where errors are reported
    }
    const notes = [];
    const { length } = this.texts.sentences;
    if (truncated) notes.push("too long for the model: only the beginning was translated");
    if (length > 1) notes.push(`${length} sentences`);
    if (groups.length) notes.push(`${Math.round(milliseconds)} ms`);
    if (length > 1) notes.push(CHOOSE);
    at("note").textContent = notes.join(" · ");
    at("note").hidden = !notes.length;
    await this.explain();
  }

  /** The answers of `explain` and `translate` to a sentence, which is not asked for twice at a time. */
  answers(text) {
    const { signal } = this;
    if (this.wanted?.text !== text || this.wanted.signal !== signal) {
      const all = ["explain", "translate"].map((what) => ask(what, { texts: [text] }, signal));
      this.wanted = { text, signal, found: Promise.all(all) };
    }
    return this.wanted.found;
  }

  /** Chooses the sentence at a place of the source. */
  choose(place) {
    if (this.texts.text !== at("source").value) return; // it will be read soon
    this.texts.place = place;
    this.explain().catch(this.fails);
  }

  /** Shows the best translations and the attention of the chosen sentence. */
  async explain() {
    const { texts } = this;
    if (this.terms) return this.showNothing(); // what is explained is translated without them
    const text = texts.chosen?.source ?? null;
    if (text !== null && text !== this.shown) {
      const [answer, best] = await this.answers(text);
      if (text !== texts.chosen?.source) return; // another one was chosen meanwhile
      this.shown = text;
      showHypotheses(best);
      this.showExplanation(answer);
    } else if (text !== null) {
      this.mark();
    } else if (texts.paragraphs.every(({ pieces }) => pieces)) {
      this.showNothing();
    }
    const { chosen } = texts;
    at("sentence").hidden = texts.sentences.length < 2;
    at("sentence").textContent = chosen && `${chosen.source} → ${chosen.target}`;
    texts.showChosen();
  }

  showExplanation(explanation) {
    this.explanation = explanation;
    const views = available(explanation);
    if (!views.includes(this.view)) [this.view] = views;
    this.chooser("views", "radio", views, (value) => value === this.view);
    at("views").hidden = views.length < 2;
    at("graph").classList.toggle("empty", explanation.target_tokens.length === 0);
    this.showView();
  }

  /** Shows what is chosen to be seen of the explanation. */
  showView() {
    const { graph } = this;
    graph.show(seen(this.explanation, this.view));
    this.chooser("layers", "radio", ["all", ...count(graph.shape.layers)], (value) => (
      value === "all" ? graph.layer === null : graph.layer === value - 1
    ));
    this.chooser("heads", "checkbox", count(graph.shape.heads), (value) => graph.heads.has(value - 1));
    at("heads").disabled = graph.layer === null;
    this.mark();
  }

  chooser(id, type, values, chosen) {
    const field = at(id);
    const known = [...field.querySelectorAll("input")].map((input) => input.value).join();
    if (known !== values.join()) {
      field.querySelectorAll("label").forEach((label) => label.remove());
      values.forEach((value, n) => {
        const label = document.createElement("label");
        const input = Object.assign(document.createElement("input"), { type, name: id, value });
        const text = document.createElement("span");
        text.textContent = this.labels[value] ?? value;
        if (id === "heads") label.style.setProperty("--color", `var(--head-${n % 8})`);
        label.append(input, text);
        field.append(label);
      });
    }
    for (const input of field.querySelectorAll("input")) {
      input.checked = chosen(Number(input.value) || input.value);
    }
  }

  chooseHeads() {
    const { graph } = this;
    const layer = at("layers").querySelector(":checked")?.value ?? "all";
    graph.layer = layer === "all" ? null : Number(layer) - 1;
    const heads = [...at("heads").querySelectorAll(":checked")];
    graph.heads = new Set(heads.map((input) => Number(input.value) - 1));
    at("heads").disabled = graph.layer === null;
    graph.draw();
  }

  /** In which text above the words of each of the graph's columns stand; of self-attention, of one. */
  sides() {
    const views = { translation: { source: "source", target: "target" }, source: { source: "source" } };
    return views[this.view] ?? { source: "target" };
  }

  /** Makes the words of the graph known in the texts above. */
  mark() {
    const { words } = this.graph;
    this.texts.mark(Object.fromEntries(
      Object.entries(this.sides()).map(([side, text]) => [text, words[side]]),
    ));
  }

  /** Highlights the graph's active word in the texts, and words of the other text by weight. */
  light(side, index, weights) {
    for (const [name, text] of Object.entries(this.sides())) {
      for (const [place, span] of this.texts.words(text)) {
        const share = side === null ? 0 : name === side ? Number(place === index) : weights[place];
        span.style.setProperty("--share", Math.sqrt(share).toFixed(3));
        span.classList.toggle("self", side === name && place === index);
      }
    }
    at("hint").replaceChildren(...(side === null ? [HINT] : this.inWords(side, index, weights)));
  }

  /** The weights as a line of text: `it · Attends to: animal 37 %, O 22 %`. */
  inWords(side, index, weights) {
    const others = this.graph.words[side === "source" ? "target" : "source"];
    const most = weights.map((weight, place) => [weight, others[place].text])
      .filter(([weight]) => weight >= 0.05).sort(([a], [b]) => b - a).slice(0, 5)
      .map(([weight, text]) => `${named(text)} ${Math.round(100 * weight)} %`);
    const word = document.createElement("strong");
    word.textContent = named(this.graph.words[side][index].text);
    const verb = side === "target" ? " · Attends to: " : " · Attended to by: ";
    return [word, verb, most.join(", ") || "no word in particular"];
  }

  /** Shows that there is no text. */
  clear() {
    this.texts.read();
    at("translation").textContent = "";
    at("note").hidden = at("sentence").hidden = true;
    this.showNothing();
  }

  /** Forgets the answers of another version. */
  forget() {
    this.texts.forget();
    this.shown = null;
  }

  /** Shows that there is no sentence. */
  showNothing() {
    const { graph } = this;
    showHypotheses({ hypotheses: [] });
    this.shown = this.explanation = null;
    const heads = graph.explanation?.heads.map((layer) => layer.map(() => [])) ?? [];
    graph.show({ source_tokens: [], target_tokens: [], attention: [], heads });
    at("graph").classList.add("empty");
  }
}

function showHypotheses({ hypotheses }) {
  at("nbest-title").hidden = hypotheses.length < 2;
  at("nbest").replaceChildren(...hypotheses.map((one) => hypothesis(one, hypotheses[0])));
}

/** A line of the list: its score, its share of the best one's, its words. */
function hypothesis({ text, score }, best) {
  const entry = document.createElement("li");
  const number = document.createElement("span");
  number.className = "score";
  number.textContent = score.toFixed(2).replace("-", "−");
  number.style.setProperty("--share", Math.exp(score - best.score).toFixed(3));
  const words = document.createElement("span");
  words.append(...differences(text, best.text).map(({ text: word, differs }) => {
    if (!differs) return word;
    const mark = document.createElement("mark");
    mark.textContent = word.trimEnd();
    return [mark, word.slice(mark.textContent.length)];
  }).flat());
  entry.append(number, words);
  return entry;
}

/** The English name of an element's language; null if it is not known. */
function languageOf(id) {
  const { lang } = at(id);
  try {
    return lang ? new Intl.DisplayNames(["en"], { type: "language" }).of(lang) : null;
  } catch {
    return lang; // no code of a language
  }
}

/** A word as part of a sentence, with quotes if it is punctuation. */
function named(text) {
  return /[\p{L}\p{N}]/u.test(text) ? text : `“${text}”`;
}

function count(n) {
  return Array.from({ length: n }, (_, i) => i + 1);
}
