"""Noun phrases of the phrasebook: determiners, adjectives, people and subjects."""

from typing import NamedTuple

from training.corpus.phrasebook import english, portuguese, qualities
from training.corpus.phrasebook import lexicon as lex
from training.corpus.phrasebook.lists import words
from training.corpus.phrasebook.portuguese import FIRST, FIRST_PLURAL, THIRD, THIRD_PLURAL
from training.corpus.phrasebook.words import Phrase, join


class Nominal(NamedTuple):
    """A noun phrase in both languages.

    `definite` is the Portuguese with the article that a possessive takes after a preposition:
    `meu quarto`, but `no meu quarto`.
    """

    pt: str
    en: str
    person: int = THIRD  # of the Portuguese verb
    feminine: bool = False
    en_person: str = "it"  # the English pronoun that agrees with it
    definite: str = ""

    @property
    def plural(self):
        return self.person in (FIRST_PLURAL, THIRD_PLURAL)

    def after(self, preposition):
        """The Portuguese after a preposition, contracted."""
        phrase = self.pt
        if preposition.split()[-1] in ("em", "de", "a", "por"):
            phrase = self.definite or phrase
        return portuguese.contract(preposition, phrase)


class _Determiner(NamedTuple):
    before: tuple  # Portuguese by [feminine][plural]
    en: tuple  # by [plural]
    behind: str = ""  # after the noun: dele
    article: bool = False  # after a preposition


def _by_form(masculine, feminine, masculines, feminines):
    return (masculine, masculines), (feminine, feminines)


_THE = _by_form("o", "a", "os", "as")
_POSSESSIVES = {
    "my": _Determiner(_by_form("meu", "minha", "meus", "minhas"), ("my", "my"), "", True),
    "your": _Determiner(_by_form("seu", "sua", "seus", "suas"), ("your", "your"), "", True),
    "our": _Determiner(_by_form("nosso", "nossa", "nossos", "nossas"), ("our", "our"), "", True),
    "his": _Determiner(_THE, ("his", "his"), "dele"),
    "her": _Determiner(_THE, ("her", "her"), "dela"),
    "their": _Determiner(_THE, ("their", "their"), "deles"),
}
_DETERMINERS = {
    "the": _Determiner(_THE, ("the", "the")),
    "a": _Determiner(_by_form("um", "uma", "", ""), ("a", "")),
    "bare": _Determiner(_by_form("", "", "", ""), ("", "")),
    "plural": _Determiner(_by_form("", "", "", ""), ("", "")),
    "this": _Determiner(_by_form("este", "esta", "estes", "estas"), ("this", "these")),
    "that": _Determiner(_by_form("aquele", "aquela", "aqueles", "aquelas"), ("that", "those")),
    "many": _Determiner(_by_form("", "", "muitos", "muitas"), ("", "many")),
    "few": _Determiner(_by_form("", "", "poucos", "poucas"), ("", "few")),
    "some": _Determiner(_by_form("", "", "alguns", "algumas"), ("", "some")),
    "all": _Determiner(_by_form("", "", "todos os", "todas as"), ("", "all the")),
    "a little": _Determiner(_by_form("um pouco de", "um pouco de", "", ""), ("a little", "")),
    **_POSSESSIVES,
}
_ALWAYS_PLURAL = ("plural", "many", "few", "some", "all", "number")
_NEVER_PLURAL = ("a", "bare", "a little")

# The determiners that suit a kind of noun. "whose" means any possessive.
_COUNTED = words("a a a the the the whose whose this that number many some all plural owner")
_SUITING = {
    "meal": ["the", "whose"],
    "opening": ["the", "the", "this", "that"],
    "transport": ["the", "a"],
    "vehicle": words("a the whose whose this that owner"),
    "bill": ["the", "whose"],
    "place": words("the a whose this that owner"),
    "show": words("a the this that number many some"),
    "plant": words("a the number many some this"),
    "family": ["whose"],
    "person": words("the the a this that some many number all"),
}
_WHOSE = words("my my your our his her their")
_SPOUSES = {"husband": words("my my your her"), "wife": words("my my your his")}
_SUITING["mass"] = ["bare", "bare", "the", "the", "whose", "this", "a little"]


def noun_phrase(draw, noun, determiners=None, *, plain=False, singular=False):
    """A noun with a determiner and perhaps an adjective.

    Args:
        draw: A `random.Random`.
        noun: The `Noun`.
        determiners: Names of determiners to choose from; default: those that suit the noun.
        plain: Whether to leave out adjectives.
        singular: Whether the phrase is singular, unless the determiner itself is a number.
    """
    suiting = _SUITING["mass"] if noun.mass else _SUITING.get(noun.kind, _COUNTED)
    name = draw.choice(determiners or suiting)
    if name == "whose":
        name = draw.choice(_SPOUSES.get(noun.en, _WHOSE))
    plural = name in _ALWAYS_PLURAL
    if not (plural or singular) and name not in _NEVER_PLURAL and _can_be_plural(noun):
        plural = draw.random() < 0.3
    # No `short short story`.
    suiting = [a for a in qualities.ADJECTIVES.get(noun.kind, ()) if a.en not in noun.en]
    plain = plain or not suiting or name == "a little"
    adjective = draw.choice(suiting) if not plain and draw.random() < 0.3 else None
    if name == "owner":
        owner = _owner(draw)
        determiner = _Determiner(_THE, (english.possessive(owner.en),) * 2, owner.after("de"))
    elif name == "number":
        n = draw.randint(2, 12)
        forms = portuguese.number(n, noun.feminine)
        determiner = _Determiner(((forms, forms), (forms, forms)), ("", english.number(n)))
    else:
        determiner = _DETERMINERS[name]
    return _realise(noun, determiner, adjective, plural)


def _owner(draw):
    if draw.random() < 0.5:
        return name(draw)
    return noun_phrase(draw, draw.choice(lex.FAMILY), ("my", "your", "our"), plain=True)


def _can_be_plural(noun):
    single = noun.kind in ("meal", "bill", "transport") or noun.en in lex.SINGLE
    return not (noun.mass or single)


def _realise(noun, determiner, adjective, plural):
    pt = noun.pt_plural if plural else noun.pt
    en = noun.en_plural if plural else noun.en
    if adjective:
        pt = f"{pt} {adjective.pt(noun.feminine, plural)}"
        en = f"{adjective.en} {en}"
    article = english.article(en) if determiner.en[plural] == "a" else determiner.en[plural]
    before = determiner.before[noun.feminine][plural]
    phrase = join(before, pt, determiner.behind)
    definite = join(_THE[noun.feminine][plural], phrase) if determiner.article else ""
    pronoun = "it"
    if noun.kind in ("person", "family"):
        pronoun = "she" if noun.feminine else "he"
    return Nominal(
        phrase,
        join(article, en),
        THIRD_PLURAL if plural else THIRD,
        noun.feminine,
        "they" if plural else pronoun,
        definite,
    )


PRONOUNS = (
    Nominal("eu", "I", FIRST, False, "I"),
    Nominal("você", "you", THIRD, False, "you"),
    Nominal("ele", "he", THIRD, False, "he"),
    Nominal("ela", "she", THIRD, True, "she"),
    Nominal("nós", "we", FIRST_PLURAL, False, "we"),
    Nominal("vocês", "you", THIRD_PLURAL, False, "you"),
    Nominal("eles", "they", THIRD_PLURAL, False, "they"),
    Nominal("elas", "they", THIRD_PLURAL, True, "they"),
)
_OBJECT_PRONOUNS = {
    "I": "me",
    "he": "him",
    "she": "her",
    "we": "us",
    "they": "them",
}


def pronoun(draw):
    return draw.choice(PRONOUNS)


def name(draw):
    if draw.random() < 0.5:
        woman = draw.choice(lex.WOMEN)
        return Nominal(woman, woman, THIRD, True, "she")
    man = draw.choice(lex.MEN)
    return Nominal(man, man, THIRD, False, "he")


def named(draw):
    """A person by name, or as a relative."""
    if draw.random() < 0.5:
        return name(draw)
    return noun_phrase(draw, draw.choice(lex.FAMILY), plain=True)


def two_names(draw):
    first, second = name(draw), name(draw)
    while second.pt == first.pt:
        second = name(draw)
    feminine = first.feminine and second.feminine
    return Nominal(
        f"{first.pt} e {second.pt}",
        f"{first.en} and {second.en}",
        THIRD_PLURAL,
        feminine,
        "they",
    )


def person(draw, adult=False):
    """A person by role or family: `a médica`, `meu irmão`."""
    if draw.random() < 0.5:
        return noun_phrase(draw, draw.choice(lex.FAMILY), plain=True)
    role = draw.choice(lex.ADULT if adult else lex.ADULT + lex.YOUNG)
    return noun_phrase(draw, role, ("the", "the", "this", "that"), plain=draw.random() < 0.7)


def somebody(draw, adult=False):
    """A person or pronoun, for the subject of a sentence."""
    chance = draw.random()
    if chance < 0.45:
        return pronoun(draw)
    if chance < 0.6:
        return name(draw)
    return two_names(draw) if chance < 0.66 else person(draw, adult)


def with_somebody(draw, pt, en):
    """`com`, `para`, ... and a person: `comigo`, `for my mother`."""
    chance = draw.random()
    if chance < 0.3:
        who = pronoun(draw)
        return Phrase(
            portuguese.contract(pt, who.pt), f"{en} {_OBJECT_PRONOUNS.get(who.en, who.en)}"
        )
    who = name(draw) if chance < 0.5 else person(draw)
    return Phrase(who.after(pt), f"{en} {who.en}")
