"""Sentences about prices, tastes, comparisons, and the owners of things."""

from training.corpus.phrasebook import actions as act
from training.corpus.phrasebook import english, portuguese, qualities
from training.corpus.phrasebook import lexicon as lex
from training.corpus.phrasebook.clauses import Tense, clause
from training.corpus.phrasebook.doings import finished, sentence
from training.corpus.phrasebook.lists import words
from training.corpus.phrasebook.phrases import Nominal, named, noun_phrase, somebody
from training.corpus.phrasebook.states import BEING, PASSING, suits
from training.corpus.phrasebook.words import Phrase, verb

_LIKE, _PREFER = verb("gostar", "like"), verb("preferir", "prefer")
# A colour has no degrees, and `bom`, `ruim` have a comparative of their own.
_INCOMPARABLE = PASSING | set(words("red blue green yellow black white gray brown good bad"))


def price(draw):
    """`Estes sapatos custam oitenta reais.`"""
    nouns = lex.CLOTHES + lex.OBJECT + lex.TEXT + lex.FURNITURE + lex.DISH
    noun = draw.choice(nouns)
    subject = noun_phrase(draw, noun, ("the", "this", "that"), plain=draw.random() < 0.7)
    costs = verb("custar", "cost")
    if draw.random() < 0.2:
        asked = clause(subject, Tense.PRESENT, costs, asks=True)
        return sentence(asked.inverted("quanto", "how much"), "?")
    n = draw.choice((draw.randint(2, 99), 10 * draw.randint(10, 99)))
    reais = Phrase(f"{portuguese.number(n)} reais", f"{english.number(n)} reais")
    return sentence(clause(subject, Tense.PRESENT, costs, reais).statement())


_LIKED = lex.FRUIT + lex.FOOD + lex.DRINK + lex.ANIMAL + lex.SHOW[:2] + lex.PLANT[:2] + lex.TEXT[:4]


def taste(draw):
    """`Ela gosta muito de café.`, `Nós gostamos desta cidade.`, `Eu prefiro chá a café.`"""
    subject = somebody(draw)
    if draw.random() < 0.2:
        pool = draw.choice((lex.FRUIT, lex.FOOD, lex.DRINK, lex.ANIMAL))
        first, second = (
            noun_phrase(draw, noun, ("bare",) if noun.mass else ("plural",), plain=True)
            for noun in draw.sample(pool, 2)
        )
        preferred = Phrase(f"{first.pt} a {second.pt}", f"{first.en} to {second.en}")
        return finished(draw, subject, Tense.PRESENT, _PREFER, preferred, often=False)
    noun = draw.choice(_LIKED + lex.CLOTHES + lex.HOME)
    general = noun.kind not in ("clothes", "place")
    usual = ("bare",) if noun.mass else ("plural",)
    what = noun_phrase(draw, noun, usual if general else ("this", "that", "the"), plain=not general)
    if draw.random() < 0.25:
        liked = Phrase(f"muito {what.after('de')}", f"{what.en} very much")
    else:
        liked = Phrase(what.after("de"), what.en)
    return finished(draw, subject, Tense.PRESENT, _LIKE, liked, often=False)


def comparison(draw):
    """`Ana é mais alta do que o irmão dela.`, `Este livro é tão longo quanto aquele.`"""
    if draw.random() < 0.6:
        subject, other = named(draw), named(draw)
        adjective = draw.choice(qualities.COMPARABLE)
    else:
        noun = draw.choice(BEING)
        subject = noun_phrase(draw, noun, ("this",), plain=True)
        suiting = [a for a in qualities.ADJECTIVES[noun.kind] if a.en not in _INCOMPARABLE]
        adjective = draw.choice(suiting)
        forms = (("aquele", "aqueles"), ("aquela", "aquelas"))
        that = forms[noun.feminine][subject.plural]
        other = Nominal(that, "those" if subject.plural else "that one")
    pt = suits(draw, adjective, subject).pt
    chance = draw.random()
    if chance < 0.6:
        how = Phrase(f"mais {pt} do que", f"{english.comparative(adjective.en)} than")
    elif chance < 0.8:
        how = Phrase(f"menos {pt} do que", f"less {adjective.en} than")
    else:
        how = Phrase(f"tão {pt} quanto", f"as {adjective.en} as")
    if subject.pt == other.pt:
        return comparison(draw)
    beside = Phrase(f"{how.pt} {other.pt}", f"{how.en} {other.en}")
    return finished(draw, subject, Tense.PRESENT, act.BE, beside)


def sought(draw):
    """`Onde está meu guarda-chuva?`, `De quem são estes livros?`"""
    noun = draw.choice(lex.OBJECT + lex.CLOTHES + lex.DISHES + lex.VEHICLE)
    chance = draw.random()
    if chance < 0.5:
        subject = noun_phrase(draw, noun, ("the", "whose"))
        return sentence(clause(subject, Tense.PRESENT, act.STAY).inverted("onde", "where"), "?")
    if chance < 0.75:
        subject = noun_phrase(draw, noun, ("this", "that"))
        whose = clause(subject, Tense.PRESENT, act.BE).inverted("de quem", "")
        shown, _, thing = subject.en.partition(" ")
        be = "are" if subject.plural else "is"
        return sentence(Phrase(whose.pt, f"whose {thing} {be} {shown}"), "?")
    who = somebody(draw)
    many = "quantas" if noun.feminine else "quantos"
    has = clause(who, Tense.PRESENT, act.HAVE, asks=True)
    return sentence(has.question(f"{many} {noun.pt_plural}", f"how many {noun.en_plural}"), "?")
