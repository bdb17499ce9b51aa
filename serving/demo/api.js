// Requests to demo.py, and what their errors mean to a person.

const TITLES = {
  ENDED: "The model server has ended",
  UNKNOWN_KIND: "The model has no signature that this page can ask",
  UNAVAILABLE: "The prediction server does not answer",
  DEADLINE_EXCEEDED: "The prediction server does not answer",
};

/** The server's answer as an object; throws an Error that `fails` of page.js shows.
 *
 * Its `again` says whether to retry, `loading` that the model is on its way. */
export async function ask(what, content, signal) {
  let answer;
  try {
    answer = await fetch(`api/${what}`, {
      signal,
      ...(content !== undefined && {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(content),
      }),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw problem("demo.py is not running", "Start it again; this page then goes on.", true);
  }
  const found = await answer.json();
  if (answer.ok) return found;
  const { code, error } = found;
  if (code === "LOADING") throw loading(error);
  const again = code in TITLES && code !== "UNKNOWN_KIND";
  const message = code === "ENDED" ? "Start demo.py again; this page then goes on." : error;
  throw problem(TITLES[code] ?? "This text could not be answered", message, again);
}

export function loading(message) {
  return Object.assign(new Error(message), { loading: true });
}

function problem(title, message, again) {
  return Object.assign(new Error(message), { title, again });
}
