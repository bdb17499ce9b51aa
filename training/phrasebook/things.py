"""Topics of sentences: people, noun phrases, adjectives and numbers, in both languages."""

import functools
import itertools

from training.phrasebook import english, portuguese
from training.phrasebook.lexicon import NUMBERS, Thing, adjectives, nouns, plain
from training.phrasebook.portuguese import SECOND, TABLES, THIRD, THIRD_PLURAL

_THE = ("o", "a", "os", "as")
_PRONOUNS = {
    name: Thing("" if "!" in name else name, en, person, person > 2, gender == "f", pronoun)
    for name, (en, pronoun, person, gender) in TABLES["pronouns"].items()
}
# {name: what it may be instead, as often as it is listed}
_CHOICES = {
    name: [spec for entry in text.split(", ") for spec in [entry.split("*")[0]] * int(entry[-1])]
    for name, text in TABLES["choices"].items()
}
# {name: (Portuguese by gender and number, English by number, the number that it asks for)}
_DETERMINERS = {
    name: [[form.strip("-").replace("_", " ") for form in part.split()] for part in text.split(";")]
    for name, text in TABLES["determiners"].items()
}
_OBJECTS = [row.split() for row in TABLES["objects"]]


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

    def one(self, alternatives):
        """One of several, each as likely."""
        return alternatives[int(self.draw.random() * len(alternatives))]

    def _unused(self, make):
        for _ in range(20):
            found = make()
            if found not in self.used:
                break
        self.used.append(found)
        return found

    # --- People

    def subject_of(self, text, asked=False):
        """The subject that a clause names; it becomes the one that others agree with."""
        if text in ("same", "", "-"):
            return self.subject._replace(pt="", en=self.subject.pronoun if text == "same" else "")
        if "=" in text:  # `todos=everybody*`: the Portuguese verb is plural, with ** both
            pt, en = self.one(text.split("/")).split("=")
            person, plural = THIRD_PLURAL if en.endswith("*") else THIRD, en.endswith("**")
            one = "he" if en.rstrip("*").endswith(("one", "body", "who", "you")) else "it"
            found = Thing(pt, en.rstrip("*"), person, plural, pronoun="they" if plural else one)
        else:
            found = self.thing(text)
            if asked and found.pronoun in ("I", "we"):
                found = self.thing("you")
        self.subject = found
        return found

    def _name(self, spec):
        gender = "m" if spec == "man" else "f"
        name = self._unused(lambda: self.one(TABLES["names"][gender].split()))
        pt = f"{_THE[gender == 'f']} {name}" if self.draw.random() < 0.12 else name
        return Thing(pt, name, THIRD, False, gender == "f", "he" if gender == "m" else "she")

    def _two_names(self, _):
        one, two = self.thing("name"), self.thing("name")
        pt, en = f"{one.pt} e {two.pt}", f"{one.en} and {two.en}"
        return Thing(pt, en, THIRD_PLURAL, True, one.feminine and two.feminine, "they")

    def _other(self, spec):
        """Someone who is not the subject, nor among those who are; `him` is `mim`, not `eu`."""
        taken = self.subject.pronoun
        while True:
            found = self.thing("somebody-else" if spec == "whoelse" else "somebody")
            clash = ("I", "we") if taken in ("I", "we") else (taken,)
            if found.pronoun not in clash or (spec != "whoelse" and found.pt not in _PRONOUNS):
                after = {"eu": "mim", "tu": "ti"} if spec == "him" else {}
                return found._replace(pt=after.get(found.pt, found.pt))

    def _profession(self, _):
        """`médica`, `a doctor`: what the subject is, in its gender and number."""
        jobs = [noun for noun in nouns()["job"] if noun.feminine == self.subject.feminine]
        noun, plural = self.one(jobs), self.subject.plural
        return Thing(noun.pt[plural], noun.en[plural] if plural else f"a {noun.en[0]}")

    def object_of(self, subject, kind, tense):
        """A pronoun before the verb that is not the subject."""
        taken = {"I": ("I", "we"), "we": ("I", "we"), "you": ("you",)}.get(subject.pronoun, ())
        if tense != "cmd" and not subject.pt and subject.pronoun == "you":  # whose infinitive?
            taken = ("I", "you", "we")
        rows = [row for row in _OBJECTS if row[2] not in taken and (kind == "o" or row[1] != "-")]
        weights = [float(row[4]) for row in rows]
        accusative, dative, pronoun, en, _ = self.draw.choices(rows, weights)[0]
        return Thing(accusative if kind == "o" else dative, en, pronoun=pronoun)

    # --- Things

    def thing(self, spec):
        """Resolves a specification in braces, such as `the1 fruit+`."""
        if spec in _CHOICES:
            return self.thing(self.one(_CHOICES[spec]))
        if spec in _PRONOUNS:
            return _PRONOUNS[spec]
        if spec in _MADE:
            return _MADE[spec](self, spec)
        if "/" in spec and " " not in spec:
            return self.thing(self.one(spec.split("/")))
        kind, _, rest = spec.partition(" ")
        if kind[0] == "~":  # an adjective that agrees with the subject
            return Thing(self._agreeing(portuguese.adjective_forms(kind[1:])), "")
        rest, _, _ = rest.partition("#")
        if kind in ("n", "d"):
            return self._count(kind, *rest.split())
        if kind in ("adj", "deg", "more", "most"):
            return self._adjective(kind, rest)
        determiner, groups = self.one(kind.split("/")), rest.rstrip("+")
        found, weights = _ranked(groups)
        noun = self._unused(lambda: self.draw.choices(found, cum_weights=weights)[0])
        return self.noun_phrase(noun, determiner, 0.5 * rest.endswith("+"))

    def noun_phrase(self, noun, determiner, adjective=0.0):
        """A noun with a determiner and, with the probability `adjective`, an adjective."""
        name, number = determiner.rstrip("12"), determiner[-1]
        if name == "*":
            name = self.one(_CHOICES["mass" if "mass" in noun.notes else "countable"])
        if "mass" in noun.notes:
            name = {"a": "bare", "some": "bit"}.get(name, name)
        pt_forms, en_forms, behind, wanted = self._determiner(name)
        number = number if number in "12" else wanted
        plural = number == "2" or (number == "0" and self.draw.random() < 0.22)
        plural = "many" in noun.notes or (plural and not {"mass", "one"} & {*noun.notes})
        pt, en = noun.pt[plural], noun.en[plural]
        if adjective and self.draw.random() < adjective:
            pt, en = self._described(noun, plural, pt, en)
        before, en_before = pt_forms[noun.feminine + 2 * plural], en_forms[plural]
        one = "it" if "person" not in noun.notes else "she" if noun.feminine else "he"
        pt, en = f"{before} {pt} {behind}".strip(), f"{en_before} {en}".strip()
        person, pronoun = (THIRD_PLURAL, "they") if plural else (THIRD, one)
        return Thing(pt, en, person, plural, noun.feminine, pronoun, noun)

    def _determiner(self, name):
        """(Portuguese by gender and number, English by number, Portuguese behind, number)."""
        if name == "own":
            pronoun = self.subject.pronoun
            own = "tu" if self.subject.person == SECOND else pronoun
            return TABLES["own"][own].split(), [english.POSSESSIVE[pronoun]] * 2, "", "0"
        if name in ("his", "their", "whose"):
            owner = self.thing({"his": "he-she", "their": "they", "whose": "name"}[name])
            en = {"he": "his", "she": "her/DET", "they": "their"}.get(owner.en)
            return _THE, [en or english.possessive(owner.en)] * 2, f"de {owner.pt}", "0"
        if name == "num":
            pt, feminine, en = NUMBERS[self.draw.randint(2, 12)]
            return [pt, feminine] * 2, [en] * 2, "", "2"
        forms, en_forms, number = _DETERMINERS[name]
        return forms, en_forms, "", number[0]

    def _described(self, noun, plural, pt, en):
        found = self.one(adjectives()[noun.adjectives])
        if plain(found.en) in plain(en).split():
            return pt, en
        form = found.pt[noun.feminine + 2 * plural]
        return (f"{form} {pt}" if found.before else f"{pt} {form}"), f"{found.en} {en}"

    def _adjective(self, degree, name):
        """An adjective that agrees with the subject; `*` is one that suits it."""
        compared = degree in ("more", "most")
        suiting = adjectives()[self.subject.noun.adjectives if name == "*" else name]
        found = self.one([a for a in suiting if a.graded] if compared else suiting)
        pt, en = self._agreeing(found.pt), found.en
        if compared:
            irregular = TABLES["compared"].get(found.pt[0])
            pt = irregular + "es" * self.subject.plural if irregular else f"mais {pt}"
            en = english.compared(plain(en), "er" if degree == "more" else "est")
        if degree == "most":
            return Thing(f"{self._agreeing(_THE)} {pt}", f"the {en}")
        if degree == "deg" and found.graded and self.draw.random() < 0.5:
            more_pt, more_en = self.one(TABLES["degrees"]).split("=")
            return Thing(f"{more_pt} {pt}", f"{more_en} {en}")
        return Thing(pt, en)

    def _agreeing(self, forms):
        """The form for the subject; who speaks or is spoken to may be a woman."""
        feminine = self.subject.feminine
        speaks = self.subject.pronoun in ("I", "you", "we")
        if speaks and not feminine and self.subject.pt not in ("o senhor", "a gente"):
            if self.women is None:
                self.women = self.draw.random() < 0.25
            feminine = self.women
        return forms[feminine + 2 * self.subject.plural]

    def _count(self, kind, low, high, gender="m"):
        n = self.draw.randint(int(low), int(high))
        return (
            Thing(str(n), str(n))
            if kind == "d"
            else Thing(NUMBERS[n][gender == "f"], NUMBERS[n][2])
        )


_MADE = dict.fromkeys(("him", "anyone", "whoelse"), Things._other)
_MADE |= dict.fromkeys(("man", "woman"), Things._name)
_MADE |= {"two-names": Things._two_names, "profession": Things._profession}
