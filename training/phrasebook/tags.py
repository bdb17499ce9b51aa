"""Parts of speech of the English that the grammar writes.

The tags are those of Universal Dependencies (arXiv 2004.10643), whose tokens split contractions:
`don't` is `do n't`. Words that tables name have their tag with them; for the others, closed classes
are listed in `forms.toml`, and an open class follows from the tables and the word before.
"""

import functools
import re

from training.phrasebook import english
from training.phrasebook.lexicon import NUMBERS, actions, adjectives, nouns, plain
from training.phrasebook.portuguese import TABLES

_TAGGED = re.compile(r"([\w'-]+(?::\d+)?)(?:/([A-Z]+))?|([,.?!;:])")
_CONTRACTED = re.compile(r"(?i)(\w+)(n't|'(?:m|s|re|ll|ve|d)|(?<=s)')")
_SUBJECTS, _BEFORE_VERB = (set(TABLES[name].split()) for name in ("subjects", "before_verb"))


def tags(pair):
    """The tokens of a pair's English and their parts of speech, two lists."""
    tokens, found = [], []
    for word, tag, mark in _TAGGED.findall(pair.tagged):
        split = _CONTRACTED.fullmatch(word)
        for i, part in enumerate(split.groups() if split else [word or mark]):
            before = tokens[-1].lower() if tokens else ""
            tokens.append(part)
            found.append(
                _suffix(before, part) if i else "PUNCT" if mark else tag or _tag(part, before)
            )
    for i, (token, following) in enumerate(zip(tokens, found[1:], strict=False)):
        if token == "to" and following in ("VERB", "AUX"):
            found[i] = "PART"
    return [tokens, found]


def _suffix(word, part):
    if part == "n't" or word == "let":
        return "PRON" if word == "let" else "PART"
    return "AUX" if word in _SUBJECTS or part in ("'ll", "'d", "'ve") else "PART"


def _tag(word, before):
    lower = word.lower()
    closed, verbs, adjective, noun = _classes()
    if lower in verbs and lower not in closed and (before in _BEFORE_VERB or lower not in noun):
        return "VERB"
    other = "NUM" if word[0].isdigit() else "PROPN" if word[0].isupper() else "NOUN"
    return closed.get(lower) or (
        "ADJ" if lower in adjective else "NOUN" if lower in noun else other
    )


@functools.cache
def _classes():
    """({word: tag} of closed classes, the verb forms, the adjectives, the nouns)."""
    closed = {word: tag for tag, words in TABLES["tags"].items() for word in words.split()}
    closed = {en: "NUM" for _, _, en in NUMBERS} | closed
    bases = {action.en for listed in actions().values() for action in listed} - {"be"}
    bases |= set(TABLES["verbs"].split())
    verbs = bases | {english.form(verb, w) for verb in bases for w in ("s", "past", "part", "ing")}
    adjective = {plain(a.en) for listed in adjectives().values() for a in listed}
    noun = {plain(text) for listed in nouns().values() for n in listed for text in n.en}
    return closed, verbs, adjective | set(TABLES["adjectives"].split()), noun
