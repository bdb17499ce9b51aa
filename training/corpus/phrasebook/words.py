"""The words of the phrasebook, and how the lists of the lexicon are read."""

import dataclasses
from typing import NamedTuple

from training.corpus.phrasebook import english, portuguese


def join(*words):
    """The words that are not empty, with spaces between them."""
    return " ".join(word for word in words if word)


class Phrase(NamedTuple):
    """A phrase in both languages."""

    pt: str
    en: str


@dataclasses.dataclass(frozen=True)
class Noun:
    """A noun with its gender and plurals. `kind` decides which adjectives suit it."""

    pt: str
    feminine: bool
    en: str
    pt_plural: str
    en_plural: str
    kind: str = ""
    mass: bool = False


@dataclasses.dataclass(frozen=True)
class Adjective:
    """An adjective with its Portuguese forms by (feminine, plural)."""

    en: str
    forms: tuple[tuple[str, str], tuple[str, str]]

    def pt(self, feminine, plural):
        return self.forms[feminine][plural]


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb: its Portuguese forms, the words between it and its object, and the English base.

    `rest` is the preposition of the object (`assistir a`) or empty; `tail` follows the inflected
    word (`querer` + `comer`); `auxiliary` is an English one, not inflected (`can`).
    """

    pt: portuguese.Forms
    en: str
    rest: str = ""
    tail: str = ""
    auxiliary: str = ""


def nouns(kind, text, mass=False):
    """Reads lines `portuguese, m or f, english[, portuguese plural]` into a tuple of `Noun`."""
    found = []
    for line in text.strip().splitlines():
        pt, gender, en, *plural = (part.strip() for part in line.split(","))
        found.append(
            Noun(
                pt,
                {"m": False, "f": True}[gender],
                en,
                plural[0] if plural else portuguese.plural(pt),
                english.plural(en),
                kind,
                mass,
            )
        )
    return tuple(found)


def adjectives(text):
    """Reads pairs of `portuguese english`, separated by commas, into a tuple of `Adjective`.

    Irregular forms follow the masculine: `bom/boa/bons/boas good`. An expression that never
    changes is written with `_`: `com_fome hungry`.
    """
    found = []
    for item in text.split(","):
        pt, en = item.split(maxsplit=1)
        masculine, *irregular = pt.split("/")
        if "_" in masculine:
            masculine = feminine = masculines = feminines = masculine.replace("_", " ")
        elif irregular:
            feminine, masculines, feminines = irregular
        else:
            feminine = portuguese.feminine(masculine)
            masculines, feminines = portuguese.plural(masculine), portuguese.plural(feminine)
        found.append(Adjective(en.strip(), ((masculine, masculines), (feminine, feminines))))
    return tuple(found)


def verb(pt, en):
    """A `Verb` from `assistir a`, `watch`."""
    infinitive, _, rest = pt.partition(" ")
    return Verb(portuguese.conjugate(infinitive), en, rest)
