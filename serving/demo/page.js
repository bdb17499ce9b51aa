// The page: sends the text to the server, shows the answers, and reports errors and retries.

import { Graph } from "./graph.js";
import { mirrored, Texts } from "./texts.js";
import { available, seen } from "./views.js";
import { differences } from "./words.js";

const PAUSE = 250; // ms without a key press before a text is sent
const AGAIN = 2000; // ms between attempts while no server answers
const SOON = 500; // ms between attempts while the model is loading
const WATCH = 3000; // ms between requests for the served version
const ENDED = "The model server has ended";
const NO_TRANSLATOR = "This model is not a translator: ask a classifier, a tagger or a language "
  + "model with serving/client.py --ask classify, tag or complete";
const EXAMPLES = [ // in Portuguese
  "Helena não vai lavar o carro dele porque está cansada.",
  "O tio dele acha que você vai abraçar minhas avós na sexta-feira.",
  "A que horas Rafael volta aos domingos?",
  "Este caminhão é mais novo do que aquele.",
  "O gato está na mesa.",
];

const at = (id) => document.getElementById(id);
const [source, backdrop, translation, nbest, trouble] = [
  "source", "backdrop", "translation", "nbest", "trouble",
].map(at);
const LANGUAGES = {
  source: languageOf(source) ?? "Source", target: languageOf(translation) ?? "Translation",
};
const LABELS = {
  translation: `${LANGUAGES.target} to ${LANGUAGES.source}`,
  source: `within ${LANGUAGES.source}`,
  target: `within ${LANGUAGES.target}`,
};
const graph = new Graph(at("graph"), LANGUAGES, light);
const texts = new Texts(source, backdrop, translation);
const TOUCH = matchMedia("(pointer: coarse)").matches;
const HINT = TOUCH
  ? "Tap a word to see what it attends to; tap it again to let go."
  : "Point at a word to see what it attends to, or use the arrow keys. Click or Enter keeps it.";
const CHOOSE = `${TOUCH ? "tap" : "click"} a sentence to see its attention`;
let asking = new AbortController();
let timer = null;
let watch = null;
let explanation = null; // the last explanation; the graph shows one view of it
let view = "translation";
let shown = null; // the sentence that is explained
let wanted = null; // the sentence that was asked for last, and its answers
let pasted = 0; // where what is being pasted begins

source.addEventListener("beforeinput", () => { pasted = source.selectionStart; });
source.addEventListener("input", ({ inputType }) => {
  backdrop.textContent = mirrored(source.value);
  texts.place = inputType?.startsWith("insertFrom") ? pasted : source.selectionStart;
  later(PAUSE);
});
for (const event of ["click", "keyup"]) {
  source.addEventListener(event, () => choose(source.selectionStart));
}
translation.addEventListener("click", ({ target }) => {
  const sentence = texts.sentences[target.closest("[data-sentence]")?.dataset.sentence];
  if (!sentence) return;
  choose(sentence.start);
  const card = at("attention");
  if (card.getBoundingClientRect().top > 0.8 * innerHeight) card.scrollIntoView({ block: "nearest" });
});
at("pieces").addEventListener("change", (event) => {
  graph.merge = !event.target.checked;
  redraw();
});
at("views").addEventListener("change", ({ target }) => {
  view = target.value;
  if (explanation) showView();
});
for (const name of ["layers", "heads"]) at(name).addEventListener("change", chooseHeads);
for (const [event, over] of [["pointerover", true], ["pointerout", false]]) {
  translation.addEventListener(event, ({ target }) => {
    const { index } = target.dataset;
    if (index !== undefined) graph.point(over ? { side: "target", index: Number(index) } : null);
  });
}

/** The English name of an element's language; null if it is not known. */
function languageOf({ lang }) {
  try {
    return lang ? new Intl.DisplayNames(["en"], { type: "language" }).of(lang) : null;
  } catch {
    return lang; // no code of a language
  }
}

function later(pause) {
  clearTimeout(timer);
  timer = setTimeout(update, pause);
}

/** Sends the current text; answers for older texts are dropped. */
async function update() {
  const text = source.value;
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  history.replaceState(null, "", text ? `#${encodeURIComponent(text)}` : "#");
  if (!text.trim()) return clear();
  document.body.classList.add("waiting");
  try {
    await translate(signal);
    await explain();
    works();
  } catch (error) {
    if (error.name !== "AbortError") fails(error);
  } finally {
    if (!signal.aborted) document.body.classList.remove("waiting");
  }
}

/** Translates the paragraphs that are new, the first ones first, and shows them as they come. */
async function translate(signal) {
  let [milliseconds, truncated] = [0, false];
  const groups = texts.read();
  for (const group of groups) {
    const answer = await ask("document", group, signal);
    texts.answer(group, answer.documents);
    milliseconds += answer.milliseconds;
    truncated ||= answer.documents.some((one) => one.truncated);
    document.body.classList.remove("waiting");
    explain().catch(() => {}); // the caller reports its errors
  }
  const notes = [];
  if (truncated) notes.push("too long for the model: only the beginning was translated");
  if (texts.sentences.length > 1) notes.push(`${texts.sentences.length} sentences`);
  if (groups.length) notes.push(`${Math.round(milliseconds)} ms`);
  if (texts.sentences.length > 1) notes.push(CHOOSE);
  at("note").textContent = notes.join(" · ");
  at("note").hidden = !notes.length;
}

/** The answers of `explain` and `translate` to a sentence, which is not asked for twice at a time. */
function answers(text) {
  const { signal } = asking;
  if (wanted?.text !== text || wanted.signal !== signal) {
    const all = ["explain", "translate"].map((what) => ask(what, [text], signal));
    wanted = { text, signal, found: Promise.all(all) };
  }
  return wanted.found;
}

/** Chooses the sentence at a place of the source. */
function choose(place) {
  if (texts.text !== source.value) return; // it will be read soon
  texts.place = place;
  explain().catch((error) => { if (error.name !== "AbortError") fails(error); });
}

/** Shows the best translations and the attention of the chosen sentence. */
async function explain() {
  const text = texts.chosen?.source ?? null;
  if (text !== null && text !== shown) {
    const [answer, best] = await answers(text);
    if (text !== texts.chosen?.source) return; // another one was chosen meanwhile
    shown = text;
    showHypotheses(best);
    showExplanation(answer);
  } else if (text !== null) {
    mark();
  } else if (texts.paragraphs.every(({ pieces }) => pieces)) {
    showNothing();
  }
  const { chosen } = texts;
  at("sentence").hidden = texts.sentences.length < 2;
  at("sentence").textContent = chosen && `${chosen.source} → ${chosen.target}`;
  texts.showChosen();
}

/** The server's answer as an object; throws an Error whose `again` says whether to retry. */
async function ask(what, content, signal) {
  let answer;
  try {
    answer = await fetch(`api/${what}`, {
      signal,
      ...(content !== undefined && {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ texts: content }),
      }),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw problem("demo.py is not running", "Start it again; this page then goes on.", true);
  }
  const found = await answer.json();
  if (answer.ok) return found;
  const { code, error } = found;
  if (code === "LOADING") throw Object.assign(new Error(error), { loading: true });
  if (code === "ENDED") throw problem(ENDED, "Start demo.py again; this page then goes on.", true);
  if (code === "NO_TRANSLATOR") throw problem(NO_TRANSLATOR, error, false);
  const silent = ["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(code);
  const title = silent ? "The prediction server does not answer" : "This text could not be translated";
  throw problem(title, error, silent);
}

function problem(title, message, again) {
  return Object.assign(new Error(message), { title, again });
}

function fails(error) {
  if (error.loading) return waits();
  const details = document.createElement("small");
  details.textContent = error.message;
  trouble.replaceChildren(error.again ? `${error.title} — trying again …` : error.title, details);
  trouble.hidden = false;
  at("loading").hidden = true;
  document.body.classList.remove("wait");
  document.body.classList.add("down");
  at("server").textContent = "not connected";
  if (error.again) later(AGAIN);
}

/** Says that the model is loading, and retries soon. */
function waits() {
  trouble.hidden = true;
  at("loading").hidden = false;
  document.body.classList.remove("down");
  document.body.classList.add("wait");
  at("server").textContent = "loading …";
  later(SOON);
}

function works() {
  trouble.hidden = at("loading").hidden = true;
  document.body.classList.remove("down", "wait");
  showServer();
}

/** Shows the served version and the one that is loading; translates again with a new version. */
async function showServer() {
  clearTimeout(watch);
  watch = setTimeout(showServer, WATCH);
  try {
    const { server, model, version, loading, phrasebook } = await ask("status");
    at("phrasebook").hidden = !phrasebook;
    if (version === null) return waits();
    const next = loading === null ? "" : `; version ${loading} is loading …`;
    at("server").textContent = `model ${model}, version ${version} at ${server}${next}`;
    const { known } = at("server").dataset;
    at("server").dataset.known = version;
    if (known !== undefined && known !== String(version)) {
      texts.forget();
      shown = null;
      later(0);
    }
  } catch (error) {
    fails(error);
  }
}

function showHypotheses({ hypotheses }) {
  const [best] = hypotheses;
  at("nbest-title").hidden = hypotheses.length < 2;
  nbest.replaceChildren(...hypotheses.map((one) => hypothesis(one, best.text, best.score)));
}

/** A line of the list: its score, its share of the best one's, its words. */
function hypothesis({ text, score }, best, bestScore) {
  const entry = document.createElement("li");
  const number = document.createElement("span");
  number.className = "score";
  number.textContent = score.toFixed(2).replace("-", "−");
  number.style.setProperty("--share", Math.exp(score - bestScore).toFixed(3));
  const words = document.createElement("span");
  words.append(...differences(text, best).map(({ text: word, differs }) => {
    if (!differs) return word;
    const mark = document.createElement("mark");
    mark.textContent = word.trimEnd();
    return [mark, word.slice(mark.textContent.length)];
  }).flat());
  entry.append(number, words);
  return entry;
}

function showExplanation(answer) {
  explanation = answer;
  const views = available(explanation);
  if (!views.includes(view)) [view] = views;
  chooser("views", "radio", views, (value) => value === view);
  at("views").hidden = views.length < 2;
  at("graph").classList.toggle("empty", explanation.target_tokens.length === 0);
  showView();
}

/** Shows what is chosen to be seen of the explanation. */
function showView() {
  graph.show(seen(explanation, view));
  chooser("layers", "radio", ["all", ...count(graph.shape.layers)], (value) => (
    value === "all" ? graph.layer === null : graph.layer === value - 1
  ));
  chooser("heads", "checkbox", count(graph.shape.heads), (value) => graph.heads.has(value - 1));
  at("heads").disabled = graph.layer === null;
  mark();
}

function redraw() {
  graph.draw();
  if (shown !== null) mark();
}

/** In which text above the words of each of the graph's columns stand; of self-attention, of one. */
function sides() {
  const views = { translation: { source: "source", target: "target" }, source: { source: "source" } };
  return views[view] ?? { source: "target" };
}

/** Makes the words of the graph known in the texts above. */
function mark() {
  texts.mark(Object.fromEntries(Object.entries(sides()).map(([side, text]) => [text, graph.words[side]])));
}

/** Highlights the graph's active word in the texts, and words of the other text by weight. */
function light(side, index, weights) {
  for (const [name, text] of Object.entries(sides())) {
    for (const [place, span] of texts.words(text)) {
      const share = side === null ? 0 : name === side ? Number(place === index) : weights[place];
      span.style.setProperty("--share", Math.sqrt(share).toFixed(3));
      span.classList.toggle("self", side === name && place === index);
    }
  }
  at("hint").replaceChildren(...(side === null ? [HINT] : inWords(side, index, weights)));
}

/** The weights as a line of text: `it attends to: animal 37 %, O 22 %`. */
function inWords(side, index, weights) {
  const others = graph.words[side === "source" ? "target" : "source"];
  const most = weights.map((weight, place) => [weight, others[place].text])
    .filter(([weight]) => weight >= 0.05).sort(([a], [b]) => b - a).slice(0, 5)
    .map(([weight, text]) => `${named(text)} ${Math.round(100 * weight)} %`);
  const word = document.createElement("strong");
  word.textContent = named(graph.words[side][index].text);
  const verb = side === "target" ? " attends to: " : " is attended to by: ";
  return [word, verb, most.join(", ") || "no word in particular"];
}

/** A word as part of a sentence, with quotes if it is punctuation. */
function named(text) {
  return /[\p{L}\p{N}]/u.test(text) ? text : `“${text}”`;
}

function chooser(id, type, values, chosen) {
  const field = at(id);
  const known = [...field.querySelectorAll("input")].map((input) => input.value).join();
  if (known !== values.join()) {
    field.querySelectorAll("label").forEach((label) => label.remove());
    values.forEach((value, n) => {
      const label = document.createElement("label");
      const input = Object.assign(document.createElement("input"), { type, name: id, value });
      const text = document.createElement("span");
      text.textContent = LABELS[value] ?? value;
      if (id === "heads") label.style.setProperty("--color", `var(--head-${n % 8})`);
      label.append(input, text);
      field.append(label);
    });
  }
  for (const input of field.querySelectorAll("input")) {
    input.checked = chosen(Number(input.value) || input.value);
  }
}

function chooseHeads() {
  const layer = at("layers").querySelector(":checked")?.value ?? "all";
  graph.layer = layer === "all" ? null : Number(layer) - 1;
  const heads = [...at("heads").querySelectorAll(":checked")];
  graph.heads = new Set(heads.map((input) => Number(input.value) - 1));
  at("heads").disabled = graph.layer === null;
  graph.draw();
}

function count(n) {
  return Array.from({ length: n }, (_, i) => i + 1);
}

/** Shows that there is no text. */
function clear() {
  texts.read();
  translation.textContent = "";
  at("note").hidden = at("sentence").hidden = true;
  showNothing();
  document.body.classList.remove("waiting");
}

/** Shows that there is no sentence. */
function showNothing() {
  at("nbest-title").hidden = true;
  nbest.replaceChildren();
  shown = explanation = null;
  const heads = graph.explanation?.heads.map((layer) => layer.map(() => [])) ?? [];
  graph.show({ source_tokens: [], target_tokens: [], attention: [], heads });
  at("graph").classList.add("empty");
}

function setUp() {
  for (const side of ["source", "target"]) at(`${side}-language`).textContent = LANGUAGES[side];
  const examples = LANGUAGES.source.startsWith("Portuguese") ? [...EXAMPLES] : [];
  const page = [examples.slice(0, 2), examples.slice(2)].map((part) => part.join(" ")).join("\n\n");
  if (examples.length) examples.push(page);
  at("examples").append(...examples.map((text) => {
    const button = document.createElement("button");
    const textContent = text.includes("\n") ? "All of them, on a page" : text;
    Object.assign(button, { type: "button", textContent });
    button.addEventListener("click", () => {
      source.value = text;
      texts.place = 0;
      later(0);
    });
    return button;
  }));
  const root = document.documentElement.dataset;
  light(null);
  root.theme = localStorage.getItem("theme")
    ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  at("theme").addEventListener("click", () => {
    root.theme = root.theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.theme);
  });
  source.value = textOfAddress() || source.value || (examples[0] ?? "");
  update();
  if (!source.value) showServer();
}

function textOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // the address has a % that begins no escape
  }
}

setUp();
