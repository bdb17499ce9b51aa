// The two texts: paragraphs as they are translated, sentences to choose, words to light up.

import { places } from "./words.js";

const FIRST = 300; // characters of the paragraphs in the first request, which is soon answered
const MORE = 1500; // in each later one
const MOST = 100; // paragraphs in a request, which servers limit
const LONG = 400; // characters of a text that is shown in smaller letters

/** The source, a textarea with a backdrop that shows what is lit in it, and its translation. */
export class Texts {
  constructor(source, backdrop, translation) {
    Object.assign(this, { source, backdrop, translation });
    this.place = 0; // in the source; its sentence is the chosen one
    this.forget();
    backdrop.replaceChildren(mirrored(source.value));
  }

  /** Forgets all translations. */
  forget() {
    this.known = new Map(); // from the text of a paragraph to its pieces
    this.paragraphs = [];
    this.sentences = [];
  }

  /** Reads the source; returns the paragraphs that have no translation yet, in groups. */
  read() {
    const before = this.paragraphs;
    this.text = this.source.value;
    this.paragraphs = (this.text.match(/[^\n]*\n|[^\n]+/g) ?? []).map((text, index) => ({
      text,
      pieces: text.trim() ? this.known.get(text) : [[text, text]],
      stale: before[index]?.pieces ?? before[index]?.stale,
    }));
    this.known = new Map(this.paragraphs.map(({ text, pieces }) => [text, pieces]));
    this.render();
    return grouped([...this.known.keys()].filter((text) => !this.known.get(text)));
  }

  /** Shows the translations of some paragraphs. */
  answer(texts, documents) {
    texts.forEach((text, index) => this.known.set(text, documents[index].pieces));
    for (const paragraph of this.paragraphs) paragraph.pieces ??= this.known.get(paragraph.text);
    this.render();
  }

  render() {
    const [left, right] = [[], []];
    this.sentences = [];
    let start = 0;
    for (const { text, pieces, stale } of this.paragraphs) {
      let from = start;
      for (const [source, target] of pieces ?? []) {
        const spans = [source, target];
        if (/\p{L}/u.test(source) || source !== target) {
          const sentence = { source, target, start: from, spans: spans.map((part) => span(part)) };
          sentence.spans[1].dataset.sentence = this.sentences.push(sentence) - 1;
          spans.splice(0, 2, ...sentence.spans);
        }
        left.push(spans[0]);
        right.push(spans[1]);
        from += source.length;
      }
      if (!pieces) {
        left.push(text);
        right.push(span(stale?.map(([, target]) => target).join("") ?? text, "pending"));
      }
      start += text.length;
    }
    document.body.classList.toggle("long", this.text.length > LONG);
    this.backdrop.replaceChildren(...left, mirrored(""));
    this.translation.replaceChildren(...right);
    this.showChosen();
  }

  /** The sentence at the place, null while its paragraph has no translation. */
  get chosen() {
    let end = 0;
    const paragraph = this.paragraphs.find(({ text }) => (end += text.length) > this.place);
    if ((paragraph ?? this.paragraphs.at(-1))?.pieces === undefined) return null;
    return this.sentences.findLast(({ start }) => start <= this.place) ?? this.sentences[0] ?? null;
  }

  /** Marks the chosen sentence, if there are others, and scrolls both texts to it. */
  showChosen() {
    const { chosen } = this;
    for (const sentence of this.sentences) {
      const marked = sentence === chosen && this.sentences.length > 1;
      for (const element of sentence.spans) element.classList.toggle("chosen", marked);
    }
    if (!chosen) return;
    reveal(chosen.spans[0], this.backdrop.parentElement);
    reveal(chosen.spans[1], this.translation);
  }

  /** Makes words of the chosen sentence known: those of its source, of its translation, or both. */
  mark(words) {
    const { chosen } = this;
    for (const { source, target, spans } of this.sentences) {
      const own = { source: [], target: [], ...(spans === chosen?.spans && words) };
      spread(spans[0], source, own.source);
      spread(spans[1], target, own.target);
    }
  }

  /** The elements of the words that are known on a side: [[index, element], ...]. */
  words(side) {
    const element = this.chosen?.spans[side === "source" ? 0 : 1];
    const found = element?.querySelectorAll("[data-index]") ?? [];
    return [...found].map((word) => [Number(word.dataset.index), word]);
  }
}

/** Lists of paragraphs, each for one request. */
function grouped(paragraphs) {
  const groups = [];
  let length = Infinity;
  for (const text of paragraphs) {
    if (length > (groups.length > 1 ? MORE : FIRST) || groups.at(-1).length >= MOST) {
      groups.push([]);
      length = 0;
    }
    groups.at(-1).push(text);
    length += text.length;
  }
  return groups;
}

/** A text as the backdrop has it: as high as in the textarea, even if it ends with a line end. */
export function mirrored(text) {
  return `${text}\u200b`;
}

function span(text, name = "sentence") {
  return Object.assign(document.createElement("span"), { textContent: text, className: name });
}

/** Scrolls a box, and nothing else, until an element in it can be seen. */
function reveal(element, box) {
  const [inner, outer] = [element, box].map((one) => one.getBoundingClientRect());
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) {
    box.scrollTop += Math.min(inner.bottom - outer.bottom, inner.top - outer.top);
  }
}

/** Puts a text into an element, with a span for each word that is found in it. */
function spread(element, text, words) {
  const parts = [];
  let from = 0;
  places(words, text).forEach((place, index) => {
    if (!place) return;
    const word = span(text.slice(...place), "word");
    word.dataset.index = index;
    parts.push(text.slice(from, place[0]), word);
    [, from] = place;
  });
  element.replaceChildren(...parts, text.slice(from));
}
