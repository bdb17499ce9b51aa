"""Word forms of English: verbs, plurals, comparatives, articles, numbers, clauses.

A verb form carries its part of speech behind a slash: `walks/VERB`, `doesn't/AUX`.
"""

import functools
import re

from training.phrasebook.portuguese import TABLES

_PLURALS = TABLES["english"]["plural"]
_IRREGULAR = {
    base: (past, part)
    for base, past, part in (
        (words.split() * 2)[:3] if len(words.split()) == 3 else (*words.split(), words.split()[1])
        for words in TABLES["english"]["past"].split(", ")
    )
}
_DOUBLED = TABLES["english"]["doubled"].split()
MODALS = ("can", "could", "should", "must", "may", "might", "will", "would")
_BE = {"I": ("am", "was"), "you": ("are", "were"), "we": ("are", "were"), "they": ("are", "were")}
_NOT = {"will": "won't", "can": "can't", "am": "am not", "may": "may not", "might": "might not"}
_SHORT = {"am": "'m", "is": "'s", "are": "'re", "will": "'ll", "would": "'d", "have": "'ve"}
_SHORT |= {"has": "'s", "had": "'d"}
OBJECT = {"I": "me", "he": "him", "she": "her/PRON", "we": "us", "they": "them"}
POSSESSIVE = {"I": "my", "you": "your", "he": "his", "she": "her", "it": "its", "we": "our"}
POSSESSIVE |= {"they": "their"}


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
    return before + space + (_PLURALS.get(word) or _add_s(word)) + of + rest


@functools.cache
def form(verb, which):
    """A verb's `s` (third person), `past`, `part` (participle) or `ing`."""
    if which == "s":
        return {"have": "has", "be": "is"}.get(verb) or _add_s(verb)
    if which == "ing":
        if verb in ("die", "lie", "tie"):
            return verb[:-2] + "ying"
        if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
            return verb[:-1] + "ing"
        return verb + verb[-1] * _doubles(verb) + "ing"
    if verb in _IRREGULAR:
        return _IRREGULAR[verb][which == "part"]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] * _doubles(verb) + "ed").removeprefix("e" * verb.endswith("e"))


def compared(adjective, ending):
    """`tall` and `er` is `taller`, `famous` and `est` is `most famous`."""
    irregular = TABLES["english"]["compared"].get(adjective)
    if irregular:
        return irregular.split()[ending == "est"] + "/ADJ"
    if adjective.endswith("y") and _syllables(adjective) == 2:
        return f"{adjective[:-1]}i{ending}/ADJ"
    if _syllables(adjective) > 1 and adjective not in ("quiet", "simple", "clever", "narrow"):
        return ("more " if ending == "er" else "most ") + adjective + "/ADJ"
    last = adjective[-1] * _doubles(adjective)
    return (adjective + last + ending).replace("ee" + ending[1:], "e" + ending[1:]) + "/ADJ"


def with_head(verb, inflect=str):
    """A verb phrase with its first word inflected: `look for` -> `looks/VERB for`."""
    head, space, rest = verb.partition(" ")
    return f"{inflect(head)}/{'AUX' if head == 'be' else 'VERB'}{space}{rest}"


def _be(pronoun, past):
    return _BE.get(pronoun, ("is", "was"))[past]


def verb_words(verb, tense, pronoun, supported):
    """(auxiliary, empty if there is none; the rest) of a verb with a subject.

    Args:
        verb: The verb phrase, in its base form.
        tense: One of `portuguese.conjugate`'s, or `now`, `was` (progressive), `going`, `will`,
            `perf`, `pperf` (perfects), `cperf` (would have).
        pronoun: The English pronoun of the subject.
        supported: Whether a denial or a question needs an auxiliary.
    """
    head, _, rest = verb.partition(" ")
    past = tense in ("past", "imp", "was", "isubj")
    if head in MODALS:
        return head, _tagged(rest)
    if tense in ("will", "fut", "cond"):
        return ("would" if tense == "cond" else "will"), with_head(verb)
    if tense == "used":
        used = f"{'use' if supported else 'used'}/VERB to/PART {with_head(verb)}"
        return "did" * supported, used
    if tense == "going":
        return _be(pronoun, past), f"going/VERB to/PART {with_head(verb)}"
    if tense in ("now", "was"):
        return _be(pronoun, past), with_head(verb, lambda head: form(head, "ing"))
    if tense in ("perf", "pperf", "cperf"):
        have = "has" if pronoun in ("he", "she", "it") else "have"
        words = with_head(verb, lambda head: form(head, "part"))
        if tense == "cperf":
            return "would", f"have/AUX {words}"
        return ("had" if tense == "pperf" else have), words
    if head == "be":
        return _be(pronoun, past), rest
    third = pronoun in ("he", "she", "it")
    if supported:
        return ("did" if past else "does" if third else "do"), with_head(verb)
    which = "past" if past else "s" if third else None
    return "", with_head(verb, (lambda head: form(head, which)) if which else str)


def _tagged(rest):
    return rest if "/" in rest else with_head(rest) if rest else ""


def denied(auxiliary):
    """`isn't`, `won't`, `am not`."""
    return _NOT.get(auxiliary, auxiliary + "n't")


def joined_subject(subject, auxiliary):
    """`I'm`, `Tom is`; only pronouns are joined."""
    pronouns = ("I", "you", "he", "she", "it", "we", "they")
    if auxiliary in _SHORT and subject in (*pronouns, "there" if auxiliary == "is" else ""):
        return subject + _SHORT[auxiliary]
    return f"{subject} {auxiliary}"


def article(text):
    """`an` where a sentence has `a` before a vowel's sound."""
    return re.sub(
        r"\b([Aa]) (?=(?:[aeio]|u(?!ni|se|su)|hour|honest)(?!uro|ne\b|nce\b))", r"\1n ", text
    )


def possessive(phrase):
    """`my brother's`, `the students'`, before the tag of the last word."""
    words, slash, tag = phrase.rpartition("/") if "/" in phrase.split()[-1] else (phrase, "", "")
    return words + ("'" if words.endswith("s") else "'s") + slash + tag


_UNITS, _TENS = (TABLES["numbers"][f"en_{name}"].split() for name in ("units", "tens"))


def number(n):
    """0 to 999 in English words: `two hundred twenty-one`."""
    if n >= 100:
        rest = f" {number(n % 100)}" if n % 100 else ""
        return f"{_UNITS[n // 100]} hundred{rest}"
    if n >= 20:
        rest = f"-{_UNITS[n % 10]}" if n % 10 else ""
        return _TENS[n // 10 - 2] + rest
    return _UNITS[n]
