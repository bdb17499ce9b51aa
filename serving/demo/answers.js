// The views of classifiers and completers: one answer to the whole text.

import { ask } from "./api.js";

const at = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(share < 0.995 ? 1 : 0)} %`;

function element(name, className, ...content) {
  const made = Object.assign(document.createElement(name), { className });
  made.append(...content);
  return made;
}

/** What both have in common: they ask once and show the answer as elements. */
class Answers {
  names = { source: "Text", target: "Answer" };
  text = ""; // what the copy button copies
  options = {};

  async update(text, signal) {
    const answer = await ask(this.what, { texts: [text], ...this.options }, signal);
    at("answer").replaceChildren(...this.show(answer, text));
    at("note").textContent = answer.truncated ? "too long for the model, which read only a part of it" : "";
    at("note").hidden = !answer.truncated;
  }

  clear() {
    this.text = "";
    at("answer").replaceChildren();
    at("note").hidden = true;
  }

  forget() {}
}

export class Classifier extends Answers {
  title = "A text classifier";
  what = "classify";
  names = { source: "Text", target: "Label" };

  show({ label, probabilities }) {
    this.text = label;
    const rows = Object.entries(probabilities).map(([name, share]) => {
      const bar = element("span", "bar-of");
      bar.style.setProperty("--share", share);
      return element("li", "", element("span", "name", name), bar, element("span", "share", percent(share)));
    });
    return [element("p", "translation", label), element("ol", "bars", ...rows)];
  }
}

export class Completer extends Answers {
  title = "A language model that completes texts";
  what = "complete";
  names = { source: "Text", target: "Completion" };

  constructor({ later }) {
    super();
    for (const name of ["length", "temperature"]) {
      const read = () => {
        this.options[name] = Number(at(name).value);
        at(`${name}-value`).textContent = at(name).value;
      };
      at(name).addEventListener("input", () => { read(); later(0); });
      read();
    }
    at("another").addEventListener("click", () => later(0));
  }

  show({ text, log_prob: total, tokens, finished }, prompt) {
    this.text = prompt + text;
    const facts = [`${tokens} tokens`, `log-probability ${total.toFixed(1).replace("-", "−")}`];
    if (!finished) facts.push("cut at the maximum length");
    return [
      element("p", "translation", element("span", "prompt", prompt), text),
      element("p", "note", facts.join(" · ")),
    ];
  }
}
