"""The parts of a sentence: noun phrases, people, and whatever a row names in braces.

Every function takes the `grammar.Sentence` that the part is for.
"""

from training.phrasebook import forms
from training.phrasebook.forms import TABLES, THIRD, THIRD_PLURAL
from training.phrasebook.words import NOTHING, Phrase, adjectives, join, nouns, phrases, plain

_PLURAL_ONLY = ("plural", "many", "few", "some", "all", "number")
_SINGULAR_ONLY = ("a", "none", "bare", "little")
_TIME_CHANCE = {"present": 0.5, "past": 1.0, "future": 0.7, "now": 0.4}
_SUITING, _WHOSE = (
    {name: text.split() for name, text in TABLES[table].items()}
    for table in ("suiting", "possessives")
)
PRONOUNS = tuple(
    Phrase(pt, en, person, gender == "f", en)
    for pt, (en, person, gender) in TABLES["pronouns"].items()
)


def _read_forms(text):
    return [form.replace("-", "").replace("_", " ") for form in text.split()]


# {name: (Portuguese by gender and number, English by number, Portuguese behind the noun, article)}
_DETERMINERS = {
    name: (
        _read_forms(entry["pt"]),
        _read_forms(entry["en"]),
        *map(entry.get, ("behind", "article")),
    )
    for name, entry in TABLES["determiners"].items()
}
_THE, _THAT = _DETERMINERS["the"][0], _DETERMINERS["that"][0]


def after(pt, en, phrase):
    """A phrase after a preposition; the English `*` is that of the noun, `'s` follows it."""
    contracts = pt.rpartition(" ")[2] in ("em", "de", "a", "por")
    portuguese = forms.contract(pt, (contracts and phrase.definite) or phrase.pt)
    if en == "'s":
        return Phrase(portuguese, forms.possessive(phrase.en))
    en = phrase.noun.preposition if en == "*" else en
    return Phrase(portuguese, join(en, TABLES["english"]["object"].get(phrase.en, phrase.en)))


def noun_of(sentence, groups):
    """A noun of one of the groups that the sentence does not have yet."""
    pool = nouns()[sentence.one(groups)]
    found = sentence.one([noun for noun in pool if noun not in sentence.used] or pool)
    sentence.used.append(found)
    return found


def noun_phrase(sentence, noun, determiner="*", *, adjective=0.3, singular=False):
    """A noun with a determiner and, with the probability `adjective`, an adjective."""
    if determiner == "*":
        kind = "mass" if "mass" in noun.notes else noun.kind
        determiner = sentence.one(_SUITING.get(kind, _SUITING["other"]))
    if determiner == "generic":
        determiner = "bare" if "mass" in noun.notes else "plural"
    if determiner == "whose":
        determiner = sentence.one(_WHOSE.get(plain(noun.en[0]), _WHOSE["other"]))
    plural = determiner in _PLURAL_ONLY
    if not (plural or singular or noun.single or determiner in _SINGULAR_ONLY):
        plural = sentence.chance(0.3)
    pt, en = noun.pt[plural], noun.en[plural]
    if determiner != "little" and sentence.chance(adjective):
        known = plain(en).split()
        suit = [a for a in adjectives("beside", noun.kind) if plain(a.en) not in known]
        if suit:
            chosen = sentence.one(suit)
            pt, en = f"{pt} {chosen.pt[noun.feminine][plural]}", f"{chosen.en} {en}"
    before, english, behind, article = _determiner(sentence, determiner, noun, plural)
    pt = join(before, pt, behind)
    pronoun = "it"
    if noun.kind in ("person", "family"):
        pronoun = "she" if noun.feminine else "he"
    return Phrase(
        pt,
        join(forms.article(en) if english == "a" else english, en),
        THIRD_PLURAL if plural else THIRD,
        noun.feminine,
        "they" if plural else pronoun,
        f"{_THE[noun.feminine + 2 * plural]} {pt}" if article else "",
        noun,
    )


def _determiner(sentence, name, noun, plural):
    """(Portuguese before the noun, English, Portuguese behind it, takes an article)."""
    form = noun.feminine + 2 * plural
    if name == "number":
        n = sentence.draw.randint(2, 12)
        return forms.number(n, noun.feminine), forms.english_number(n), "", False
    if name == "owner":
        owner = relative(sentence, "my your our") if sentence.chance(0.5) else person_name(sentence)
        return _THE[form], forms.possessive(owner.en), after("de", "", owner).pt, False
    pt, en, behind, article = _DETERMINERS[name]
    return pt[form], en[plural], behind, article


def relative(sentence, determiners="*"):
    noun = noun_of(sentence, ["family"])
    return noun_phrase(sentence, noun, sentence.one(determiners.split()), adjective=0)


def pronoun(sentence):
    return sentence.one(PRONOUNS)


def person_name(sentence, gender=""):
    gender = gender or sentence.one("fm")
    names = [name for name in TABLES["names"][gender].split() if name not in sentence.used]
    sentence.used.append(name := sentence.one(names))
    return Phrase(name, name, THIRD, gender == "f", "she" if gender == "f" else "he")


def two_names(sentence):
    first, second = person_name(sentence), person_name(sentence)
    pt, en = (f"{first.pt} {word} {second.pt}" for word in ("e", "and"))
    return Phrase(pt, en, THIRD_PLURAL, first.feminine and second.feminine, "they")


def person(sentence):
    """`minha irmã`, `a médica`; no child if the action is for adults."""
    if sentence.chance(0.5):
        return relative(sentence)
    action = sentence.verb and sentence.verb.action
    grown_up = action and "adult" in action.groups
    noun = noun_of(sentence, ["adult"] if grown_up else ["adult"] * 5 + ["young"])
    return noun_phrase(sentence, noun, sentence.one(("the", "the", "this", "that")), adjective=0.1)


def _any(*makers, unlike=lambda sentence: ""):
    """Draws one of the functions that make people; `unlike` gives a pronoun that must not come."""

    def made(sentence):
        while (found := sentence.one(makers)(sentence)).pronoun == unlike(sentence):
            pass
        return found

    return made


_SOMEBODY = (pronoun,) * 7 + (person_name,) * 2 + (two_names,) + (person,) * 5


def _acted_on(sentence):
    """The action of the sentence."""
    return next(verb.action for verb in sentence.verbs[::-1] if verb.action)


def _object(sentence):
    action = _acted_on(sentence)
    if not action.objects:
        return NOTHING
    name = sentence.one(action.objects)
    if name in phrases():
        found = sentence.named(name)
    else:
        found = noun_phrase(sentence, noun_of(sentence, [name]))
    preposition = action.pt.partition(" ")[2]
    return after(preposition, "", found) if preposition else found


def _place(sentence):
    places = _acted_on(sentence).places
    if not places:
        return NOTHING
    (noun,) = nouns()[sentence.one(places)]
    determiner = sentence.one(("the", "the", "the", "the", "this", "that", "a"))
    return after("em", "*", noun_phrase(sentence, noun, determiner, adjective=0.03, singular=True))


def _goal(sentence):
    """A place of the action that one goes to."""
    places = [nouns()[name][0] for name in _acted_on(sentence).places]
    noun = sentence.one([place for place in places if "goal" in place.groups])
    return noun_phrase(sentence, noun, "the", adjective=0, singular=True)


def _time(sentence):
    known = sentence.chance(_TIME_CHANCE[sentence.tense])
    return sentence.named(sentence.tense) if known else NOTHING


def _agreeing(sentence, adjective):
    """The form of an adjective for the subject; `eu`, `você` and `nós` may be feminine."""
    subject = sentence.subject
    either = subject.pronoun in ("I", "you", "we") and sentence.chance(0.5)
    return adjective.pt[subject.feminine or either][subject.plural]


def _suiting(sentence, kind=""):
    """An adjective that agrees with the subject."""
    suit = adjectives(sentence.verb.pt, kind or sentence.subject.noun.kind)
    known = plain(sentence.subject.en).split()
    chosen = sentence.one([a for a in suit if plain(a.en) not in known])
    return Phrase(_agreeing(sentence, chosen), chosen.en)


def _degree(pt, en):
    """`mais alto do que`, `taller than`; `{er}` is the English comparative."""

    def compared(sentence, kind=""):
        suit = adjectives("ser", kind or sentence.subject.noun.kind)
        chosen = sentence.one([a for a in suit if a.comparative])
        adjective = _agreeing(sentence, chosen)
        return Phrase(pt.format(adjective), en.format(chosen.en, er=chosen.comparative))

    return compared


def _that_one(sentence):
    subject = sentence.subject
    en = "those/PRON" if subject.plural else "that/DET one/PRON"
    return Phrase(_THAT[subject.feminine + 2 * subject.plural], en)


def _job(sentence):
    subject = sentence.subject
    either = subject.pronoun in ("I", "you", "we")
    noun = sentence.one([n for n in nouns()["job"] if either or n.feminine == subject.feminine])
    en = noun.en[subject.plural]
    return Phrase(noun.pt[subject.plural], en if subject.plural else f"{forms.article(en)} {en}")


def _count(sentence, low, high, *flags):
    n = sentence.draw.randint(int(low), int(high)) * (10 if "tens" in flags else 1)
    return Phrase(forms.number(n, "f" in flags), forms.english_number(n))


def _how_many(sentence, groups):
    noun = noun_of(sentence, groups.split("|"))
    many = "quantas" if noun.feminine else "quantos"
    return Phrase(f"{many} {noun.pt[1]}", f"how many {noun.en[1]}")


def _whose_is(sentence, groups):
    """`de quem são estes livros`, `whose books are these`."""
    phrase = noun_phrase(sentence, noun_of(sentence, groups.split("|")), sentence.one(_POINTED))
    pointed, _, thing = phrase.en.replace("/DET", "/PRON").partition(" ")
    pt, en = ("são", "are") if phrase.plural else ("é", "is")
    return Phrase(f"de quem {pt} {phrase.pt}", f"whose {thing} {en} {pointed}")


_POINTED = ("this", "that")
SLOTS = {
    "somebody": _any(*_SOMEBODY),
    "asked": _any(*_SOMEBODY, unlike=lambda sentence: "I"),
    "other": _any(*_SOMEBODY, unlike=lambda sentence: sentence.subject.pronoun),
    "someone": _any(pronoun, person_name, person),
    "anyone": _any(pronoun, pronoun, person_name, relative),
    "named": _any(person_name, relative),
    "name": person_name,
    "man": lambda sentence: person_name(sentence, "m"),
    "woman": lambda sentence: person_name(sentence, "f"),
    "who": lambda sentence: Phrase("quem", "who", pronoun="he"),
    "it": lambda sentence: Phrase("", "it"),
    "there-is": lambda sentence: Phrase("", "there"),
    "there-are": lambda sentence: Phrase("", "there", THIRD_PLURAL, pronoun="they"),
    "same": lambda sentence: sentence.subject._replace(pt="", en=sentence.subject.pronoun),
    "silent": lambda sentence: sentence.subject._replace(pt="", en=""),
    "object": _object,
    "place": _place,
    "goal": _goal,
    "time": _time,
    "day": lambda sentence: sentence.named(f"{sentence.tense}-day"),
    "state-time": lambda sentence: _time(sentence) if sentence.tense == "past" else NOTHING,
    "suiting": _suiting,
    "more": _degree("mais {} do que", "{er} than"),
    "less": _degree("menos {} do que", "less {} than"),
    "as": _degree("tão {} quanto", "as {} as"),
    "that-one": _that_one,
    "job": _job,
    "count": _count,
    "how-many": _how_many,
    "whose-is": _whose_is,
}
