"""The tables of words; an entry is `PORTUGUESE=ENGLISH`, of a noun `a maçã=apple`."""

import functools
import re
from collections import namedtuple
from pathlib import Path
from typing import NamedTuple

from training.phrasebook import english, portuguese
from training.phrasebook.portuguese import TABLES, THIRD

_TAG = re.compile(r"/[A-Z]+\b")


def _numbers(units, tens, joint):
    units = units.split()
    return units + [ten + (joint + units[n]) * (n > 0) for ten in tens.split() for n in range(10)]


# The words for 0 to 99: Portuguese, masculine and feminine, and English.
NUMBERS = [
    (pt, re.sub(r"\bum$", "uma", pt.replace("dois", "duas")), en)
    for pt, en in zip(*(_numbers(*TABLES["numbers"][name]) for name in ("pt", "en")), strict=True)
]


class Thing(NamedTuple):
    """A part of a sentence in both languages, with what other words agree with."""

    pt: str
    en: str
    person: int = THIRD  # of the Portuguese verb
    plural: bool = False
    feminine: bool = False
    pronoun: str = "it"  # the English pronoun for it
    noun: object = None


# A noun, singular and plural; the adjectives that suit it; the English preposition of a place.
Noun = namedtuple("Noun", "pt en feminine adjectives notes place")
# An adjective (Portuguese by gender and number): whether it is before its noun, and has degrees.
Adjective = namedtuple("Adjective", "pt en before graded")
# A verb and what follows it, in both languages, and the pronoun before it: se, o, lhe.
Action = namedtuple("Action", "pt pt_rest en en_rest clitic")


def table(name):
    """Yields the rows of a table of this folder, each a list of columns."""
    text = (Path(__file__).parent / f"{name}.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def _entries(text):
    return [entry.strip().split("=") for entry in text.split("; ")]


def _grouped(rows):
    """{name: list of what has it among its names}."""
    groups = {}
    for names, item in rows:
        for name in names.split():
            groups.setdefault(name, []).append(item)
    return groups


@functools.cache
def nouns():
    """{group: list of `Noun`}; a row is groups, adjectives, notes, entries."""
    found = []
    for names, suiting, notes, text in table("nouns"):
        for pt, en in _entries(text):
            en, _, place = en.partition("@")
            always = "many" in notes
            words = [_tagged("NOUN", e) for e in (en, en if always else english.plural(en))]
            for article, _, word in (form.partition(" ") for form in pt.split("/")):
                forms, feminine = [word, portuguese.plural(word)], article in ("a", "as")
                forms = [word, word] if always else forms
                noun = Noun(forms, words, feminine, suiting, notes.split(), place or "in")
                found.append((names, noun))
    return _grouped(found)


@functools.cache
def adjectives():
    """{list: adjectives}; a row is names of lists and entries with `<` and `!`."""
    found = []
    for names, text in table("adjectives"):
        for pt, en in _entries(text):
            forms = portuguese.adjective_forms(pt.strip("<!"))
            en = en if " " in en else en + "/ADJ"
            found.append((names, Adjective(forms, en, pt[0] == "<", pt[-1] != "!")))
    return _grouped(found)


@functools.cache
def actions():
    """{group: list of `Action`}; a row is groups, Portuguese, English."""
    found = []
    for names, pt, en in table("actions"):
        (head, _, pt_rest), (en_head, _, en_rest) = pt.partition(" "), en.partition(" ")
        clitic, _, verb = head.rpartition("_")
        found.append((names, Action(verb, pt_rest, en_head, en_rest, clitic)))
    return _grouped(found)


@functools.cache
def phrases():
    """{name: ([weights], [(Portuguese, English)])}."""
    found = {}
    for name, weight, text in table("phrases"):
        entries, (weights, known) = _entries(text), found.setdefault(name, ([], []))
        known += entries
        weights += [float(weight) / len(entries)] * len(entries)
    return found


def _tagged(tag, words):
    return " ".join(word if "/" in word else f"{word}/{tag}" for word in words.split(" "))


def plain(text):
    """English words without their tags."""
    return _TAG.sub("", text)
