// Requests to demo.py, and what their errors mean to a person.

const TITLES = {
  UNAVAILABLE: "The prediction server does not answer",
  NOT_FOUND: "The prediction server does not have the model",
  DEADLINE_EXCEEDED: "The prediction server does not answer",
};

/** The server's answer as an object; throws an Error that `fails` of page.js shows.
 *
 * Its `again` says whether to retry. */
export async function ask(what, content, signal) {
  let answer;
  try {
    answer = await fetch(`api/${what}`, {
      signal,
      ...(content !== undefined && { method: "POST", body: JSON.stringify(content) }),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw problem("demo.py is not running", "Start it again; this page then goes on.", true);
  }
  const found = await answer.json();
  if (answer.ok) return found;
  const { code, error } = found;
  throw problem(TITLES[code] ?? "This text could not be answered", error, code in TITLES);
}

function problem(title, message, again) {
  return Object.assign(new Error(message), { title, again });
}
