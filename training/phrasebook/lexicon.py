"""The tables of words: nouns, adjectives, actions and phrases, as the grammar uses them.

An entry is `PORTUGUESE=ENGLISH`; a noun has its article, `a maçã=apple`.
"""

import functools
import itertools
import re
from pathlib import Path
from typing import NamedTuple

from training.phrasebook import english, portuguese
from training.phrasebook.portuguese import THIRD

_TAG = re.compile(r"/[A-Z]+\b")


class Thing(NamedTuple):
    """What a part of a sentence says, in both languages, with what other words agree with."""

    pt: str
    en: str
    person: int = THIRD  # of the Portuguese verb
    plural: bool = False
    feminine: bool = False
    pronoun: str = "it"  # the English pronoun for it
    kind: str = ""  # which adjectives suit it
    noun: object = None


class Noun(NamedTuple):
    """A noun, singular and plural."""

    pt: tuple
    en: tuple
    feminine: bool
    adjectives: str  # the list of adjectives that suit it
    notes: frozenset  # mass, one (never plural), many (always plural), person, family
    place: str  # the English preposition of a place, with 0 if it drops the article


class Adjective(NamedTuple):
    """An adjective: masculine, feminine, and their plurals; before its noun or behind it."""

    pt: tuple
    en: str
    before: bool
    graded: bool  # whether one is very so


class Action(NamedTuple):
    """A verb with what belongs to it, in both languages, as a row of `sentences.tsv` has them."""

    pt: str
    pt_rest: str
    en: str
    en_rest: str
    clitic: str  # the kind of the Portuguese pronoun before the verb: se, o, lhe


def table(name):
    """Yields the rows of a table of this folder, each a list of columns."""
    text = (Path(__file__).parent / f"{name}.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def _entries(text):
    for entry in text.split("; "):
        pt, _, en = entry.partition("=")
        yield pt.strip(), en.strip()


@functools.cache
def nouns():
    """{group: list of `Noun`}; a row is groups, adjectives, notes, entries."""
    groups = {}
    for names, adjectives, notes, text in table("nouns"):
        for pt, en in _entries(text):
            en, _, place = en.partition("@")
            for noun in _nouns(pt, en, adjectives, frozenset(notes.split()), place or "in"):
                for name in names.split():
                    groups.setdefault(name, []).append(noun)
    return groups


def _nouns(pt, en, adjectives, notes, place):
    """The nouns of an entry; `o médico/a médica=doctor` are two."""
    several = en if "many" in notes else english.plural(en)
    forms = tuple(_tagged("NOUN", text) for text in (en, several))
    for form in pt.split("/"):
        article, _, word = form.partition(" ")
        plural = word if "many" in notes else portuguese.plural(word)
        yield Noun((word, plural), forms, article in ("a", "as"), adjectives, notes, place)


@functools.cache
def adjectives():
    """{list: adjectives}; a row is names of lists and entries with `<` and `!`."""
    lists = {}
    for names, text in table("adjectives"):
        for pt, en in _entries(text):
            forms = portuguese.adjective_forms(pt.strip("<!"))
            en = _tagged("ADJ", en) if " " not in en else en
            for name in names.split():
                lists.setdefault(name, []).append(
                    Adjective(forms, en, pt.startswith("<"), not pt.endswith("!"))
                )
    return lists


@functools.cache
def actions():
    """{group: list of `Action`}; a row is groups, Portuguese, English."""
    groups = {}
    for names, pt, en in table("actions"):
        head, _, pt_rest = pt.partition(" ")
        en_head, _, en_rest = en.partition(" ")
        clitic, _, verb = head.rpartition("_")
        names = names.split()
        if "do" in names and {"need", "skill"} & set(names):
            names.append("like")
        for name in names:
            action = Action(verb, pt_rest, en_head, en_rest, clitic)
            groups.setdefault(name, []).append(action)
    return groups


@functools.cache
def phrases():
    """{name: ([cumulative weights], [(Portuguese, English)])}."""
    found = {}
    for name, weight, text in table("phrases"):
        entries = list(_entries(text))
        weights, known = found.setdefault(name, ([], []))
        start, share = (weights[-1] if weights else 0), float(weight) / len(entries)
        weights.extend(itertools.accumulate([share] * len(entries), initial=start))
        del weights[-len(entries) - 1]
        known.extend(entries)
    return found


def _tagged(tag, words):
    return " ".join(word if "/" in word else f"{word}/{tag}" for word in words.split(" "))


def plain(text):
    """English words without their tags."""
    return _TAG.sub("", text)
