"""Sentences about what people do: actions, journeys, wishes, requests, and questions about them."""

from training.corpus.phrasebook import actions as act
from training.corpus.phrasebook import lexicon as lex
from training.corpus.phrasebook import phrases, portuguese, when
from training.corpus.phrasebook.clauses import Tense, clause, object_of, with_modal
from training.corpus.phrasebook.lists import words
from training.corpus.phrasebook.phrases import FIRST, Nominal, noun_phrase, somebody
from training.corpus.phrasebook.words import Noun, Phrase, verb

_WHEN = {
    Tense.PRESENT: (0.5, when.habitually),
    Tense.PAST: (1.0, when.before),
    Tense.FUTURE: (0.7, when.later),
    Tense.NOW: (0.4, when.now),
}
_TENSES = (Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.PAST, Tense.FUTURE, Tense.NOW)
_ONCE = (Tense.PAST, Tense.PAST, Tense.FUTURE)
NOTHING = Phrase("", "")


def sentence(phrase, mark="."):
    """Capital letter and full stop, question or exclamation mark."""
    return Phrase(*(text[0].upper() + text[1:] + mark for text in phrase))


def thing(draw, noun):
    """The object of an action, as a phrase."""
    return noun_phrase(draw, noun) if isinstance(noun, Noun) else noun


def at_place(draw, places, chance=0.4):
    """`na cozinha`, `at a hotel`, or nothing."""
    if not places or draw.random() >= chance:
        return NOTHING
    place = draw.choice(places)
    determiner = draw.choice(("the", "the", "the", "the", "this", "that", "a"))
    plain = draw.random() < 0.9
    where = noun_phrase(draw, place.noun, (determiner,), plain=plain, singular=True)
    return Phrase(where.after("em"), f"{place.en} {where.en}")


def at_time(draw, tense, chance=None):
    usual, pick = _WHEN[tense]
    return pick(draw) if draw.random() < (usual if chance is None else chance) else NOTHING


def finished(draw, subject, tense, verb, *complements, time=NOTHING, denies=0.2, often=True):
    """A statement, denial or question, with the time at its end or in front of it.

    `often` allows adverbs of frequency if there is no time. Questions are never about `eu`.
    """
    asks = 0.15
    chance = draw.random() if subject.en_person != "I" else draw.uniform(asks, 1)
    if chance < asks:
        asked = clause(subject, tense, verb, *complements, time, asks=True)
        return sentence(asked.question(), "?")
    denied = chance < asks + denies
    adverb = None
    habit = often and tense is Tense.PRESENT and not verb.auxiliary and time is NOTHING
    if habit and not denied and verb.en != "be" and draw.random() < 0.3:
        adverb = draw.choice(when.FREQUENCY)
    if time is not NOTHING and draw.random() < 0.2:
        said = clause(subject, tense, verb, *complements, denies=denied).statement()
        return sentence(Phrase(f"{time.pt}, {said.pt}", f"{time.en}, {said.en}"))
    said = clause(subject, tense, verb, *complements, time, denies=denied, adverb=adverb)
    forms = {Tense.PAST: verb.pt.past, Tense.PRESENT: verb.pt.present}.get(tense, (0, 1))
    if subject.person == FIRST and forms[0] != forms[1] and draw.random() < 0.25:
        return sentence(said.dropped())
    return sentence(said.statement())


def action(draw):
    done = draw.choice(act.TRANSITIVE)
    tense = draw.choice(_ONCE if done.once else _TENSES)
    return finished(
        draw,
        somebody(draw, done.adult),
        tense,
        done.verb,
        object_of(done.verb, thing(draw, draw.choice(done.objects))),
        at_place(draw, done.places),
        time=at_time(draw, tense),
    )


def activity(draw):
    """Without an object: `Ela trabalha num hospital.`"""
    done = draw.choice(act.INTRANSITIVE)
    tense = draw.choice(_TENSES)
    place = at_place(draw, done.places, 0.8)
    if place is NOTHING and done.verb.en in ("live", "work"):
        place = draw.choice((city(draw), country(draw)))
    company = NOTHING
    if draw.random() < 0.2 or done.verb.en == "talk":
        company = phrases.with_somebody(draw, "com", "with")
    subject = somebody(draw, done.adult)
    return finished(draw, subject, tense, done.verb, company, place, time=at_time(draw, tense))


def city(draw):
    there = draw.choice(lex.CITY)
    return Phrase(portuguese.contract("em", there.pt), f"in {there.en}")


def country(draw):
    there = draw.choice(lex.COUNTRY)
    return Phrase(portuguese.contract("em", there.pt), f"in {there.en}")


def goal(draw, pt, en):
    """`ao mercado`, `da estação`, `pelo parque`."""
    place = draw.choice(act.GOALS)
    where = noun_phrase(draw, place.noun, ("the", "the", "that"), plain=True, singular=True)
    return Phrase(where.after(pt), f"{en} {where.en}".strip())


def journey(draw):
    tense = draw.choice(_TENSES)
    subject = somebody(draw)
    if draw.random() < 0.3:
        there = draw.choice(lex.CITY + lex.COUNTRY)
        where = Phrase(f"para {there.pt}", f"to {there.en}")
        going = verb("viajar", "travel")
    elif draw.random() < 0.2:
        where, going = draw.choice(
            (
                (Phrase("para casa", "home"), verb("ir", "go")),
                (Phrase("para casa", "home"), verb("voltar", "go back")),
                (Phrase("de casa", "home"), verb("sair", "leave")),
            )
        )
    else:
        going, pt, en = draw.choice(act.TRAVEL)
        where = goal(draw, pt, en)
    if tense is Tense.FUTURE and going.pt.infinitive == "ir":
        tense = Tense.PRESENT
    company = phrases.with_somebody(draw, "com", "with") if draw.random() < 0.2 else NOTHING
    return finished(draw, subject, tense, going, where, company, time=at_time(draw, tense))


def transfer(draw):
    done, to = draw.choice(act.TRANSFER)
    tense = draw.choice((Tense.PAST, Tense.PAST, Tense.FUTURE, Tense.PRESENT))
    return finished(
        draw,
        somebody(draw, done.adult),
        tense,
        done.verb,
        thing(draw, draw.choice(done.objects)),
        phrases.with_somebody(draw, "para", to),
        time=at_time(draw, tense, 0.3 if tense is Tense.FUTURE else None),
    )


_SKILLS = frozenset(words("swim cook dance sing drive speak play fix"))


_WISHED = tuple(
    done for done in act.TRANSITIVE + act.INTRANSITIVE if done.verb.en not in act.ACCIDENTS
)


def wish(draw):
    """With a modal verb: can, should, want to, need to, have to, like to, know how to ..."""
    done = draw.choice(_WISHED)
    able = [m for m in act.MODALS if m[0].en != "know how" or done.verb.en in _SKILLS]
    modal = draw.choice(able)
    subject = somebody(draw, done.adult)
    lasting = modal[0].en in ("like", "know how", "prefer")
    complements = [at_place(draw, done.places, 0.4 if done.objects else 0.9)]
    if done.objects:
        complements.insert(0, object_of(done.verb, thing(draw, draw.choice(done.objects))))
    elif done.verb.en == "talk":
        complements.insert(0, phrases.with_somebody(draw, "com", "with"))
    tense = Tense.PRESENT
    if modal[0].en in ("need", "try") and draw.random() < 0.3:
        tense = draw.choice((Tense.PAST, Tense.FUTURE))
    time = NOTHING
    if not lasting:
        time = when.before(draw) if tense is Tense.PAST else at_time(draw, Tense.FUTURE, 0.4)
    return finished(
        draw,
        subject,
        tense,
        with_modal(modal, done.verb),
        *complements,
        time=time,
        often=not lasting,
    )


_ORDERED = words(
    "eat drink buy read write open close wash clean bring use fix cut prepare help take"
)
_ORDERS = tuple(
    done for done in act.TRANSITIVE if done.verb.en in (*_ORDERED, "put away", "wait for", "feed")
)


def order(draw):
    """`Abra a porta, por favor.`, `Não abra a janela.`, `Vamos comer no jardim.`"""
    done = draw.choice(_ORDERS)
    complement = object_of(done.verb, thing(draw, draw.choice(done.objects)))
    place = at_place(draw, done.places, 0.3)
    pt, en = f"{complement.pt} {place.pt}".strip(), f"{complement.en} {place.en}".strip()
    chance = draw.random()
    if chance < 0.35:
        return sentence(
            Phrase(f"vamos {done.verb.pt.infinitive} {pt}", f"let's {done.verb.en} {en}")
        )
    pt, en = f"{done.verb.pt.imperative} {pt}", f"{done.verb.en} {en}"
    if chance < 0.6:
        return sentence(Phrase(f"não {pt}", f"don't {en}"))
    if chance < 0.9:
        return sentence(Phrase(f"{pt}, por favor", f"{en}, please"))
    return sentence(Phrase(pt, en), "!")


_OPEN = tuple(
    done
    for done in act.TRANSITIVE
    if done.verb.en in ("eat", "drink", "buy", "read", "write", "sell", "prepare", "study")
)


def asked(draw):
    """A question with a question word."""
    return draw.choice((_what, _who, _where, _when, _what_time))(draw)


def _asked_about(draw, adult=False):
    subject = somebody(draw, adult)
    return subject if subject.en_person != "I" else _asked_about(draw, adult)


def _what(draw):
    done = draw.choice(_OPEN)
    tense = draw.choice((Tense.PAST, Tense.FUTURE, Tense.PRESENT, Tense.NOW))
    place, time = at_place(draw, done.places, 0.6), at_time(draw, tense)
    what = clause(_asked_about(draw, done.adult), tense, done.verb, place, time, asks=True)
    return sentence(what.question("o que", "what"), "?")


_WHO = Nominal("quem", "who", en_person="he")


def _who(draw):
    done = draw.choice(act.TRANSITIVE)
    tense = draw.choice(_ONCE if done.once else _TENSES)
    complement = object_of(done.verb, thing(draw, draw.choice(done.objects)))
    time = at_time(draw, tense, 0.5)
    who = clause(_WHO, tense, done.verb, complement, at_place(draw, done.places, 0.3), time)
    return sentence(who.statement(), "?")


def _where(draw):
    done = draw.choice([done for done in act.INTRANSITIVE if done.verb.en != "talk"])
    tense = draw.choice(_TENSES)
    time = at_time(draw, tense) if tense is not Tense.PRESENT else NOTHING
    where = clause(_asked_about(draw, done.adult), tense, done.verb, time, asks=True)
    return sentence(where.question("onde", "where"), "?")


def _when(draw):
    done = draw.choice(act.TRANSITIVE)
    complement = object_of(done.verb, thing(draw, draw.choice(done.objects)))
    subject = _asked_about(draw, done.adult)
    asks = clause(subject, Tense.FUTURE, done.verb, complement, asks=True)
    return sentence(asks.question("quando", "when"), "?")


_DAILY = (
    verb("acordar", "wake up"),
    verb("almoçar", "have lunch"),
    verb("jantar", "have dinner"),
    verb("chegar", "arrive"),
    verb("sair", "leave"),
    verb("voltar", "come back"),
)


def _what_time(draw):
    tense = draw.choice((Tense.PRESENT, Tense.FUTURE))
    time = NOTHING
    if draw.random() < 0.6:
        time = when.habitual_day(draw) if tense is Tense.PRESENT else when.coming_day(draw)
    asks = clause(_asked_about(draw), tense, draw.choice(_DAILY), time, asks=True)
    return sentence(asks.question("a que horas", "what time"), "?")


def daily(draw):
    """`Meu pai acorda às seis e meia.`"""
    tense = draw.choice((Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.FUTURE))
    time = when.at_clock(draw)
    if tense is Tense.PRESENT:
        day = when.habitual_day(draw) if draw.random() < 0.5 else NOTHING
    else:
        day = when.past_day(draw) if tense is Tense.PAST else when.coming_day(draw)
    subject = somebody(draw)
    return finished(draw, subject, tense, draw.choice(_DAILY), time, day)


def meanwhile(draw):
    """`Eu estava lendo um livro quando você chegou.`"""
    long = draw.choice([done for done in act.TRANSITIVE + act.INTRANSITIVE if not done.once])
    if long.verb.en in ("see", "forget"):
        return action(draw)
    complements = [at_place(draw, long.places, 0.3 if long.objects else 0.9)]
    if long.objects:
        complements.insert(0, object_of(long.verb, thing(draw, draw.choice(long.objects))))
    first = somebody(draw, long.adult)
    second = somebody(draw)
    while second.en_person == first.en_person:
        second = somebody(draw)
    background = clause(first, Tense.WAS, long.verb, *complements).statement()
    event = clause(second, Tense.PAST, draw.choice(_DAILY[3:])).statement()
    return sentence(
        Phrase(f"{background.pt} quando {event.pt}", f"{background.en} when {event.en}")
    )
