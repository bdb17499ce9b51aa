"""The tables of words: nouns, adjectives, actions and phrases, as the grammar uses them."""

import dataclasses
import functools
import re
from pathlib import Path
from typing import NamedTuple

from training.phrasebook import forms
from training.phrasebook.forms import FIRST_PLURAL, THIRD, THIRD_PLURAL

_TAG = re.compile(r"/[A-Z]+\b")


class Phrase(NamedTuple):
    """A phrase in both languages, with what other words agree with."""

    pt: str
    en: str
    person: int = THIRD  # of the Portuguese verb
    feminine: bool = False
    pronoun: str = "it"  # the English pronoun for it
    definite: str = ""  # the Portuguese after a preposition, if it differs: o meu quarto
    noun: object = None

    @property
    def plural(self):
        return self.person in (FIRST_PLURAL, THIRD_PLURAL)


NOTHING = Phrase("", "")


@dataclasses.dataclass(frozen=True, eq=False)
class Noun:
    """A noun, singular and plural. Its kind decides which determiners and adjectives suit it."""

    pt: tuple
    en: tuple
    feminine: bool
    kind: str
    groups: tuple
    notes: tuple  # mass, one (never plural)

    @property
    def preposition(self):
        """The English preposition of a place."""
        return next(note for note in self.notes if note in ("at", "in", "on"))

    @property
    def single(self):
        """Whether it has no plural."""
        return "mass" in self.notes or "one" in self.notes


@dataclasses.dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective: its Portuguese forms by [feminine][plural], and the kinds that it suits."""

    pt: tuple
    en: str
    beside: tuple  # kinds of nouns
    ser: tuple
    estar: tuple
    comparative: str  # empty if there is none


@dataclasses.dataclass(frozen=True, eq=False)
class Action:
    """A verb with what it is done to (groups of nouns, English nouns, phrases), and where."""

    pt: str
    en: str
    groups: tuple
    objects: tuple
    places: tuple  # English nouns


def table(name):
    """Yields the rows of a table of this folder, each a list of six columns."""
    text = (Path(__file__).parent / f"{name}.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield (line.split("\t") + [""] * 6)[:6]


def _listed(text):
    return tuple(text.split(", ")) if text else ()


@functools.cache
def nouns():
    """{group or English singular: tuple of `Noun`}; a group hides a noun of its name."""
    groups, names = {}, {}
    for pt, gender, en, kind, listed, notes in table("nouns"):
        notes = _listed(notes)
        plural = [note.removeprefix("plural=") for note in notes if note.startswith("plural=")]
        plural = plural[0] if plural else forms.plural(pt)
        english = tagged_as("NOUN", en), tagged_as("NOUN", forms.english_plural(en))
        noun = Noun((pt, plural), english, gender == "f", kind, _listed(listed), notes)
        for group in noun.groups:
            groups.setdefault(group, []).append(noun)
        names.setdefault(plain(en), []).append(noun)
    return names | groups


@functools.cache
def adjectives(relation, kind):
    """The adjectives that suit a kind of noun: `relation` is beside, ser or estar."""
    return [a for a in _adjectives() if kind in getattr(a, relation)]


@functools.cache
def _adjectives():
    found = []
    for pt, en, beside, ser, estar, comparative in table("adjectives"):
        masculine, *irregular = pt.split("/")
        if " " in masculine:  # an expression that never changes: com fome
            irregular = [masculine] * 3
        elif not irregular:
            feminine = forms.feminine(masculine)
            irregular = feminine, forms.plural(masculine), forms.plural(feminine)
        feminine, *plurals = irregular
        by_gender = tuple(zip((masculine, feminine), plurals, strict=True))
        en = en if " " in en else tagged_as("ADJ", en)
        comparative = comparative and tagged_as("ADJ", comparative).replace("more/ADJ", "more")
        kinds = map(_listed, (beside, ser, estar))
        found.append(Adjective(by_gender, en, *kinds, comparative))
    return found


@functools.cache
def actions(group, often=False):
    """The actions of a group; `often` leaves out those that are no habit."""
    found = [Action(pt, en, *map(_listed, lists)) for pt, en, *lists, _ in table("actions")]
    return [a for a in found if group in a.groups and not (often and "once" in a.groups)]


@functools.cache
def phrases():
    """{name: ([cumulative weights], [words])}."""
    found = {}
    for name, weight, words, *_ in table("phrases"):
        weights, entries = found.setdefault(name, ([], []))
        weights.append(float(weight) + (weights[-1] if weights else 0))
        entries.append(words)
    return found


def tagged_as(tag, words):
    """English words with a tag of their own: `orange/NOUN juice/NOUN`."""
    return " ".join(word if "/" in word else f"{word}/{tag}" for word in words.split(" "))


def plain(text):
    """English words without their tags."""
    return _TAG.sub("", text)


def join(*words):
    """The words that are not empty, with spaces between them."""
    return " ".join(filter(None, words))
