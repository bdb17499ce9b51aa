"""Measures what becomes of spans that must not change, and of terms, in translations of runs.

    python benchmarks/spans.py RUN RUN --pairs validation.tsv --terms train.tsv

BLEU and chrF are of the served search; a span arrives if the translation has it as often as the
text. With `--terms`, a glossary is made of words that these pairs translate one way, and its words
are counted in translations without and with it. Results of other runs are kept. Writes
results/spans.md and .json.
"""

import collections
import re
import tempfile
from pathlib import Path

import harness

WORD = re.compile(r"[^\W\d_]{6,}")
TERMS, LIKELY = 50, 0.7  # words of the glossary, and the least Dice coefficient of a translation
USUAL = 1 / 200  # the share of pairs that have the most frequent of them
HOW = """The runs of keras_tfmr learned from technical documentation: `small`, 4,000 updates each;
`long` 9,200, which 30 minutes on two cores reach, here on an H100 with JAX. `without` has no slots.
`with` has them for the spans of half of the pairs, as by default; `all` has them for the spans of
all pairs, and copies unprotected text less well. Of 1,000 validation sentences, 217 hold spans.
`with-1-again` has the seed and pairs of `with-1`, and was trained by newer code.
"""
GROUPS = {"all": lambda held: True, "with spans": bool, "without": lambda held: not held}


def scores(found, references):
    """BLEU and chrF, by name; none without texts."""
    from training.scores import corpus_scores

    return corpus_scores(found, references) if found else {}


def arrived(texts, translations, pattern):
    """How many spans of the texts their translations have as often, and how many there are."""
    right = number = 0
    for pair in zip(texts, translations, strict=True):
        own, its = (collections.Counter(m.group() for m in pattern.finditer(x)) for x in pair)
        number += own.total()
        right += sum(n for span, n in own.items() if its[span] == n)
    return right, number


def glossary(pairs):
    """{word: translation} of words of one translation, the next to the most frequent ones."""
    sides = [[{*WORD.findall(text.lower())} for text in side] for side in zip(*pairs, strict=True)]
    counts = [collections.Counter(word for words in side for word in words) for side in sides]
    both = collections.defaultdict(collections.Counter)
    for own, its in zip(*sides, strict=True):
        for word in own:
            both[word].update(its)
    found = {}
    for word, number in counts[0].most_common():
        if number > USUAL * len(pairs):
            continue
        if len(found) == TERMS:
            break
        dice = {t: 2 * n / (number + counts[1][t]) for t, n in both[word].items()}
        best = max(dice, key=dice.get, default=word)
        if best != word and dice[best] >= LIKELY and best not in found.values():
            found[word] = best
    return found


def terms_of(translator, rows, terms):
    """The share of a glossary's words that translations have, without and with it, and BLEU."""
    own = {term: re.compile(rf"\b{term}\b", re.IGNORECASE) for term in terms}
    chosen = [row for row in rows if any(each.search(row[0]) for each in own.values())]
    texts, references = map(list, zip(*chosen, strict=True))
    answers = {
        "without": translator.translate(texts),
        "with": translator.translate_with_terms(texts, terms),
    }
    found = {"sentences": len(texts)}
    for name, translations in answers.items():
        given = [
            (len(each.findall(text)), len(re.findall(rf"\b{terms[term]}\b", said, re.IGNORECASE)))
            for text, said in zip(texts, translations, strict=True)
            for term, each in own.items()
        ]
        found["terms"] = sum(wanted for wanted, _ in given)
        found[name] = {
            "as given": sum(min(pair) for pair in given), **scores(translations, references)
        }  # fmt: skip
    return found


def measure(run, rows, terms):
    """What a run makes of the rows."""
    from keras_tfmr import Translator
    from keras_tfmr.text.spans import DEFAULT, python_pattern

    pattern, translator = python_pattern(DEFAULT), Translator.from_preset(run)
    texts, references = map(list, zip(*rows, strict=True))
    said = list(map(str, translator.translate(texts)))
    right, number = arrived(texts, said, pattern)
    found = {"slots": translator.protection.possible, "spans": number, "arrived": right}
    for name, wanted in GROUPS.items():
        kept = [i for i, text in enumerate(texts) if wanted(bool(pattern.search(text)))]
        found[name] = scores([said[i] for i in kept], [references[i] for i in kept])
    if terms and found["slots"]:
        found["terms"] = terms_of(translator, rows, terms)
    return found


def page(numbers):
    """The tables."""
    rows, terms = [], []
    for name, found in sorted(numbers["runs"].items()):
        cells = [
            f"{found[group].get(score, 0):.1f}" for group in GROUPS for score in ("bleu", "chrf")
        ]
        share = f"{found['arrived']} of {found['spans']}"
        rows.append([name, found["commit"], "yes" if found["slots"] else "no", *cells, share])
        if about := found.get("terms"):
            cells = [
                (f"{about[key]['as given']} of {about['terms']}", f"{about[key]['bleu']:.1f}")
                for key in ("without", "with")
            ]
            terms.append([name, about["sentences"], *cells[0], *cells[1]])
    header = [f"{score}, {group}" for group in GROUPS for score in ("BLEU", "chrF")]
    body = f"{HOW}\n{harness.table(['run', 'commit', 'slots', *header, 'spans arrived'], rows)}"
    if terms:
        words = ", ".join(f"{a}: {b}" for a, b in numbers["glossary"].items())
        header = ["run", "sentences", "terms as given", "BLEU", "with glossary", "BLEU"]
        body += f"\nSentences with a term of the glossary ({words}):\n\n"
        body += harness.table(header, terms)
    return body


def main():
    parser = harness.parser(__doc__, turns=None)
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help="folders of finished runs")
    add("--pairs", help="pairs to translate, SOURCE<TAB>TARGET")
    add("--terms", help="pairs to make a glossary of")
    args = harness.parsed(parser, "runs", "pairs")
    with tempfile.TemporaryDirectory() as folder:
        if args.quick:
            rows, terms = [["A {x} tem uma casa.", "{x} has a house."]], {"casa": "house"}
            args.runs = [harness.tiny_run(Path(folder), "--no_export")]
        else:
            rows = harness.pairs_of(args.pairs)
            terms = glossary(harness.pairs_of(args.terms)) if args.terms else {}
        kept = {} if args.quick else harness.kept("spans")
        numbers = {**harness.about("tensorflow", "keras"), "runs": kept.get("runs", {})}
        numbers["glossary"] = terms or kept.get("glossary", {})
        for run in args.runs:
            found = measure(run, rows, terms)
            numbers["runs"][Path(run).name] = {**found, "commit": numbers["commit"]}
    harness.report("spans", "Spans and terms", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    main()
