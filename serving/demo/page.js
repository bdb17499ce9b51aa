// The page: sends the text to the server, shows the answers, and reports errors and retries.

import { Graph } from "./graph.js";
import { available, seen } from "./views.js";
import { differences, places } from "./words.js";

const PAUSE = 250; // ms without a key press before a text is sent
const AGAIN = 2000; // ms between attempts while no server answers
const SOON = 500; // ms between attempts while the model is loading
const WATCH = 3000; // ms between requests for the served version
const ENDED = "The model server has ended";
const NO_TRANSLATOR = "This model is not a translator: ask a classifier, a tagger or a language "
  + "model with serving/client.py --ask classify, tag or complete";
const LABELS = {
  translation: "English to Portuguese", source: "within Portuguese", target: "within English",
};
const EXAMPLES = [
  "Helena não vai lavar o carro dele porque está cansada.",
  "O tio dele acha que você vai abraçar minhas avós na sexta-feira.",
  "A que horas Rafael volta aos domingos?",
  "Este caminhão é mais novo do que aquele.",
  "O gato está na mesa.",
];

const at = (id) => document.getElementById(id);
const [source, translation, nbest, trouble] = ["source", "translation", "nbest", "trouble"].map(at);
const backdrop = document.createElement("div");
const graph = new Graph(at("graph"), light);
const HINT = matchMedia("(pointer: coarse)").matches
  ? "Tap a word to see what it attends to; tap it again to let go."
  : "Point at a word to see what it attends to, or use the arrow keys. Click or Enter keeps it.";
let asking = new AbortController();
let timer = null;
let watch = null;
let explanation = null; // the last explanation; the graph shows one view of it
let view = "translation";
let last = null; // the text whose translation the page shows

source.addEventListener("input", () => later(PAUSE));
source.addEventListener("scroll", () => { backdrop.scrollTop = source.scrollTop; });
at("pieces").addEventListener("change", (event) => {
  graph.merge = !event.target.checked;
  redraw();
});
at("views").addEventListener("change", ({ target }) => {
  view = target.value;
  if (explanation) showView();
});
for (const name of ["layers", "heads"]) at(name).addEventListener("change", choose);
for (const [event, over] of [["pointerover", true], ["pointerout", false]]) {
  translation.addEventListener(event, ({ target }) => {
    const { index } = target.dataset;
    if (index !== undefined) graph.point(over ? { side: "target", index: Number(index) } : null);
  });
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
    const explained = ask("explain", text, signal);
    explained.catch(() => {}); // the first of the two that fails reports the error
    showTranslation(await ask("translate", text, signal));
    last = text;
    showExplanation(text, await explained);
    works();
  } catch (error) {
    if (error.name !== "AbortError") fails(error);
  } finally {
    if (!signal.aborted) document.body.classList.remove("waiting");
  }
}

/** The server's answer as an object; throws an Error whose `again` says whether to retry. */
async function ask(what, text, signal) {
  let answer;
  try {
    answer = await fetch(`api/${what}`, {
      signal,
      ...(text !== undefined && {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ text }),
      }),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw problem("demo.py is not running", "Start it again; this page then goes on.", true);
  }
  const content = await answer.json();
  if (answer.ok) return content;
  if (content.code === "LOADING") throw Object.assign(new Error(content.error), { loading: true });
  if (content.code === "ENDED") throw problem(ENDED, "Start demo.py again; this page then goes on.", true);
  if (content.code === "NO_TRANSLATOR") throw problem(NO_TRANSLATOR, content.error, false);
  const silent = ["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(content.code);
  const title = silent ? "The prediction server does not answer" : "This text could not be translated";
  throw problem(title, content.error, silent);
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
    if (known !== undefined && known !== String(version)) later(0);
  } catch (error) {
    fails(error);
  }
}

function showTranslation({ hypotheses, truncated, milliseconds }) {
  const best = hypotheses[0]?.text ?? "";
  translation.textContent = best;
  const notes = [`${Math.round(milliseconds)} ms`];
  if (truncated) notes.unshift("too long for the model: only the beginning was translated");
  at("note").textContent = notes.join(" · ");
  at("note").hidden = false;
  at("nbest-title").hidden = hypotheses.length < 2;
  nbest.replaceChildren(...hypotheses.map((one) => hypothesis(one, best, hypotheses[0].score)));
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

function showExplanation(text, answer) {
  explanation = answer;
  const views = available(explanation);
  if (!views.includes(view)) [view] = views;
  chooser("views", "radio", views, (value) => value === view);
  at("views").hidden = views.length < 2;
  at("graph").classList.toggle("empty", explanation.target_tokens.length === 0);
  showView(text);
}

/** Shows what is chosen to be seen of the explanation. */
function showView(text = last) {
  graph.show(seen(explanation, view));
  chooser("layers", "radio", ["all", ...count(graph.shape.layers)], (value) => (
    value === "all" ? graph.layer === null : graph.layer === value - 1
  ));
  chooser("heads", "checkbox", count(graph.shape.heads), (value) => graph.heads.has(value - 1));
  at("heads").disabled = graph.layer === null;
  mark(text);
}

function redraw() {
  graph.draw();
  if (last !== null) mark(last);
}

/** The texts above in which the words of the graph's columns stand; of self-attention one. */
function shownTexts() {
  return {
    translation: { source: backdrop, target: translation },
    source: { source: backdrop },
    target: { source: translation },
  }[view];
}

/** Makes the words of the graph known in the texts above. */
function mark(text) {
  const written = { backdrop: text ?? "", translation: translation.textContent };
  backdrop.replaceChildren(written.backdrop);
  translation.replaceChildren(written.translation);
  for (const [side, element] of Object.entries(shownTexts())) {
    const content = element === backdrop ? written.backdrop : written.translation;
    spread(element, content, graph.words[side]);
  }
  backdrop.scrollTop = source.scrollTop;
}

/** Puts a text into an element, with a span for each word of the graph. */
function spread(element, text, words) {
  const parts = [];
  let from = 0;
  places(words, text).forEach((place, index) => {
    if (!place) return;
    const span = document.createElement("span");
    span.textContent = text.slice(...place);
    span.dataset.index = index;
    parts.push(text.slice(from, place[0]), span);
    [, from] = place;
  });
  element.replaceChildren(...parts, text.slice(from));
}

/** Highlights the graph's active word in the texts, and words of the other text by weight. */
function light(side, index, weights) {
  for (const [name, element] of Object.entries(shownTexts())) {
    for (const span of element.querySelectorAll("span[data-index]")) {
      const place = Number(span.dataset.index);
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

function choose() {
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

function clear() {
  translation.textContent = "";
  backdrop.textContent = "";
  at("note").hidden = at("nbest-title").hidden = true;
  nbest.replaceChildren();
  last = explanation = null;
  const heads = graph.explanation?.heads.map((layer) => layer.map(() => [])) ?? [];
  graph.show({ source_tokens: [], target_tokens: [], attention: [], heads });
  at("graph").classList.add("empty");
  document.body.classList.remove("waiting");
}

function setUp() {
  backdrop.className = "backdrop";
  backdrop.setAttribute("aria-hidden", "true");
  source.before(backdrop);
  at("examples").append(...EXAMPLES.map((text) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: text });
    button.addEventListener("click", () => {
      source.value = text;
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
  source.value = textOfAddress() || source.value || EXAMPLES[0];
  update();
}

function textOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // the address has a % that begins no escape
  }
}

setUp();
