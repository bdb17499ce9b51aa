"""The actions of the phrasebook: verbs, their objects, and the places where they make sense."""

import dataclasses

from training.corpus.phrasebook import lexicon as lex
from training.corpus.phrasebook.words import Noun, Phrase, Verb, nouns, verb


@dataclasses.dataclass(frozen=True)
class Action:
    """A verb with its possible objects, each a noun or a fixed phrase."""

    verb: Verb
    objects: tuple
    places: tuple = ()
    adult: bool = False  # children do not do it
    once: bool = False  # not as a habit, and not for long


@dataclasses.dataclass(frozen=True)
class Place:
    """A place and the English preposition for being there."""

    noun: Noun
    en: str


def _places(text):
    found = {}
    for line in text.strip().splitlines():
        preposition, line = line.split(maxsplit=1)
        (noun,) = nouns("place", line)
        found[noun.en] = Place(noun, preposition)
    return found


PLACES = _places(
    """
    in quarto, m, bedroom
    in cozinha, f, kitchen
    in sala, f, living room
    in jardim, m, garden
    in parque, m, park
    on praia, f, beach
    at restaurante, m, restaurant
    at mercado, m, market
    at supermercado, m, supermarket
    at padaria, f, bakery
    at livraria, f, bookstore
    at biblioteca, f, library
    at escritório, m, office
    at hospital, m, hospital
    at hotel, m, hotel
    at aeroporto, m, airport
    at estação, f, station
    at museu, m, museum
    at universidade, f, university
    at escola, f, school
    at banco, m, bank
    at cinema, m, movie theater
    at teatro, m, theater
    at piscina, f, swimming pool
    at loja, f, store
    at farmácia, f, pharmacy
    at academia, f, gym
    in floresta, f, forest
    in praça, f, square
    on fazenda, f, farm
    on rua, f, street
    in cidade, f, city
    in rio, m, river
    """
)


def _at(names):
    return tuple(PLACES[name.strip()] for name in names.split(",") if name.strip())


HOME_PLACES = _at("bedroom, kitchen, living room, garden")
GOALS = _at(
    "park, beach, restaurant, market, supermarket, bakery, bookstore, library, office, hospital, "
    "hotel, airport, station, museum, university, bank, movie theater, theater, swimming pool, "
    "store, pharmacy, gym, square, farm, school"
)
AT_HOME = Phrase("em casa", "at home")
_EATING = "kitchen, restaurant, garden, park, beach, living room"
_SHOPS = "market, supermarket, store"
_READING = "library, living room, bedroom, park, garden, square"
_FOOD = lex.FRUIT + lex.DISH + lex.FOOD
_THINGS = lex.OBJECT + lex.CLOTHES
_PEOPLE = lex.FAMILY + lex.ADULT + lex.YOUNG


def _of(pool, names):
    """The nouns of a list with the given English names."""
    names = [name.strip() for name in names.split(",")]
    found = tuple(noun for noun in pool if noun.en in names)
    assert len(found) == len(names), names
    return found


def _act(pt, en, objects, places="", adult=False, once=False):
    return Action(verb(pt, en), objects, _at(places), adult, once)


_WINDOW = _of(lex.OPENING, "window")
_LOST = "key, watch, pen, notebook, backpack, bag, wallet, phone, umbrella, passport, camera, map"
_SOFT = "water, coffee, tea, milk, juice, orange juice, lemonade"
_SENT = "letter, poem, report, message"

TRANSITIVE = (
    _act("comer", "eat", _FOOD, _EATING),
    _act("beber", "drink", _of(lex.DRINK, _SOFT), _EATING),
    _act("beber", "drink", _of(lex.DRINK, "wine, beer"), _EATING, adult=True),
    _act("comprar", "buy", _FOOD + lex.DRINK, _SHOPS),
    _act("comprar", "buy", _THINGS + lex.DISHES + lex.FURNITURE, "store", once=True),
    _act("comprar", "buy", lex.TEXT, "bookstore"),
    _act("comprar", "buy", lex.VEHICLE + lex.HOME, adult=True, once=True),
    _act("vender", "sell", lex.FRUIT + lex.CLOTHES + lex.TEXT, "market, store, square", adult=True),
    _act("vender", "sell", lex.VEHICLE + lex.HOME, adult=True, once=True),
    _act("ler", "read", lex.TEXT + lex.WRITING, _READING),
    _act(
        "escrever",
        "write",
        lex.WRITING + _of(lex.TEXT, "novel, short story, article"),
        "library, office, bedroom",
    ),
    _act("abrir", "open", lex.OPENING + lex.CONTAINER),
    _act("fechar", "close", lex.OPENING + lex.CONTAINER),
    _act("lavar", "wash", lex.CLOTHES + lex.DISHES + _of(lex.VEHICLE, "car, bicycle")),
    _act("limpar", "clean", lex.ROOM + _of(lex.FURNITURE, "table") + _WINDOW),
    _act("procurar", "look for", _THINGS, "bedroom, living room, office, school"),
    _act("encontrar", "find", _THINGS, "bedroom, living room, park, street, beach", once=True),
    _act(
        "perder",
        "lose",
        _of(lex.OBJECT, _LOST) + lex.CLOTHES,
        "park, street, airport, station, school",
        once=True,
    ),
    _act(
        "quebrar", "break", lex.DISHES + _of(lex.OBJECT, "mirror, watch, toy") + _WINDOW, once=True
    ),
    _act(
        "consertar",
        "fix",
        lex.VEHICLE + _of(lex.FURNITURE, "table, chair, bed") + lex.OPENING,
        "garden",
        adult=True,
        once=True,
    ),
    _act(
        "usar", "use", lex.DISHES + _of(lex.OBJECT, "pen, pencil, phone, computer, camera, hammer")
    ),
    _act("guardar", "put away", _THINGS + lex.DISHES, once=True),
    _act("trazer", "bring", _FOOD + lex.DRINK + _THINGS),
    _act("levar", "take", lex.OBJECT + lex.CLOTHES),
    _act(
        "esquecer",
        "forget",
        _of(lex.OBJECT, _LOST),
        "restaurant, office, hotel, school, gym",
        once=True,
    ),
    _act("pegar", "take", lex.TRANSPORT, "square, station"),
    _act("esperar", "wait for", _of(lex.TRANSPORT, "bus, train, taxi"), "square, street, station"),
    _act("esperar", "wait for", lex.FAMILY, "restaurant, park, station, airport, museum"),
    _act("pagar", "pay", lex.BILL, adult=True),
    _act("preparar", "prepare", lex.MEAL + lex.DISH, "kitchen"),
    _act("fazer", "make", lex.DISH + _of(lex.DRINK, "coffee, tea"), "kitchen"),
    _act("ouvir", "listen to", lex.SOUND, "bedroom, living room, park"),
    _act("assistir a", "watch", lex.SHOW, "living room, movie theater"),
    _act("ver", "see", lex.ANIMAL, "park, garden, street, farm, forest", once=True),
    _act("ver", "see", _PEOPLE, "park, street, beach, market, library, station", once=True),
    _act("visitar", "visit", lex.FAMILY),
    _act("ajudar", "help", _PEOPLE, "library, office, garden, kitchen, school"),
    _act("convidar", "invite", lex.FAMILY, once=True),
    _act("abraçar", "hug", lex.FAMILY),
    _act("desenhar", "draw", lex.ANIMAL + lex.PLANT, "garden, school"),
    _act("estudar", "study", lex.SUBJECT, "library, bedroom, school, university"),
    _act("aprender", "learn", lex.LANGUAGE, "school, university"),
    _act("falar", "speak", lex.LANGUAGE, "office, school"),
    _act("tocar", "play", lex.INSTRUMENT, "living room, school, theater"),
    _act("jogar", "play", lex.SPORT, "park, school, beach"),
    _act("cantar", "sing", lex.SONG, "theater, school, garden"),
    _act("dirigir", "drive", _of(lex.VEHICLE, "car, truck"), "city, street", adult=True),
    _act(
        "alugar", "rent", lex.HOME + _of(lex.VEHICLE, "car, bicycle"), "city", adult=True, once=True
    ),
    _act("construir", "build", _of(lex.HOME, "house") + lex.BRIDGE, adult=True, once=True),
    _act("plantar", "plant", lex.PLANT, "garden, park, square"),
    _act("cortar", "cut", lex.FRUIT + _of(lex.DISH, "cake, pizza, pie") + _of(lex.FOOD, "bread")),
    _act(
        "carregar",
        "carry",
        _of(lex.CONTAINER, "box, suitcase, bottle") + _of(lex.OBJECT, "backpack, bag"),
    ),
    _act("alimentar", "feed", lex.PET + _of(lex.ANIMAL, "horse, cow, pig, sheep"), "farm, garden"),
)
TRANSFER = (  # something to somebody; `rest` is what comes before the person
    (_act("dar", "give", _THINGS + lex.TEXT), "to"),
    (_act("mostrar", "show", _THINGS + lex.TEXT), "to"),
    (_act("mandar", "send", _of(lex.WRITING, _SENT) + _of(lex.OBJECT, "gift, photo")), "to"),
    (_act("emprestar", "lend", lex.TEXT + lex.CLOTHES + _of(lex.VEHICLE, "car, bicycle")), "to"),
    (_act("vender", "sell", lex.VEHICLE + lex.FURNITURE, adult=True, once=True), "to"),
    (_act("comprar", "buy", _THINGS + lex.TEXT), "for"),
    (_act("fazer", "make", lex.DISH), "for"),
    (_act("escrever", "write", _of(lex.WRITING, _SENT)), "for"),
    (_act("ler", "read", lex.TEXT + lex.WRITING), "to"),
    (_act("contar", "tell", _of(lex.WRITING, "story")), "to"),
    (_act("levar", "take", lex.DISH + _of(lex.OBJECT, "gift")), "to"),
)
INTRANSITIVE = (
    _act(
        "trabalhar",
        "work",
        (),
        "office, hospital, hotel, restaurant, bank, store, farm, pharmacy, "
        "bakery, university, museum, library, school",
        adult=True,
    ),
    _act("estudar", "study", (), "library, university, bedroom, school"),
    _act("dormir", "sleep", (), "bedroom, living room, hotel"),
    _act("almoçar", "have lunch", (), "restaurant, garden, office, kitchen, park"),
    _act("jantar", "have dinner", (), "restaurant, hotel, kitchen, garden"),
    _act("nadar", "swim", (), "swimming pool, river"),
    _act("correr", "run", (), "park, beach, street, gym"),
    _act("caminhar", "walk", (), "park, beach, forest, square, street"),
    _act("esperar", "wait", (), "station, airport, hospital, bank, restaurant"),
    _act("descansar", "rest", (), "bedroom, garden, beach, living room, park"),
    _act("dançar", "dance", (), "theater, square, living room"),
    _act("cozinhar", "cook", (), "kitchen, restaurant, garden"),
    _act("cantar", "sing", (), "theater, garden, school, square"),
    _act("brincar", "play", (), "park, garden, beach, school, living room"),
    _act("morar", "live", (), "city, hotel, farm", adult=True),
    _act("conversar", "talk", (), "kitchen, park, restaurant, garden, library"),
)
TRAVEL = (  # to a place
    (verb("ir", "go"), "a", "to"),
    (verb("voltar", "go back"), "a", "to"),
    (verb("correr", "run"), "até", "to"),
    (verb("caminhar", "walk"), "até", "to"),
    (verb("voltar", "come back"), "de", "from"),
    (verb("sair", "leave"), "de", ""),
    (verb("passar", "pass"), "por", "by"),
    (verb("caminhar", "walk"), "por", "through"),
)
ACCIDENTS = frozenset(("lose", "break", "forget", "find"))  # nobody does them on purpose
BE = verb("ser", "be")
STAY = verb("estar", "be")
HAVE = verb("ter", "have")
GO = verb("ir", "go")
MODALS = (  # (verb, word before the infinitive, English; "" before a modal verb of English)
    (verb("poder", "can"), "", ""),
    (verb("dever", "should"), "", ""),
    (verb("querer", "want"), "", "to"),
    (verb("precisar", "need"), "", "to"),
    (verb("ter", "have"), "que", "to"),
    (verb("gostar", "like"), "de", "to"),
    (verb("tentar", "try"), "", "to"),
    (verb("preferir", "prefer"), "", "to"),
    (verb("saber", "know how"), "", "to"),
)
