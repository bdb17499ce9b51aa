"""Word forms of Portuguese and English: plurals, verbs, contractions, numbers.

Regular forms follow rules; `grammar.toml` lists the others.
"""

import functools
import tomllib
from pathlib import Path
from typing import NamedTuple

TABLES = tomllib.loads((Path(__file__).parent / "grammar.toml").read_text(encoding="utf-8"))
# Persons of a Portuguese verb: eu; você, ele, ela; nós; vocês, eles, elas.
FIRST, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(4)


class Forms(NamedTuple):
    """A Portuguese verb; present and past are tuples by person, the imperative is to `você`."""

    infinitive: str
    present: tuple
    past: tuple
    gerund: str
    imperative: str


_ENDINGS = {
    "ar": ("o a amos am", "ei ou amos aram", "ando"),
    "er": ("o e emos em", "i eu emos eram", "endo"),
    "ir": ("o e imos em", "i iu imos iram", "indo"),
}
# Spelling that keeps the sound of the stem before e, and before o and a.
_BEFORE_E = {"c": "qu", "g": "gu", "ç": "c"}
_BEFORE_O = {"c": "ç", "g": "j"}


@functools.cache
def conjugate(infinitive):
    """The `Forms` of a verb."""
    stem, ending = infinitive[:-2], infinitive[-2:]
    present, past, gerund = _ENDINGS.get(ending, ("", "", ""))
    first = _spelled(stem, _BEFORE_O) if ending != "ar" else stem
    before_e = _spelled(stem, _BEFORE_E) if ending == "ar" else stem
    present = _by_person(TABLES["present"].get(infinitive), first, stem, present)
    past = _by_person(TABLES["past"].get(infinitive), before_e, stem, past)
    told = present[0][:-1]  # the imperative swaps the vowel of the present
    told = _spelled(told, _BEFORE_E) + "e" if ending == "ar" else told + "a"
    told = TABLES["imperative"].get(infinitive, told)
    return Forms(infinitive, present, past, stem + gerund, told)


def _spelled(stem, changes):
    return stem[:-1] + changes.get(stem[-1:], stem[-1:])


def _by_person(irregular, first, stem, endings):
    if irregular:
        return tuple(irregular.split())
    endings = endings.split()
    return (first + endings[0], *(stem + ending for ending in endings[1:]))


def contract(preposition, phrase):
    """A preposition before a phrase: `em` + `o parque` is `no parque`.

    In a preposition of several words (`perto de`), the last one contracts.
    """
    before, space, last = preposition.rpartition(" ")
    first, rest_space, rest = phrase.partition(" ")
    joined = TABLES["contractions"].get(last, {}).get(first, f"{last} {first}")
    return before + space + joined + rest_space + rest


_PLURALS = {"ão": "ões", "ês": "eses", "al": "ais", "el": "éis", "ol": "óis", "ul": "uis"}
_PLURALS |= {"il": "eis", "m": "ns", "s": "s", "r": "res", "z": "zes"}


def plural(word):
    """The regular Portuguese plural; of `suco de laranja`, that of the first word."""
    head, space, rest = word.partition(" ")
    for ending, replacement in _PLURALS.items():
        if head.endswith(ending):
            return head.removesuffix(ending) + replacement + space + rest
    return head + "s" + space + rest


def feminine(adjective):
    """The regular feminine of a Portuguese adjective."""
    if adjective.endswith("o"):
        return adjective[:-1] + "a"
    if adjective.endswith("ês"):
        return adjective[:-2] + "esa"
    return adjective + "a" if adjective.endswith("dor") else adjective


_NUMBERS = {name: text.split() for name, text in TABLES["numbers"].items()}


def number(n, feminine=False):
    """0 to 999 in Portuguese words: `duzentas e vinte e uma`."""
    if n == 100:
        return "cem"
    parts = []
    if n > 100:
        word = _NUMBERS["pt_hundreds"][n // 100 - 1]
        parts.append(word[:-2] + "as" if feminine and n >= 200 else word)
        n %= 100
    if n >= 20:
        parts.append(_NUMBERS["pt_tens"][n // 10 - 2])
        n %= 10
    if n or not parts:
        word = _NUMBERS["pt_units"][n]
        parts.append({"um": "uma", "dois": "duas"}.get(word, word) if feminine else word)
    return " e ".join(parts)


def english_number(n):
    """0 to 999 in English words: `two hundred twenty-one`."""
    if n >= 100:
        rest = f" {english_number(n % 100)}" if n % 100 else ""
        return f"{_NUMBERS['en_units'][n // 100]} hundred{rest}"
    if n >= 20:
        rest = f"-{_NUMBERS['en_units'][n % 10]}" if n % 10 else ""
        return _NUMBERS["en_tens"][n // 10 - 2] + rest
    return _NUMBERS["en_units"][n]


def _pairs(text):
    return dict(pair.split() for pair in text.split(","))


_EN_PLURALS, _EN_PAST = _pairs(TABLES["english"]["plural"]), _pairs(TABLES["english"]["past"])
_DOUBLED = TABLES["english"]["doubled"].split()


def _add_s(word):
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o")) else "s")


def english_plural(noun):
    """`dictionary` -> `dictionaries`; of several words, the plural of the last."""
    before, space, word = noun.rpartition(" ")
    if word in ("piano", "photo"):
        return noun + "s"
    return before + space + (_EN_PLURALS.get(word) or _add_s(word))


def third_person(verb):
    """`study` -> `studies`."""
    return "has" if verb == "have" else _add_s(verb)


def english_past(verb):
    """`buy` -> `bought`, `visit` -> `visited`."""
    if verb in _EN_PAST:
        return _EN_PAST[verb]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] * (verb in _DOUBLED) + "ed").removeprefix("e" * verb.endswith("e"))


def english_gerund(verb):
    """`write` -> `writing`, `run` -> `running`."""
    if verb in _DOUBLED:
        return verb + verb[-1] + "ing"
    if verb.endswith("e") and not verb.endswith("ee"):
        verb = verb[:-1]
    return verb + "ing"


def article(phrase):
    """`a` or `an` before the sound that the phrase begins with."""
    word = phrase.lower()
    return (
        "an" if word[0] in "aeiou" and not word.startswith(("uni", "use", "euro", "one")) else "a"
    )


def possessive(phrase):
    """`my brother's`, `the students'`, before the tag of the last word."""
    words, slash, tag = phrase.rpartition("/") if "/" in phrase.split()[-1] else (phrase, "", "")
    return words + ("'" if words.endswith("s") else "'s") + slash + tag
