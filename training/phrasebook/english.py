"""Word forms of English: verbs, plurals, comparatives, articles, numbers, clauses.

A verb form carries its part of speech behind a slash: `walks/VERB`, `doesn't/AUX`.
"""

import functools
import re

from training.phrasebook.portuguese import TABLES

_WORDS = TABLES["english"]
_PARTS = {base: parts for base, *parts in map(str.split, _WORDS["past"].split(", "))}
_DOUBLED, _MODALS = _WORDS["doubled"].split(), _WORDS["modals"].split()
OBJECT, POSSESSIVE = _WORDS["object"], _WORDS["possessive"]


def _syllables(word):
    return len(re.findall(r"[aeiouy]+", word.removesuffix("e")))


def _doubles(word):
    short = _syllables(word) == 1 and re.search(r"[^aeiou][aeiou][bdgklmnprt]$", word)
    return bool(short) or word in _DOUBLED


def _add_s(word):
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


def plural(noun):
    """`dictionary` -> `dictionaries`; of several words, the plural of the last."""
    head, of, rest = noun.partition(" of ")
    before, space, word = head.rpartition(" ")
    return before + space + (_WORDS["plural"].get(word) or _add_s(word)) + of + rest


@functools.cache
def form(verb, which):
    """A verb's `s` (third person), `past`, `part` (participle) or `ing`."""
    if which == "s":
        return {"have": "has", "be": "is"}.get(verb) or _add_s(verb)
    if which == "ing":
        if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
            return {"die": "dy", "lie": "ly", "tie": "ty"}.get(verb, verb[:-1]) + "ing"
        return verb + verb[-1] * _doubles(verb) + "ing"
    if verb in _PARTS:
        return _PARTS[verb][-1 if which == "part" else 0]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] * _doubles(verb) + "ed").removeprefix("e" * verb.endswith("e"))


def compared(adjective, ending):
    """`tall` and `er` is `taller`, `famous` and `est` is `most famous`."""
    if adjective in _WORDS["compared"]:
        return _WORDS["compared"][adjective].split()[ending == "est"].replace("_", " ") + "/ADJ"
    if adjective.endswith("y") and _syllables(adjective) == 2:
        return f"{adjective[:-1]}i{ending}/ADJ"
    if _syllables(adjective) > 1 and adjective not in ("quiet", "simple", "clever", "narrow"):
        return ("more " if ending == "er" else "most ") + adjective + "/ADJ"
    last = adjective[-1] * _doubles(adjective)
    return (adjective + last + ending).replace("ee" + ending[1:], "e" + ending[1:]) + "/ADJ"


def with_head(verb, which=""):
    """A verb phrase, its first word in a `form`: `look for` -> `looks/VERB for`."""
    head, space, rest = verb.partition(" ")
    inflected = form(head, which) if which else head
    return f"{inflected}/{'AUX' if head == 'be' else 'VERB'}{space}{rest}"


def verb_words(verb, tense, pronoun, supported):
    """(auxiliary, empty if there is none; the rest) of a verb with a subject.

    Args:
        verb: The verb phrase, in its base form.
        tense: One of `portuguese.conjugate`'s, or `now`, `was` (progressive), `going`, `will`,
            `used` (used to), `perf`, `pperf` (perfects).
        pronoun: The English pronoun of the subject.
        supported: Whether a denial or a question needs an auxiliary.
    """
    head, _, rest = verb.partition(" ")
    past, third = tense in ("past", "imp", "was", "isubj"), pronoun in ("he", "she", "it")
    be = _WORDS["be"][pronoun].split()[past]
    if head in _MODALS:
        head = "could" if head == "can" and (past or tense == "cond") else head
        return head, rest if "/" in rest else with_head(rest) if rest else ""
    if tense in ("will", "fut", "cond"):
        return ("would" if tense == "cond" else "will"), with_head(verb)
    if tense == "going":
        return be, f"going/VERB to/PART {with_head(verb)}"
    if tense in ("now", "was"):
        return be, with_head(verb, "ing")
    if tense in ("perf", "pperf"):
        return ("had" if tense == "pperf" else "has" if third else "have"), with_head(verb, "part")
    if head == "be" and tense != "used":
        return be, rest
    if tense == "used":
        used = f"{'use' if supported else 'used'}/VERB to/PART {with_head(verb)}"
        return "did" * supported, used
    if supported:
        return ("did" if past else "does" if third else "do"), with_head(verb)
    return "", with_head(verb, "past" if past else "s" if third else "")


def denied(auxiliary):
    """`isn't`, `won't`, `am not`."""
    return _WORDS["denied"].get(auxiliary, auxiliary + "n't")


def statement(subject, auxiliary, adverb, verb, is_denied):
    """The words of a clause: `I'm not late`, `Tom doesn't know`; only pronouns are joined."""
    joins = subject in POSSESSIVE or subject + auxiliary in ("thereis", "thatis")
    if is_denied and not (joins and auxiliary in ("am", "is", "are") and subject != "there"):
        return f"{subject} {denied(auxiliary)} {adverb} {verb}"
    joined = joins and auxiliary in _WORDS["short"] and subject + _WORDS["short"][auxiliary]
    return f"{joined or f'{subject} {auxiliary}'} {'not ' * is_denied}{adverb} {verb}"


def article(text):
    """`an` where a sentence has `a` before a vowel's sound."""
    vowel = r"(?:[aeio]|u(?!ni|se|su)|hour|honest)(?!uro|ne\b|nce\b)"
    return re.sub(rf"\b([Aa]) (?={vowel})", r"\1n ", text)


def possessive(phrase):
    """`my brother's`, `the students'`, before the tag of the last word."""
    words, slash, tag = phrase.rpartition("/") if "/" in phrase.split()[-1] else (phrase, "", "")
    return words + ("'" if words.endswith("s") else "'s") + slash + tag
