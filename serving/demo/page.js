// The page: learns what the model is, sends it the text, reports errors and retries.

import { Classifier, Completer } from "./answers.js";
import { ask } from "./api.js";
import { mirrored } from "./texts.js";
import { Translator } from "./translator.js";

const VIEWS = { translate: Translator, classify: Classifier, complete: Completer };
const PAUSE = 250; // ms without a key press before a text is sent
const AGAIN = 2000; // ms between attempts while no server answers
const WATCH = 3000; // ms between requests for the served version
const SHORT = 60; // characters of an example on its button

const at = (id) => document.getElementById(id);
const [source, trouble] = ["source", "trouble"].map(at);
let view = null; // of VIEWS, once the kind of the model is known
let meeting = null; // the request for that kind
let asking = new AbortController();
let timer = null;
let watch = null;

source.addEventListener("input", () => {
  at("backdrop").textContent = mirrored(source.value);
  later(PAUSE);
});

function later(pause) {
  clearTimeout(timer);
  timer = setTimeout(update, pause);
}

/** Sends the current text; answers for older texts are dropped. */
async function update() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    await meet();
    const text = source.value;
    history.replaceState(null, "", text ? `#${encodeURIComponent(text)}` : "#");
    if (text.trim()) {
      document.body.classList.add("waiting");
      await view.update(text, signal);
    } else {
      view.clear();
    }
    works();
  } catch (error) {
    fails(error);
  } finally {
    if (!signal.aborted) document.body.classList.remove("waiting");
  }
}

/** Learns the kind of the model, once. */
function meet() {
  meeting ??= ask("status").then((status) => { view = begin(status); }).catch((error) => {
    meeting = null;
    throw error;
  });
  return meeting;
}

/** Shows what belongs to the kind of model; returns its view. */
function begin({ kind, examples, version, phrasebook }) {
  document.body.classList.add(kind);
  at("server").dataset.version = version;
  at("phrasebook").hidden = !phrasebook;
  const made = new VIEWS[kind]({ later, fails });
  at("title").textContent = document.title = made.title;
  for (const side of ["source", "target"]) at(`${side}-language`).textContent = made.names[side];
  const texts = examples.map(kind === "complete" ? beginning : (text) => text);
  if (kind === "translate" && texts.length > 1) texts.push(texts.join("\n\n"));
  at("examples").replaceChildren(...texts.map(example));
  source.value ||= textOfAddress() || (texts[0] ?? "");
  at("backdrop").textContent = mirrored(source.value);
  return made;
}

/** The first words of a text, for a model to go on with. */
function beginning(text) {
  return text.split(/\s+/).slice(0, 3).join(" ");
}

function example(text) {
  const button = document.createElement("button");
  const short = text.length > SHORT ? `${text.slice(0, SHORT)} …` : text;
  Object.assign(button, { type: "button", textContent: text.includes("\n\n") ? "All of them, on a page" : short });
  button.addEventListener("click", () => {
    source.value = text;
    source.setSelectionRange(0, 0);
    source.dispatchEvent(new Event("change"));
    later(0);
  });
  return button;
}

function fails(error) {
  if (error.name === "AbortError") return;
  const details = document.createElement("small");
  details.textContent = error.message;
  const title = error.title ?? error.name;
  trouble.replaceChildren(error.again ? `${title} — trying again …` : title, details);
  trouble.hidden = false;
  document.body.classList.add("down");
  at("server").textContent = "not connected";
  if (error.again) later(AGAIN);
}

function works() {
  trouble.hidden = true;
  document.body.classList.remove("down");
  showServer();
}

/** Shows the served version; asks a new one the text again. */
async function showServer() {
  clearTimeout(watch);
  watch = setTimeout(showServer, WATCH);
  try {
    const { server, model, version } = await ask("status");
    at("server").textContent = `model ${model}, version ${version} at ${server}`;
    if (at("server").dataset.version === String(version)) return;
    at("server").dataset.version = version;
    view.forget();
    later(0);
  } catch (error) {
    fails(error);
  }
}

/** Copies the answer; without a secure address, browsers have only the old way. */
async function copy() {
  const text = view?.text ?? "";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  at("copy").textContent = "Copied";
  setTimeout(() => { at("copy").textContent = "Copy"; }, 1500);
}

function textOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // the address has a % that begins no escape
  }
}

function setUp() {
  const root = document.documentElement.dataset;
  root.theme = localStorage.getItem("theme")
    ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  at("theme").addEventListener("click", () => {
    root.theme = root.theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.theme);
  });
  at("copy").addEventListener("click", copy);
  update();
}

setUp();
