"""Sentences about states: people, things, places, weather, time, possession, taste."""

from training.corpus.phrasebook import actions as act
from training.corpus.phrasebook import english, phrases, portuguese, qualities, when
from training.corpus.phrasebook import lexicon as lex
from training.corpus.phrasebook.clauses import Tense, clause
from training.corpus.phrasebook.doings import NOTHING, city, country, finished, sentence
from training.corpus.phrasebook.lists import words
from training.corpus.phrasebook.phrases import Nominal, noun_phrase, somebody
from training.corpus.phrasebook.words import Phrase, Verb, verb

_IT = Nominal("", "it")
_THERE = Nominal("", "there")
_EXIST = Verb(portuguese.conjugate("haver")._replace(present=("há",) * 4), "be")


def suits(draw, adjective, subject):
    """The adjective in agreement with its subject; `eu` and `nós` may be feminine."""
    feminine = subject.feminine
    if subject.en_person in ("I", "you", "we") and draw.random() < 0.5:
        feminine = True
    return Phrase(adjective.pt(feminine, subject.plural), adjective.en)


def character(draw):
    subject = somebody(draw)
    adjective = draw.choice(qualities.CHARACTER + qualities.NATIONALITY)
    quality = suits(draw, adjective, subject)
    if adjective in qualities.CHARACTER and draw.random() < 0.3:
        quality = Phrase(f"muito {quality.pt}", f"very {quality.en}")
    return finished(draw, subject, Tense.PRESENT, act.BE, quality)


def origin(draw):
    there = draw.choice(lex.COUNTRY + lex.CITY)
    where = Phrase(portuguese.contract("de", there.pt), f"from {there.en}")
    return finished(draw, somebody(draw), Tense.PRESENT, act.BE, where)


def profession(draw):
    subject = phrases.pronoun(draw) if draw.random() < 0.5 else phrases.named(draw)
    either = subject.en_person in ("I", "you", "we")
    noun = draw.choice([n for n in lex.PROFESSION if either or n.feminine == subject.feminine])
    if subject.plural:
        job = Phrase(noun.pt_plural, noun.en_plural)
    else:
        job = Phrase(noun.pt, f"{english.article(noun.en)} {noun.en}")
    return finished(draw, subject, Tense.PRESENT, act.BE, job)


def mood(draw):
    subject = somebody(draw)
    how = suits(draw, draw.choice(qualities.MOOD), subject)
    tense = draw.choice((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    time = when.before(draw) if tense is Tense.PAST else NOTHING
    if tense is Tense.PRESENT and draw.random() < 0.4:
        time = draw.choice(when.TODAY)
    return finished(draw, subject, tense, act.STAY, how, time=time)


BEING = tuple(
    noun
    for nouns in (
        *(lex.TEXT, lex.CLOTHES, lex.OBJECT, lex.FURNITURE, lex.VEHICLE),
        *(lex.ANIMAL, lex.ROOM, lex.HOME, lex.SHOW, lex.SONG),
    )
    for noun in nouns
)
PASSING = frozenset(words("clean dirty hot cold fresh"))
_POINTED = ("the", "the", "this", "that", "whose")


def quality(draw):
    """`Este vestido é caro.`"""
    noun = draw.choice(BEING)
    determiners = ("the", "this", "that") if noun.kind in ("show", "animal") else _POINTED
    subject = noun_phrase(draw, noun, determiners, plain=draw.random() < 0.8)
    suiting = [
        a for a in qualities.ADJECTIVES[noun.kind] if a.en not in PASSING | set(subject.en.split())
    ]
    how = suits(draw, draw.choice(suiting), subject)
    chance = draw.random()
    if chance < 0.2:
        how = Phrase(f"muito {how.pt}", f"very {how.en}")
    return finished(draw, subject, Tense.PRESENT, act.BE, how)


def event(draw):
    """`A reunião foi longa.`"""
    noun = draw.choice(lex.EVENT + lex.SHOW)
    subject = noun_phrase(draw, noun, ("the", "that"), plain=True)
    how = suits(
        draw, draw.choice([a for a in qualities.ADJECTIVES["show"] if a.en != "new"]), subject
    )
    if draw.random() < 0.3:
        how = Phrase(f"muito {how.pt}", f"very {how.en}")
    return finished(draw, subject, Tense.PAST, act.BE, how)


_STATES = (
    ("opening", lex.OPENING + lex.CONTAINER[:2] + lex.CONTAINER[3:]),
    ("object", lex.DISHES + lex.FURNITURE + lex.VEHICLE),
    ("clothes", lex.CLOTHES),
    ("food", lex.DISH + lex.FOOD[:6]),
    ("place", tuple(place.noun for place in act.GOALS[2:8] + act.GOALS[12:17])),
)


def state(draw):
    """`As janelas estão abertas.`"""
    kind, nouns = draw.choice(_STATES)
    determiners = ("the", "the", "this", "that") if kind in ("opening", "place") else _POINTED
    subject = noun_phrase(draw, draw.choice(nouns), determiners, plain=True)
    how = suits(draw, draw.choice(qualities.STATE[kind]), subject)
    tense = draw.choice((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    time = when.before(draw) if tense is Tense.PAST else NOTHING
    return finished(draw, subject, tense, act.STAY, how, time=time)


_BESIDE = (
    ("perto de", "near"),
    ("ao lado de", "next to"),
    ("atrás de", "behind"),
    ("em frente a", "in front of"),
    ("longe de", "far from"),
)
_ON = (("em", "on"), ("embaixo de", "under"), ("ao lado de", "next to"), ("atrás de", "behind"))


def _somewhere(draw):
    """A place where a thing can be."""
    if draw.random() < 0.6:
        pt, en = draw.choice(_ON)
        noun = draw.choice(lex.SURFACE)
        where = noun_phrase(draw, noun, ("the", "the", "this", "whose"), plain=True, singular=True)
    elif draw.random() < 0.5:
        pt, en = "dentro de", "inside"
        noun = draw.choice(lex.STORAGE)
        where = noun_phrase(draw, noun, ("the", "this", "that"), plain=True, singular=True)
    else:
        pt, en = "em", "in"
        noun = draw.choice(lex.ROOM)
        where = noun_phrase(draw, noun, ("the", "whose"), plain=True, singular=True)
    if where.en.endswith("balcony"):
        en = "on"
    return Phrase(where.after(pt), f"{en} {where.en}")


def location(draw):
    """`Minhas chaves estão na mesa.`"""
    tense = draw.choice((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    time = when.before(draw) if tense is Tense.PAST else NOTHING
    if draw.random() < 0.35:
        place = draw.choice(act.HOME_PLACES + act.GOALS)
        there = noun_phrase(draw, place.noun, ("the",), plain=True, singular=True)
        where = Phrase(there.after("em"), f"{place.en} {there.en}")
        if draw.random() < 0.1:
            where = act.AT_HOME
        return finished(draw, somebody(draw), tense, act.STAY, where, time=time)
    noun = draw.choice(lex.OBJECT + lex.DISHES + lex.CLOTHES)
    subject = noun_phrase(draw, noun, _POINTED, plain=draw.random() < 0.6)
    return finished(draw, subject, tense, act.STAY, _somewhere(draw), time=time)


def geography(draw):
    """`O hotel fica perto da estação.`"""
    first, second = draw.sample(act.GOALS, 2)
    subject = noun_phrase(draw, first.noun, ("the", "this"), plain=True, singular=True)
    beside = noun_phrase(draw, second.noun, ("the",), plain=True, singular=True)
    pt, en = draw.choice(_BESIDE)
    where = Phrase(beside.after(pt), f"{en} {beside.en}")
    return finished(draw, subject, Tense.PRESENT, verb("ficar", "be"), where)


_OWNED = lex.PET + lex.VEHICLE + lex.OBJECT + lex.CLOTHES + lex.TEXT + lex.HOME
_KIN = tuple(noun for noun in lex.FAMILY if noun.en not in lex.SINGLE and noun.en[:5] != "grand")


def possession(draw):
    """`Nós temos dois gatos.`, `Ela não tem carro.`"""
    subject = somebody(draw)
    if draw.random() < 0.15:
        n = draw.randint(2, 99)
        age = Phrase(f"{portuguese.number(n)} anos", f"{english.number(n)} years old")
        aged = clause(subject, Tense.PRESENT, act.BE, Phrase("", age.en)).statement()
        has = clause(subject, Tense.PRESENT, act.HAVE, Phrase(age.pt, "")).statement()
        return sentence(Phrase(has.pt, aged.en))
    noun = draw.choice(_OWNED + _KIN * 2)
    if draw.random() < 0.2:
        lacked = Phrase(noun.pt, f"{english.article(noun.en)} {noun.en}")
        return sentence(clause(subject, Tense.PRESENT, act.HAVE, lacked, denies=True).statement())
    owned = noun_phrase(draw, noun, ("a", "a", "number", "many", "few", "some"))
    return finished(draw, subject, Tense.PRESENT, act.HAVE, owned, denies=0, often=False)


def existence(draw):
    """`Há três livros na mesa.`"""
    chance = draw.random()
    if chance < 0.3:
        noun = draw.choice(lex.FRUIT + lex.DISH + lex.FOOD + lex.DRINK)
        where = draw.choice(
            (Phrase("na geladeira", "in the refrigerator"), Phrase("na mesa", "on the table"))
        )
    elif chance < 0.6:
        noun = draw.choice(lex.ADULT + lex.YOUNG + lex.ANIMAL[:5])
        place = draw.choice([p for p in act.GOALS if p.en in ("in", "at")])
        where = Phrase(
            portuguese.contract("em", ("a " if place.noun.feminine else "o ") + place.noun.pt),
            f"{place.en} the {place.noun.en}",
        )
    else:
        noun, where = draw.choice(lex.OBJECT + lex.DISHES + lex.CLOTHES), _somewhere(draw)
    determiners = (
        ("bare", "bare", "a little") if noun.mass else ("a", "number", "number", "many", "some")
    )
    what = noun_phrase(draw, noun, determiners)
    there = _THERE._replace(en_person="they" if what.plural else "it")
    is_there = clause(there, Tense.PRESENT, _EXIST, what, where)
    if draw.random() < 0.2:
        return sentence(is_there.question(), "?")
    return sentence(is_there.statement())


_WEATHER = (
    Phrase("frio", "cold"),
    Phrase("quente", "hot"),
    Phrase("ensolarado", "sunny"),
    Phrase("nublado", "cloudy"),
    Phrase("abafado", "humid"),
    Phrase("agradável", "nice"),
)


# Places with snow.
_COLD = (
    Phrase("em Nova York", "in New York"),
    Phrase("em Londres", "in London"),
    Phrase("em Berlim", "in Berlin"),
    Phrase("no Canadá", "in Canada"),
    Phrase("na Alemanha", "in Germany"),
    Phrase("no Japão", "in Japan"),
)


def _falling(draw):
    """Rain in any place, or snow in a cold one."""
    if draw.random() < 0.3:
        return verb("nevar", "snow"), draw.choice(_COLD)
    return verb("chover", "rain"), draw.choice((city, country))(draw)


def weather(draw):
    falls, where = _falling(draw)
    tense, how = draw.choice((Tense.NOW, Tense.PAST, Tense.FUTURE)), NOTHING
    if draw.random() < 0.5:
        tense = draw.choice((Tense.PRESENT, Tense.PAST, Tense.FUTURE))
        how, falls = draw.choice(_WEATHER), act.STAY
    time = {
        Tense.PRESENT: lambda: draw.choice(when.TODAY),
        Tense.PAST: lambda: when.before(draw),
        Tense.FUTURE: lambda: when.later(draw),
        Tense.NOW: lambda: when.now(draw),
    }[tense]()
    if draw.random() < 0.2:
        where = NOTHING
    return finished(draw, _IT, tense, falls, how, where, time=time)


def climate(draw):
    """`Chove muito em Londres em novembro.`"""
    falls, where = _falling(draw)
    much = draw.choice((Phrase("muito", "a lot"), Phrase("pouco", "little")))
    month = draw.choice(when.MONTHS)
    said = clause(_IT, Tense.PRESENT, falls, much, where).statement()
    return sentence(Phrase(f"{said.pt} em {month.pt}", f"{said.en} in {month.en}"))


_TIMETABLE = (
    ("ônibus trem avião", (verb("sair", "leave"), verb("chegar", "arrive"))),
    (
        "aula reunião festa prova jogo filme concerto",
        (verb("começar", "start"), verb("terminar", "end")),
    ),
    (
        "loja banco museu biblioteca farmácia padaria",
        (verb("abrir", "open"), verb("fechar", "close")),
    ),
)
_SCHEDULED = {
    noun.pt: noun
    for noun in lex.TRANSPORT + lex.EVENT + lex.SHOW + tuple(p.noun for p in act.GOALS)
}


def timetable(draw):
    """`A loja abre às nove horas aos sábados.`"""
    names, verbs = draw.choice(_TIMETABLE)
    noun = _SCHEDULED[draw.choice(names.split())]
    subject = noun_phrase(draw, noun, ("the",), plain=True, singular=True)
    tense = draw.choice((Tense.PRESENT, Tense.FUTURE, Tense.PAST))
    day = {
        Tense.PRESENT: lambda: when.habitual_day(draw) if draw.random() < 0.7 else NOTHING,
        Tense.FUTURE: lambda: when.coming_day(draw),
        Tense.PAST: lambda: when.past_day(draw),
    }[tense]()
    return finished(draw, subject, tense, draw.choice(verbs), when.at_clock(draw), day)


def hour(draw):
    """`São oito e meia.`, `É uma hora.`"""
    time = when.clock(draw)
    article, _, rest = time.pt.partition(" ")
    is_it = "São" if article == "as" else "É"
    return Phrase(f"{is_it} {rest}.", f"It is {time.en}.")
