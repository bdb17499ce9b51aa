"""Parts of speech of the phrasebook's English, after Universal Dependencies (arXiv 2004.10643).

Most words have only one part of speech in this grammar, which the lexicon gives. For the others,
the words before them decide.
"""

import dataclasses
import functools
import re

from training.corpus.phrasebook import (
    actions,
    compounds,
    doings,
    english,
    lexicon,
    opinions,
    qualities,
    states,
)
from training.corpus.phrasebook.lists import words
from training.corpus.phrasebook.words import Adjective, Noun, Phrase, Verb

_TOKEN = re.compile(r"\d+|\w+(?:['’-]\w+)*|[^\w\s]")
_CLOSED = {
    "DET": "a an the this that these those my your our his her their some all every many few "
    "little no whose what",
    "PRON": "i you he she it we they me him us them who there one",
    "AUX": "am are is was were be been do does did can can't may should shouldn't don't doesn't "
    "didn't isn't aren't wasn't weren't let let's",
    "ADP": "at in on of for from to with by near under behind inside into off through than "
    "after before about like past until during",
    "CONJ": "and but or because when if as that",
    "ADV": "not very today tomorrow yesterday tonight now always never often usually sometimes "
    "rarely also too here where how why much more less once twice late early soon back away up "
    "down out far alone please home still already later o'clock only fast well ago",
    "NUM": "half hundred three-quarters quarter",
    "ADJ": "last newer next sunny cloudy humid united new",
    "VERB": "travel travels traveled traveling costs cost likes rains rain raining rained snows "
    "snow snowing snowed start starts started end ends ended swimming thinks believes",
    "INTJ": "yes hello hi goodbye sorry thanks welcome",
}
_FORMS_OF_BE = frozenset(words("am are is was were isn't aren't wasn't weren't not"))
_NUMBERS = frozenset(english.number(n) for n in range(100))
_BEFORE_NOUNS = ("DET", "ADJ", "NUM", "ADP")


def tokens(sentence):
    """The words and punctuation marks of an English sentence, as a tagger splits it.

    >>> tokens("Isn't it Ana's T-shirt?")
    ["Isn't", 'it', "Ana's", 'T-shirt', '?']
    """
    return _TOKEN.findall(sentence)


def tagged(sentence):
    """Returns the list of (token, tag) of an English sentence of the phrasebook.

    >>> tagged("The cats drink water.")
    [('The', 'DET'), ('cats', 'NOUN'), ('drink', 'VERB'), ('water', 'NOUN'), ('.', 'PUNCT')]
    >>> [tag for _, tag in tagged("They watch his watch.")]
    ['PRON', 'VERB', 'DET', 'NOUN', 'PUNCT']
    """
    found = []
    words = tokens(sentence)
    for i, word in enumerate(words):
        before = found[-1][1] if found else ""
        after = words[i + 1].lower() if i + 1 < len(words) else ""
        previous = words[i - 1].lower() if i else ""
        found.append((word, _tag(word, (previous, before), after)))
    return found


def _tag(word, before, after):
    """The part of speech of a word; `before` is (the word before, its part of speech)."""
    (previous, before), first, lower = before, not before[0], word.lower()
    owner = lower.removesuffix("'s") if lower not in ("let's",) else lower
    if not word[0].isalnum():
        return "PUNCT"
    if word[0].isupper() and not first and lower != "i" and lower not in _known():
        return "PROPN"
    if owner in _names() and word[0].isupper():
        return "PROPN"
    possible = _parts(lower) or _parts(owner)
    if lower == "next" and after == "to":
        return "ADP"
    if lower == "one" and after[:1].isalpha():
        return "NUM"
    if lower == "to":
        return "PART" if "VERB" in _parts(after) else "ADP"
    if len(possible) == 1:
        return possible[0]
    if {"ADJ", "VERB"} <= {*possible}:
        return "ADJ" if before in ("DET", "ADV", "NOUN") or previous in _FORMS_OF_BE else "VERB"
    if {"NOUN", "VERB"} <= {*possible}:
        return "NOUN" if before in _BEFORE_NOUNS else "VERB"
    if {"DET", "PRON"} <= {*possible} or lower in ("her", "that"):
        if lower == "that" and before in ("VERB", "AUX"):
            clause = _parts(after)[:1] in (("PRON",), ("DET",)) or after in _names()
            return "CONJ" if clause else "DET"
        ends = not after or not after[0].isalnum() or _parts(after)[:1] in (("ADV",), ("ADP",))
        return "PRON" if ends else "DET"
    if {"NOUN", "ADJ"} <= {*possible}:
        return "ADJ" if {"NOUN", "ADJ"} & {*_parts(after)} else "NOUN"
    return possible[0] if possible else ("PROPN" if word[0].isupper() else "NOUN")


def _parts(word):
    return _dictionary().get(word, ())


@functools.cache
def _dictionary():
    """Returns {word: its possible parts of speech}, closed classes first."""
    found = {}

    def add(word, part):
        for one in word.lower().split():
            if part not in found.setdefault(one, []):
                found[one].append(part)

    for part, listed in _CLOSED.items():
        for word in listed.split():
            add(word, part)
    closed = frozenset(found)
    for number in _NUMBERS:
        add(number, "NUM")
    for entry in _entries():
        match entry:
            case Noun():
                add(entry.en, "NOUN")
                add(entry.en_plural, "NOUN")
            case Adjective() if entry.en not in closed:
                add(entry.en, "ADJ")
                for word in english.comparative(entry.en).split():
                    if word != "more":
                        add(word, "ADJ")
            case Verb():
                base = entry.en.split()[0]
                if base not in closed:
                    for form in (base, english.third_person(base), english.past(base),
                                 english.gerund(base)):  # fmt: skip
                        add(form, "VERB")
    return {word: tuple(parts) for word, parts in found.items()}


def _entries():
    """Everything in the lexicon that is a noun, an adjective or a verb."""
    modules = (lexicon, qualities, actions, doings, opinions, states, compounds)
    waiting = [value for module in modules for value in vars(module).values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (Noun, Adjective, Verb)):
            yield value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            waiting.extend(vars(value).values())
        elif isinstance(value, tuple) and not isinstance(value, Phrase):
            waiting.extend(value)


@functools.cache
def _names():
    places = [phrase.en for phrase in (*lexicon.CITY, *lexicon.COUNTRY)]
    named = [*lexicon.WOMEN, *lexicon.MEN, *places, *_CALENDAR]
    return frozenset(word for name in named for word in name.lower().split() if word != "the")


_CALENDAR = words(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mondays Tuesdays Wednesdays "
    "Thursdays Fridays Saturdays Sundays January February March April May June July August "
    "September October November December"
)


@functools.cache
def _known():
    return frozenset(_dictionary())
