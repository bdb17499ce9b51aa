"""Sentences of two clauses, and fixed phrases."""

from training.corpus.phrasebook import actions as act
from training.corpus.phrasebook import lexicon as lex
from training.corpus.phrasebook import phrases, portuguese, qualities, when
from training.corpus.phrasebook.clauses import Tense, clause, object_of
from training.corpus.phrasebook.doings import at_place, at_time, goal, sentence, thing
from training.corpus.phrasebook.phrases import noun_phrase, pronoun
from training.corpus.phrasebook.states import suits
from training.corpus.phrasebook.words import Phrase, verb


def _doing(draw, subject, tense, *, denies=False):
    """A clause about an action of a person."""
    known = act.TRANSITIVE + act.INTRANSITIVE
    able = [a for a in known if tense in (Tense.PAST, Tense.FUTURE) or not a.once]
    done = draw.choice([a for a in able if a.verb.en not in act.ACCIDENTS | {"talk"}])
    complements = [at_place(draw, done.places, 0.3 if done.objects else 1.0)]
    if done.objects:
        complements.insert(0, object_of(done.verb, thing(draw, draw.choice(done.objects))))
    time = at_time(draw, tense, 1.0 if tense is Tense.PAST else 0.5)
    return clause(subject, tense, done.verb, *complements, time, denies=denies)


def _being(draw, subject):
    how = suits(draw, draw.choice(qualities.MOOD), subject)
    return clause(subject, Tense.PRESENT, act.STAY, how)


def _who(draw):
    chance = draw.random()
    if chance < 0.5:
        return pronoun(draw)
    if chance < 0.75:
        return phrases.name(draw)
    return noun_phrase(draw, draw.choice(lex.FAMILY), plain=True)


_THINKING = (verb("achar", "think"), verb("saber", "know"), verb("acreditar", "believe"))


def thought(draw):
    """`Eu acho que Ana vai comprar um carro amanhã.`"""
    outer, inner = _who(draw), _who(draw)
    if draw.random() < 0.5:
        that = _doing(draw, inner, draw.choice((Tense.PRESENT, Tense.FUTURE, Tense.PAST)))
    else:
        that = _being(draw, inner)
    that = that.statement()
    asks = draw.random() < 0.15 and outer.en_person != "I"
    thinks = clause(outer, Tense.PRESENT, draw.choice(_THINKING), Phrase("que", "that"), asks=asks)
    said = thinks.question() if asks else thinks.statement()
    return sentence(Phrase(f"{said.pt} {that.pt}", f"{said.en} {that.en}"), "?" if asks else ".")


def reason(draw):
    """`Maria não vai trabalhar hoje porque está doente.`"""
    subject = _who(draw)
    first = _doing(draw, subject, Tense.FUTURE, denies=draw.random() < 0.6).statement()
    why = _being(draw, subject).again()
    return sentence(Phrase(f"{first.pt} porque {why.pt}", f"{first.en} because {why.en}"))


def contrast(draw):
    """`Ela está cansada, mas vai estudar na biblioteca.`"""
    subject = _who(draw)
    first = _being(draw, subject).statement()
    tense = draw.choice((Tense.FUTURE, Tense.NOW))
    second = _doing(draw, subject, tense, denies=draw.random() < 0.3).again()
    return sentence(Phrase(f"{first.pt}, mas {second.pt}", f"{first.en}, but {second.en}"))


def errand(draw):
    """`Meu irmão foi ao mercado e comprou pão ontem.`"""
    subject = _who(draw)
    tense = draw.choice((Tense.PAST, Tense.PRESENT))
    going, pt, en = draw.choice(act.TRAVEL[:2])
    first = clause(subject, tense, going, goal(draw, pt, en)).statement()
    usual = [a for a in act.TRANSITIVE if not a.once]
    done = draw.choice(usual)
    what = object_of(done.verb, thing(draw, draw.choice(done.objects)))
    time = when.before(draw) if tense is Tense.PAST else at_time(draw, tense)
    second = clause(subject, tense, done.verb, what, time).again(drop_english=True)
    return sentence(Phrase(f"{first.pt} e {second.pt}", f"{first.en} and {second.en}"))


_KNOWN = tuple(
    Phrase(*line.strip().split("="))
    for line in """
    Bom dia!=Good morning!
    Boa tarde!=Good afternoon!
    Boa noite!=Good night!
    Tudo bem?=How are you?
    Muito obrigado.=Thank you very much.
    De nada.=You are welcome.
    Com licença.=Excuse me.
    Desculpe.=Sorry.
    Até logo!=See you later!
    Até amanhã!=See you tomorrow!
    Feliz aniversário!=Happy birthday!
    Bem-vindo!=Welcome!
    Boa sorte!=Good luck!
    Boa viagem!=Have a nice trip!
    Socorro!=Help!
    Claro.=Of course.
    Que pena!=What a pity!
    Não sei.=I don't know.
    Não entendo.=I don't understand.
    Fale mais devagar, por favor.=Speak more slowly, please.
    Onde fica o banheiro?=Where is the bathroom?
    Que horas são?=What time is it?
    Qual é o seu nome?=What is your name?
    Prazer em conhecê-lo.=Nice to meet you.
    """.strip().splitlines()
)


def known(draw):
    """Greetings and names."""
    chance = draw.random()
    if chance < 0.2:
        return draw.choice(_KNOWN)
    if chance < 0.4:
        who = phrases.name(draw)
        hello = draw.choice(_KNOWN[:3] + _KNOWN[8:12])
        return Phrase(f"{hello.pt[:-1]}, {who.pt}!", f"{hello.en[:-1]}, {who.en}!")
    owner = noun_phrase(draw, draw.choice(lex.FAMILY), plain=True, singular=True)
    named = phrases.name(draw)
    while owner.feminine != named.feminine:
        named = phrases.name(draw)
    if chance < 0.8:
        pt = portuguese.contract("de", owner.definite or owner.pt)
        name = Phrase(f"o nome {pt} é {named.pt}", f"{owner.en}'s name is {named.en}")
        return sentence(name)
    month = draw.choice(when.MONTHS)
    pt = portuguese.contract("de", owner.definite or owner.pt)
    birthday = Phrase(
        f"o aniversário {pt} é em {month.pt}", f"{owner.en}'s birthday is in {month.en}"
    )
    return sentence(birthday)
