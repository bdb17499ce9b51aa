"""Verbs in both languages: the tense, the auxiliary that English needs, denial and question."""

from typing import NamedTuple

from training.phrasebook import forms
from training.phrasebook.forms import FIRST, TABLES
from training.phrasebook.words import NOTHING, Phrase, join

_FORMS_OF_BE = {person: text.split() for person, text in TABLES["english"]["be"].items()}
MODALS = TABLES["english"]["modal"].split()


class Verb(NamedTuple):
    """A verb of a clause; `tail` follows the inflected Portuguese word: `precisa comprar`."""

    pt: str
    tail: str
    en: str
    tense: str
    action: object = None

    @property
    def is_command(self):
        """Whether it stands without a subject: `abra a porta`, `vamos comer`."""
        return self.tense in ("infinitive", "imperative")

    def command(self):
        return Phrase(getattr(forms.conjugate(self.pt), self.tense), with_head(self.en))


class Clause(NamedTuple):
    """A subject with its verb."""

    subject: Phrase
    verb: Verb

    def said(self, adverb=NOTHING, *, denied=False, drops=False):
        """The statement or its denial; `drops` leaves the Portuguese subject out."""
        auxiliary, main = english_verb(self.verb, self.subject.pronoun, denied)
        if denied:
            auxiliary = {"am": "am not", "can": "can't"}.get(auxiliary, auxiliary + "n't")
        pt = join(
            "" if drops else self.subject.pt,
            adverb.pt,
            "não" if denied else "",
            portuguese_verb(self.verb, self.subject.person),
        )
        return Phrase(pt, join(self.subject.en, auxiliary, adverb.en, main))

    def asked(self, inverted=False):
        """The question; `inverted` puts the Portuguese verb first: `onde está meu livro`."""
        auxiliary, main = english_verb(self.verb, self.subject.pronoun, True)
        pt = [self.subject.pt, portuguese_verb(self.verb, self.subject.person)]
        return Phrase(join(*(pt[::-1] if inverted else pt)), join(auxiliary, self.subject.en, main))

    def implies_subject(self):
        """Whether the form of the Portuguese verb tells that the subject is `eu`."""
        known = forms.conjugate(self.verb.pt)
        tense = {"present": known.present, "past": known.past}.get(self.verb.tense, (0, 1))
        return self.subject.person == FIRST and tense[0] != tense[1]

    def is_habit(self):
        """Whether an adverb of frequency suits it."""
        return self.verb.tense == "present" and self.verb.en.split()[0] not in ("be", *MODALS)


def head_and_tail(pt):
    head, _, tail = pt.partition(" ")
    return head, tail


def with_head(en, inflect=str):
    """An English verb with its first word inflected: `look for` -> `looks/VERB for`."""
    head, _, rest = en.partition(" ")
    return join(inflect(head) + "/VERB", rest)


def portuguese_verb(verb, person):
    """The words of a Portuguese `Verb`: `está comprando`, `precisa comprar`."""
    known = forms.conjugate(verb.pt)
    if verb.tense == "future":
        words = f"{forms.conjugate('ir').present[person]} {known.infinitive}"
    elif verb.tense in ("now", "was"):
        be = forms.conjugate("estar")
        words = f"{(be.present if verb.tense == 'now' else be.past)[person]} {known.gerund}"
    else:
        words = (known.present if verb.tense == "present" else known.past)[person]
    return join(words, verb.tail)


def english_verb(verb, pronoun, needs_auxiliary):
    """(auxiliary, empty if there is none; the rest) of a `Verb` with a subject."""
    head, _, rest = verb.en.partition(" ")
    present, past = _FORMS_OF_BE[pronoun]
    if head in MODALS:
        return head, rest
    if verb.tense == "future":
        return present, join("going/VERB to/PART", verb.en if head == "be" else with_head(verb.en))
    if verb.tense in ("now", "was"):
        be = present if verb.tense == "now" else past
        return be, with_head(verb.en, forms.english_gerund)
    if head == "be":
        return past if verb.tense == "past" else present, rest
    third = pronoun in ("he", "she", "it")
    if needs_auxiliary:
        do = "does" if third else "do"
        return "did" if verb.tense == "past" else do, with_head(verb.en)
    if verb.tense == "past":
        return "", with_head(verb.en, forms.english_past)
    return "", with_head(verb.en, forms.third_person if third else str)
