"""A clause in both languages: who does what, in which tense, as a statement, denial or question."""

import enum
from typing import NamedTuple

from training.corpus.phrasebook import english, portuguese
from training.corpus.phrasebook.actions import GO, STAY
from training.corpus.phrasebook.phrases import Nominal
from training.corpus.phrasebook.words import Phrase, Verb, join


class Tense(enum.Enum):
    """When: habitual present, past, future (ir + infinitive), and the two progressives."""

    PRESENT = enum.auto()
    PAST = enum.auto()
    FUTURE = enum.auto()
    NOW = enum.auto()
    WAS = enum.auto()


_BE = {"I": ("am", "was"), "you": ("are", "were"), "we": ("are", "were"), "they": ("are", "were")}
_NOT = {"am": "am not", "can": "can't"}


class Clause(NamedTuple):
    """Subject and predicate; the English auxiliary is separate, because a question moves it."""

    subject: Nominal
    pt: str
    auxiliary: str
    en: str

    def statement(self):
        return Phrase(join(self.subject.pt, self.pt), self._english(self.subject.en))

    def again(self, drop_english=False):
        """The clause with a subject named before: dropped in Portuguese, `she` in English."""
        subject = "" if drop_english else _pronoun(self.subject)
        return Phrase(self.pt, self._english(subject))

    def dropped(self):
        """The statement without the Portuguese pronoun, because the verb form implies it."""
        return Phrase(self.pt, self._english(self.subject.en))

    def question(self, pt="", en=""):
        """A question, with or without a question word in front."""
        asked = join(en, self.auxiliary, self.subject.en, self.en)
        return Phrase(join(pt, self.subject.pt, self.pt), asked)

    def inverted(self, pt, en):
        """A question with the Portuguese verb before its subject: `onde está meu livro`."""
        return Phrase(
            join(pt, self.pt, self.subject.pt), join(en, self.auxiliary, self.subject.en, self.en)
        )

    def _english(self, subject):
        return join(subject, self.auxiliary, self.en)


def _pronoun(subject):
    return subject.en_person


def clause(subject, tense, verb, *complements, denies=False, asks=False, adverb=None):
    """Builds a `Clause`.

    Args:
        subject: A `Nominal`.
        tense: A `Tense`.
        verb: A `Verb`; the English verb `be` gets its own forms.
        complements: `Phrase`s that follow the verb, in this order in both languages.
        denies: Whether the clause is negated.
        asks: Whether English needs its auxiliary for a question.
        adverb: A `Phrase` between subject and verb, such as `sempre`.
    """
    auxiliary, main = _english_group(subject.en_person, tense, verb, denies or asks)
    if denies:
        auxiliary = _NOT.get(auxiliary, auxiliary + "n't")
    pt = join(
        adverb.pt if adverb else "",
        "não" if denies else "",
        _portuguese_group(subject.person, tense, verb),
        *(complement.pt for complement in complements),
    )
    middle = adverb.en if adverb else ""
    en = join(middle, main, *(complement.en for complement in complements))
    return Clause(subject, pt, auxiliary, en)


def _portuguese_group(person, tense, verb):
    forms, tail = verb.pt, verb.tail
    match tense:
        case Tense.PRESENT:
            words = forms.present[person]
        case Tense.PAST:
            words = portuguese.ESTAVA[person] if forms is STAY.pt else forms.past[person]
        case Tense.FUTURE:
            words = f"{GO.pt.present[person]} {forms.infinitive}"
        case Tense.NOW:
            words = f"{STAY.pt.present[person]} {forms.gerund}"
        case Tense.WAS:
            words = f"{portuguese.ESTAVA[person]} {forms.gerund}"
    return join(words, tail)


def _english_group(person, tense, verb, needs_auxiliary):
    """The auxiliary, empty if there is none, and the rest of the verb."""
    if verb.auxiliary:
        return verb.auxiliary, verb.en
    present, past = _BE.get(person, ("is", "was"))
    match tense:
        case Tense.FUTURE:
            return present, f"going to {verb.en}"
        case Tense.NOW:
            return present, english.gerund(verb.en)
        case Tense.WAS:
            return past, english.gerund(verb.en)
    if verb.en == "be":
        return (past if tense is Tense.PAST else present), ""
    third = person in ("he", "she", "it")
    if needs_auxiliary:
        do = "does" if third else "do"
        return ("did" if tense is Tense.PAST else do), verb.en
    if tense is Tense.PAST:
        return "", english.past(verb.en)
    return "", english.third_person(verb.en) if third else verb.en


def with_modal(modal, verb):
    """A `Verb` from one of the MODALS and another verb: `precisar` + `comprar`."""
    outer, joint, to = modal
    tail = join(joint, verb.pt.infinitive)
    if to:
        return Verb(outer.pt, f"{outer.en} {to} {verb.en}", verb.rest, tail)
    return Verb(outer.pt, verb.en, verb.rest, tail, outer.en)


def object_of(verb, nominal):
    """A noun phrase as the object of a verb: `ao filme`, `the movie`."""
    if isinstance(nominal, Phrase):
        return nominal
    return Phrase(nominal.after(verb.rest) if verb.rest else nominal.pt, nominal.en)
