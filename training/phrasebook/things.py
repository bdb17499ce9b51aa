"""What sentences speak of: people, noun phrases, adjectives and numbers, in both languages."""

import functools
import itertools
import re

from training.phrasebook import english, portuguese
from training.phrasebook.lexicon import Thing, adjectives, nouns, plain
from training.phrasebook.portuguese import SECOND, TABLES, THIRD, THIRD_PLURAL

REFLEXIVE = ("me", "te", "se", "nos", "se")  # by person
_PRONOUNS = {
    pt: Thing(pt, en, person, person > 2, gender == "f", en)
    for pt, (en, person, gender, *_) in TABLES["pronouns"].items()
}
_WEIGHTS = [row[3] for row in TABLES["pronouns"].values()]
_AFTER_PREPOSITION = {pt: row[4] for pt, row in TABLES["pronouns"].items()}
_OWN = {row[0]: row[5].split() for pt, row in TABLES["pronouns"].items() if pt != "tu"}
_OWN |= {"tu": TABLES["pronouns"]["tu"][5].split(), "it": _OWN["he"]}
_DETERMINERS = {
    name: [[form.strip("-").replace("_", " ") for form in side.split()] for side in text.split(";")]
    for name, text in TABLES["determiners"].items()
}
# Clitic pronouns: Portuguese after `o_` and `lhe_`, English subject and object, weight.
_OBJECTS = [row.split() for row in TABLES["objects"]]
_DEGREES = [pair.split("=") for pair in TABLES["degrees"]]
_SUITING = {name: text.split() for name, text in TABLES["suiting"].items()}


@functools.cache
def _ranked(groups):
    """The nouns of groups (`fruit/food`), the first ones drawn more often."""
    found = [noun for group in groups.split("/") for noun in nouns()[group]]
    return found, list(itertools.accumulate((rank + 12) ** -0.5 for rank in range(len(found))))


class Things:
    """Draws the things of a sentence."""

    def __init__(self, draw):
        self.draw = draw
        self.subject, self.object = Thing("", "it"), None
        self.women = None  # whether those who speak or are spoken to are women, once it matters
        self.used = []  # nouns and names, none of which occurs twice

    def chance(self, share):
        """Whether an event of a probability happens."""
        return self.draw.random() < share

    def one(self, alternatives):
        """One of several, each as likely."""
        return alternatives[int(self.draw.random() * len(alternatives))]

    # --- People

    def subject_of(self, text, asked=False):
        """The subject that a clause names; it becomes the one that others agree with."""
        if text in ("same", "", "-"):
            en = self.subject.pronoun if text == "same" else ""
            found = self.subject._replace(pt="", en=en)
            return found
        self.subject = self._subject(text, asked)
        return self.subject

    def _subject(self, text, asked):
        if "/" in text and " " not in text and "=" not in text:
            text = self.one(text.split("/"))
        if text in _SPEAKERS:
            return self.one(_SPEAKERS[text])
        if text in ("!", "!!"):  # who is told to do something
            person = THIRD if text == "!" else THIRD_PLURAL
            return Thing("", "you", person, text == "!!", pronoun="you")
        if text in ("it", "there"):
            return Thing("", text, pronoun=text)
        if "=" in text:
            pt, en = self.one(text.split("/")).split("=")
            plural = en.endswith("**")
            person = THIRD_PLURAL if en.endswith("*") else THIRD
            pronoun = (
                "they" if plural else "he" if en.endswith(("one", "body", "who", "you")) else "it"
            )
            return Thing(pt, en.rstrip("*"), person, plural, pronoun=pronoun)
        if text == "who":
            found = self.one(_SOMEBODY)(self)
            return self.one(_SPEAKERS["you"]) if asked and found.pronoun in ("I", "we") else found
        return self.thing(text.split(" "))

    def pronoun(self):
        """A pronoun."""
        return self.draw.choices(list(_PRONOUNS.values()), _WEIGHTS)[0]

    def name(self, gender=""):
        """A first name, sometimes with its article."""
        gender = gender or self.one("mmmf")
        name = self._unused(lambda: self.one(_NAMES[gender]))
        article = ("o " if gender == "m" else "a ") * self.chance(0.12)
        return Thing(
            article + name, name, feminine=gender == "f", pronoun="she" if gender == "f" else "he"
        )

    def two_names(self):
        """`Tom e Mary`."""
        first, second = self.name(), self.name()
        feminine = first.feminine and second.feminine
        pt, en = f"{first.pt} e {second.pt}", f"{first.en} and {second.en}"
        return Thing(pt, en, THIRD_PLURAL, True, feminine, "they")

    def relative(self):
        """`meu pai`."""
        noun = self._unused(lambda: self._noun("kin"))
        owners = (
            ("my", "my", "your")
            if "spouse" in noun.notes
            else ("my", "my", "my", "your", "his", "our")
        )
        return self.noun_phrase(noun, self.one(owners))

    def person(self):
        """`o médico`."""
        noun = self._unused(lambda: self._noun("people"))
        return self.noun_phrase(noun, self.one(("the", "the", "the", "this", "that")), "")

    def someone(self):
        """A name, a relative or another person."""
        return self.one((Things.name, Things.name, Things.name, Things.relative, Things.person))(
            self
        )

    def other(self, after_preposition=True):
        """A pronoun (`mim` after a preposition) or somebody else; never the subject itself."""
        taken = self.subject.pronoun
        if self.chance(0.6):
            found = self.pronoun()
            clash = {taken, "I"} if taken == "we" else {taken}
            if found.pronoun not in clash and not (taken == "I" and found.pronoun == "we"):
                return (
                    found._replace(pt=_AFTER_PREPOSITION[found.pt]) if after_preposition else found
                )
        return self.someone()

    def profession(self):
        """`médica`, `a doctor`: what the subject is, in its gender and number."""
        jobs = [noun for noun in nouns()["job"] if noun.feminine == self.subject.feminine]
        noun, plural = self.one(jobs), self.subject.plural
        return Thing(noun.pt[plural], noun.en[plural] if plural else f"a {noun.en[0]}")

    def someone_else(self):
        """Who can be a subject beside the one before."""
        taken = "I" if self.subject.pronoun == "it" else self.subject.pronoun
        while True:
            found = self.one((Things.pronoun, Things.pronoun, Things.name, Things.relative))(self)
            if found.pronoun != taken:
                return found

    def object_of(self, subject, kind, tense):
        """A clitic pronoun that is not the subject."""
        taken = {"I": ("I", "we"), "we": ("I", "we"), "you": ("you",)}.get(subject.pronoun, ())
        if tense == "cmd":
            taken = ("you",)
        elif not subject.pt and subject.pronoun == "you":  # an infinitive whose subject is open
            taken = ("I", "you", "we")
        rows = [row for row in _OBJECTS if row[2] not in taken and (kind == "o" or row[1] != "-")]
        accusative, dative, pronoun, en, _ = self.draw.choices(rows, [float(r[4]) for r in rows])[0]
        return Thing(accusative if kind == "o" else dative, en, pronoun=pronoun)

    def pronoun_of(self, name):
        """The English of `my`, `self`, `obj` and `he`."""
        if name == "obj":
            return self.object.en
        pronoun = self.subject.pronoun
        if name == "my":
            return english.POSSESSIVE[pronoun]
        if name == "he":
            return pronoun
        if pronoun in ("you", "they", "we") and self.subject.plural:
            return {"you": "yourselves", "they": "themselves", "we": "ourselves"}[pronoun]
        own = {"I": "myself", "you": "yourself", "he": "himself", "she": "herself"}
        return own.get(pronoun, "ourselves" if pronoun == "we" else "itself")

    # --- Things

    def thing(self, words):
        """What a specification in braces names, such as `{the1 fruit+}`."""
        name = words[0]
        if name[0] == "~":  # an adjective that agrees with the subject
            return Thing(self._agreeing(portuguese.adjective_forms(name[1:])), "")
        if name in _MADE:
            return _MADE[name](self)
        if name in ("n", "d"):
            return self._count(*words)
        if name in ("adj", "deg", "more", "most"):
            return self._adjective(name, words[-1].partition("#")[0])
        determiner = self.one(name.split("/"))
        groups = words[-1].partition("#")[0]
        noun = self._unused(lambda: self._noun(groups.rstrip("+")))
        number = determiner[-1] if determiner[-1] in "12" and determiner != "this2" else ""
        determiner = determiner.rstrip("12") if number else determiner
        return self.noun_phrase(noun, determiner, number, 0.5 * groups.endswith("+"))

    def _noun(self, groups):
        found, weights = _ranked(groups)
        return self.draw.choices(found, cum_weights=weights)[0]

    def _unused(self, make):
        for _ in range(5):
            found = make()
            if found not in self.used:
                break
        self.used.append(found)
        return found

    def noun_phrase(self, noun, determiner="*", number="", adjective=0.0):
        """A noun with a determiner and, with the probability `adjective`, an adjective."""
        mass = "mass" in noun.notes
        if determiner == "*":
            determiner = self.one(_SUITING["mass" if mass else "other"])
        if mass and determiner in ("a", "another"):
            determiner = {"a": "bare", "another": "the"}[determiner]
        return self._noun_phrase(noun, determiner, number, adjective)

    def _noun_phrase(self, noun, determiner, number, adjective):
        pt_forms, en_forms, behind = self._determiner(determiner)
        singular_only = not pt_forms[2] and bool(pt_forms[0])
        plural = number == "2" or (not number and self.chance(0.22) and not singular_only)
        plural = plural or bool(pt_forms[2] and not pt_forms[0]) or determiner == "num"
        if determiner in ("how-many", "many", "few", "bit", "several", "bare", "any", "all"):
            plural = number != "1"
        if determiner in ("every", "no", "none", "a"):
            plural = False
        if noun.notes & {"mass", "one"}:
            plural = False
        if "many" in noun.notes:
            plural = True
        pt, en = noun.pt[plural], noun.en[plural]
        if adjective and self.chance(adjective):
            pt, en = self._described(noun, plural, pt, en)
        form = noun.feminine + 2 * plural
        before, en_before = pt_forms[form], en_forms[plural]
        if determiner == "num":
            n = self.draw.randint(2, 12)
            before, en_before = portuguese.number(n, noun.feminine), english.number(n)
        elif determiner == "a" and plural:  # uns óculos
            before, en_before = ("uns", "umas")[noun.feminine], "some"
        elif determiner == "all" and not plural:
            before, en_before = (("todo o", "toda a")[noun.feminine], "all the")
        pronoun = "they" if plural else "it"
        if not plural and noun.notes & {"person", "kin"}:
            pronoun = "she" if noun.feminine else "he"
        return Thing(
            " ".join(filter(None, (before, pt, behind))),
            " ".join(filter(None, (en_before, en))),
            THIRD_PLURAL if plural else THIRD,
            plural,
            noun.feminine,
            pronoun,
            noun.adjectives,
            noun,
        )

    def _determiner(self, name):
        """(Portuguese by gender and number, English by number, Portuguese behind the noun)."""
        if name == "own":
            pronoun = self.subject.pronoun
            forms = _OWN["tu" if self.subject.person == SECOND else pronoun]
            return forms, [english.POSSESSIVE[pronoun]] * 2, ""
        if name == "num":
            return ["", "", "x", "x"], ["", ""], ""
        if name in ("his", "their", "whose"):
            owner = _PRONOUNS[self.one(("ele", "ela") if name == "his" else ("eles",))]
            en = english.POSSESSIVE[owner.pronoun]
            en = en + "/DET" if en == "her" else en
            if name == "whose":
                owner = self.name()
                en = english.possessive(owner.en)
            return _DETERMINERS["the"][0], [en, en], f"de {owner.pt}"
        return *_DETERMINERS[name], ""

    def _described(self, noun, plural, pt, en):
        known = plain(en).split()
        found = self.one(adjectives().get(noun.adjectives) or [None])
        if found is None or plain(found.en) in known:
            return pt, en
        form = found.pt[noun.feminine + 2 * plural]
        return (f"{form} {pt}" if found.before else f"{pt} {form}"), f"{found.en} {en}"

    def _adjective(self, degree, name):
        """An adjective that agrees with the subject; `*` is one that suits it."""
        subject = self.subject
        suiting = adjectives()[subject.kind if name == "*" else name]
        if degree in ("more", "most"):
            suiting = [adjective for adjective in suiting if adjective.graded]
        found = self.one(suiting)
        pt, en = self._agreeing(found.pt), found.en
        if degree == "deg" and found.graded and self.chance(0.5):
            more_pt, more_en = self.one(_DEGREES)
            return Thing(f"{more_pt} {pt}", f"{more_en} {en}")
        if degree in ("more", "most"):
            ending = "er" if degree == "more" else "est"
            en = english.compared(plain(en), ending)
            better = {"bom": "melhor", "ruim": "pior", "grande": "maior", "pequeno": "menor"}
            pt = better.get(found.pt[0], "")
            pt = pt + ("es" if subject.plural else "") if pt else f"mais {self._agreeing(found.pt)}"
            if degree == "most":
                pt = self._agreeing(("o", "a", "os", "as")) + " " + pt
                en = "the " + en
        return Thing(pt, en)

    def _agreeing(self, forms):
        """The form for the subject; who speaks or is spoken to may be a woman."""
        feminine = self.subject.feminine
        speaks = self.subject.pronoun in ("I", "you", "we")
        if speaks and not feminine and self.subject.pt not in ("o senhor", "a gente"):
            feminine = self.women = self.chance(0.25) if self.women is None else self.women
        return forms[feminine + 2 * self.subject.plural]

    def _count(self, kind, low, high, *flags):
        step = 10 if "tens" in flags else 1
        n = self.draw.randint(int(low), int(high)) * step
        if kind == "d":
            return Thing(str(n), str(n))
        return Thing(portuguese.number(n, "f" in flags), english.number(n))

    def place(self, thing, preposition=""):
        """`at the station`; `at school` and `to school` have no article."""
        wanted = thing.noun.place
        en = thing.en
        if wanted.endswith("0"):
            en = re.sub(r"^the ", "", en)
        return f"{preposition or wanted.rstrip('0')} {en}"


_NAMES = {gender: text.split() for gender, text in TABLES["names"].items()}
_SPEAKERS = {
    en: [_PRONOUNS[pt] for pt in text.split(",")] for en, text in TABLES["speakers"].items()
}
_SOMEBODY = (
    (Things.pronoun,) * 10
    + (Things.name,) * 6
    + (Things.relative,) * 2
    + (Things.person,) * 2
    + (Things.two_names,)
)
_MADE = {
    "whom": Things.someone,
    "him": Things.other,
    "name": Things.name,
    "man": lambda self: self.name("m"),
    "woman": lambda self: self.name("f"),
    "relative": Things.relative,
    "person": Things.person,
    "profession": Things.profession,
    "anyone": lambda self: self.other(after_preposition=False),
    "whoelse": Things.someone_else,
    "pro": lambda self: self.one((Things.pronoun, Things.pronoun, Things.name))(self),
}
