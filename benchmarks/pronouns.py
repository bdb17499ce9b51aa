"""Looks for a head that connects a pronoun with its noun, in a trained phrasebook model.

    python training/train_pt_en.py
    python benchmarks/pronouns.py runs/phrasebook

In `Helena isn't going to work because she is tired.` the pronoun's noun is the subject of the first
clause. The script counts for every layer and head how often the pronoun's largest weight is on the
noun. It chooses the head on half of the sentences and judges it on the others; the model has not
seen any of them in training. Writes results/pronouns.md and .json.
"""

import argparse
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks import measure
from benchmarks.architecture_parts.translators import load
from training.corpus import phrasebook
from training.corpus.phrasebook import compounds
from training.run.folder import RunFolder

PRONOUNS = {"he", "she", "they"}
VERBS = {"is", "isn't", "are", "aren't", "está", "estão", "vai", "vão", "não"}
SENTENCES = 400
# The views: (whose weights, the row of the pronoun, a description).
VIEWS = {
    "decoder, reading": "self-attention of the pronoun that was written, over the words so far",
    "decoder, writing": "self-attention of the position that writes the pronoun",
    "cross, reading": "cross-attention of the pronoun that was written",
    "cross, writing": "cross-attention of the position that writes the pronoun",
}


class Example:
    """A pair of sentences with the places of the pronoun, the noun and its noun phrase."""

    def __init__(self, portuguese, english):
        self.portuguese, self.english = portuguese, english
        words, source = english.split(), portuguese.split()
        self.pronoun = words.index("because" if "because" in words else "but") + 1
        end = next(i for i, word in enumerate(words) if word in VERBS)
        source_end = next(i for i, word in enumerate(source) if word in VERBS)
        # `Helena está`, but `O irmão dela está`, `Minha irmã está`
        source_noun = 0 if source_end == 1 else 1
        self.noun = {"target": {end - 1}, "source": {source_noun}}
        self.phrase = {"target": set(range(end)), "source": set(range(source_end))}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="folder of a phrasebook run of the Transformer")
    parser.add_argument("--quick", action="store_true", help="few sentences; writes nothing")
    args = parser.parse_args()
    model, tokenizers = load(RunFolder(args.run))
    results = found_heads(model, tokenizers[1], examples(8 if args.quick else SENTENCES))
    print(page(results))
    if not args.quick:
        measure.write("pronouns", page(results), results)


def examples(count):
    """Sentences with a third-person noun and its pronoun that were not in the training data."""
    known = {english for _, english in phrasebook.split(seed=1).train}
    draw, found = random.Random(7), {}
    while len(found) < count:
        pair = draw.choice((compounds.reason, compounds.contrast))(draw)
        words = pair.en.split()
        if pair.en in known or not PRONOUNS & set(words):
            continue
        example = Example(pair.pt, pair.en)
        (noun,) = example.noun["target"]
        if words[example.pronoun] in PRONOUNS and words[noun].lower() not in PRONOUNS:
            found[pair.en] = example
    return list(found.values())


def found_heads(model, tokenizer, sentences):
    """Returns {view: {"noun" or "phrase": {"layer", "head", "found"}, "sentences": number}}.

    `found` is a share of the half of the sentences that did not choose the head.
    """
    results = {view: {"sentences": len(sentences[1::2])} for view in VIEWS}
    looked = [strongest_words(model, tokenizer, example) for example in sentences]
    for view, row in results.items():
        side = "target" if view.startswith("decoder") else "source"
        for goal in ("noun", "phrase"):
            hits = np.array([
                np.isin(words[view], list(getattr(example, goal)[side]))
                for words, example in zip(looked, sentences, strict=True)
            ])  # [sentences, layers, heads]  # fmt: skip
            choosing, judging = hits[::2].mean(axis=0), hits[1::2].mean(axis=0)
            layer, head = np.unravel_index(choosing.argmax(), choosing.shape)
            found = float(judging[layer, head])
            row[goal] = {"layer": int(layer) + 1, "head": int(head) + 1, "found": found}
    return results


def strongest_words(model, tokenizer, example):
    """{view: int [layers, heads]}: the word on which the pronoun's greatest weight lies."""
    source, target = (tokenizer.encode([text]).to_list()[0] for text in (
        example.portuguese, example.english
    ))  # fmt: skip
    source = [*source, tokenizer.end_id]
    places = {"source": words_of(tokenizer, source), "target": words_of(tokenizer, target)}
    target_in = np.array([[tokenizer.start_id, *target]], "int32")
    context = model.encoder(np.array([source], "int32"))
    _, own, cross = model.decoder(target_in, context, return_attention_scores=True)
    # Row t of the decoder reads word piece t - 1 and writes piece t.
    own = np.stack([np.array(scores[0]) for scores in own])[:, :, :, 1:]
    cross = np.stack([np.array(scores[0]) for scores in cross])
    row = places["target"].index(example.pronoun)
    return {
        "decoder, reading": strongest(own, row + 1, places["target"]),
        "decoder, writing": strongest(own, row, places["target"]),
        "cross, reading": strongest(cross, row + 1, places["source"]),
        "cross, writing": strongest(cross, row, places["source"]),
    }


def words_of(tokenizer, ids):
    """The number of the word of every piece."""
    pieces = [piece.decode() for piece in tokenizer.pieces(np.array([ids], "int32")).numpy()[0]]
    numbers, word = [], -1
    for piece in pieces:
        word += piece.startswith("▁") or word < 0
        numbers.append(word)
    return numbers


def strongest(scores, row, words):
    """scores [layers, heads, query, key]; a word's weight is the sum over its pieces."""
    weights = np.zeros((*scores.shape[:2], max(words) + 1))
    for piece, word in enumerate(words):
        weights[:, :, word] += scores[:, :, row, piece]
    return weights.argmax(axis=-1)


def page(results):
    rows = [
        [VIEWS[view], *(cell(r[goal]) for goal in ("noun", "phrase")), r["sentences"]]
        for view, r in results.items()
    ]
    header = ["weights", "on the noun", "in its noun phrase", "sentences"]
    return (
        "# A pronoun and its noun\n\n"
        "`Helena isn't going to work because she is tired.`: how often the strongest weight of one "
        "head, of all words, connects the pronoun with the noun, or with a word of the noun phrase "
        "(`my sister`), of a Transformer trained on the phrasebook. In cross-attention these are "
        "the words of the Portuguese sentence, which has no pronoun there. The head was chosen on "
        "as many other sentences; none was trained on.\n\n"
        "    python benchmarks/pronouns.py runs/phrasebook\n\n"
        f"{measure.table(header, rows)}\n{measure.versions('tensorflow', 'keras')}.\n"
    )


def cell(r):
    return f"{100 * r['found']:.1f} % (layer {r['layer']}, head {r['head']})"


if __name__ == "__main__":
    main()
