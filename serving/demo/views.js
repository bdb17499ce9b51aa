// The views of an explanation: attention of the translation to the source, and of each text to itself.

const FIELDS = { translation: "heads", source: "encoder_heads", target: "decoder_heads" };

/** The views that an explanation has; without self-attention, there is only one. */
export function available(explanation) {
  return Object.keys(FIELDS).filter((view) => (
    view === "translation" || explanation[FIELDS[view]]?.length
  ));
}

/** One view in the form that the graph takes: rows attend to columns. */
export function seen(explanation, view) {
  const { source_tokens: source, target_tokens: target } = explanation;
  if (view === "source") return own(source, explanation.encoder_heads);
  if (view === "target") return own(target, explanation.decoder_heads.map((layer) => layer.map(written)));
  return explanation;
}

function own(tokens, heads) {
  return { source_tokens: tokens, target_tokens: tokens, attention: mean(heads.flat()), heads };
}

/** Columns shifted to the tokens that they stand for; the first column is the start id, not a word. */
function written(head) {
  return head.map((row) => [...row.slice(1), 0]);
}

function mean(heads) {
  return heads[0].map((row, t) => row.map((_, s) => (
    heads.reduce((sum, head) => sum + head[t][s], 0) / heads.length
  )));
}
