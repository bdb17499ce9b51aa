"""The phrasebook: forms, agreement and contractions against lists written by hand; one translation
for each sentence; parts that share none."""

import collections
import os
import re
import subprocess
import sys
import unicodedata

import pytest

from training.corpus import phrasebook
from training.corpus.phrasebook import actions, clauses, english, portuguese, qualities, words
from training.corpus.phrasebook.clauses import Tense, clause
from training.corpus.phrasebook.lists import words as words_of
from training.corpus.phrasebook.phrases import PRONOUNS, Nominal
from training.corpus.phrasebook.words import Phrase

PERSONS = {nominal.pt: nominal for nominal in PRONOUNS}
FORMS = """
    falar: falo fala falamos falam; falei falou falamos falaram; falando; fale
    comer: como come comemos comem; comi comeu comemos comeram; comendo; coma
    abrir: abro abre abrimos abrem; abri abriu abrimos abriram; abrindo; abra
    procurar: procuro procura procuramos procuram; procurei procurou procuramos procuraram; \
procurando; procure
    tocar: toco toca tocamos tocam; toquei tocou tocamos tocaram; tocando; toque
    pagar: pago paga pagamos pagam; paguei pagou pagamos pagaram; pagando; pague
    abraçar: abraço abraça abraçamos abraçam; abracei abraçou abraçamos abraçaram; \
abraçando; abrace
    esquecer: esqueço esquece esquecemos esquecem; esqueci esqueceu esquecemos esqueceram; \
esquecendo; esqueça
    dirigir: dirijo dirige dirigimos dirigem; dirigi dirigiu dirigimos dirigiram; dirigindo; dirija
    ser: sou é somos são; fui foi fomos foram; sendo; seja
    ter: tenho tem temos têm; tive teve tivemos tiveram; tendo; tenha
    ir: vou vai vamos vão; fui foi fomos foram; indo; vá
    fazer: faço faz fazemos fazem; fiz fez fizemos fizeram; fazendo; faça
    trazer: trago traz trazemos trazem; trouxe trouxe trouxemos trouxeram; trazendo; traga
    poder: posso pode podemos podem; pude pôde pudemos puderam; podendo; possa
    ver: vejo vê vemos veem; vi viu vimos viram; vendo; veja
    ler: leio lê lemos leem; li leu lemos leram; lendo; leia
    dar: dou dá damos dão; dei deu demos deram; dando; dê
    perder: perco perde perdemos perdem; perdi perdeu perdemos perderam; perdendo; perca
    ouvir: ouço ouve ouvimos ouvem; ouvi ouviu ouvimos ouviram; ouvindo; ouça
    dormir: durmo dorme dormimos dormem; dormi dormiu dormimos dormiram; dormindo; durma
    sair: saio sai saímos saem; saí saiu saímos saíram; saindo; saia
    construir: construo constrói construímos constroem; construí construiu construímos \
construíram; construindo; construa
"""


@pytest.fixture(scope="module")
def pairs():
    return phrasebook.generate(100_000, seed=11)


@pytest.mark.parametrize("line", FORMS.strip().splitlines())
def test_portuguese_verbs(line):
    infinitive, forms = line.split(": ")
    present, past, gerund, imperative = (part.split() for part in forms.split(";"))
    expected = (infinitive.strip(), tuple(present), tuple(past), *gerund, *imperative)
    assert tuple(portuguese.conjugate(infinitive.strip())) == expected


def assert_maps(function, text):
    pairs = [pair.split("=") for pair in re.split(r",\s*", text)]
    assert [function(word.strip()) for word, _ in pairs] == [form for _, form in pairs]


def test_portuguese_plurals_and_feminines():
    assert_maps(
        portuguese.plural,
        "livro=livros, canção=canções, jovem=jovens, mês=meses, lápis=lápis, flor=flores, "
        "feliz=felizes, jornal=jornais, hotel=hotéis, espanhol=espanhóis, azul=azuis, útil=úteis, "
        "café da manhã=cafés da manhã, guarda-chuva=guarda-chuvas",
    )
    assert_maps(
        portuguese.feminine,
        "novo=nova, inglês=inglesa, trabalhador=trabalhadora, grande=grande, azul=azul",
    )
    forms = words.adjectives("bom/boa/bons/boas good, com_fome hungry, marrom brown")
    assert [adjective.pt(True, True) for adjective in forms] == ["boas", "com fome", "marrons"]


def test_portuguese_contractions():
    assert_maps(
        lambda pair: portuguese.contract(*pair.split("+")),
        "em+o parque=no parque, em+uma loja=numa loja, de+a escola=da escola, a+as oito=às oito, "
        "a+o mercado=ao mercado, a+aquela loja=àquela loja, por+os campos=pelos campos, "
        "em+este hotel=neste hotel, de+aqueles=daqueles, de+ela=dela, com+eu=comigo, "
        "com+nós=conosco, com+o pai=com o pai, para+a mãe=para a mãe, em+Lisboa=em Lisboa, "
        "perto de+o rio=perto do rio, em frente a+a casa=em frente à casa, "
        "por+aquele rio=por aquele rio",
    )


THREE_HUNDRED = "three hundred forty-two"


@pytest.mark.parametrize(
    "n, pt, feminine, en",
    [
        (0, "zero", "zero", "zero"),
        (1, "um", "uma", "one"),
        (2, "dois", "duas", "two"),
        (14, "catorze", "catorze", "fourteen"),
        (21, "vinte e um", "vinte e uma", "twenty-one"),
        (80, "oitenta", "oitenta", "eighty"),
        (100, "cem", "cem", "one hundred"),
        (101, "cento e um", "cento e uma", "one hundred one"),
        (342, "trezentos e quarenta e dois", "trezentas e quarenta e duas", THREE_HUNDRED),
        (500, "quinhentos", "quinhentas", "five hundred"),
    ],
)
def test_numbers(n, pt, feminine, en):
    found = portuguese.number(n), portuguese.number(n, feminine=True), english.number(n)
    assert found == (pt, feminine, en)


def test_english_forms():
    assert_maps(
        english.plural,
        "book=books, box=boxes, watch=watches, story=stories, toy=toys, knife=knives, man=men, "
        "potato=potatoes, living room=living rooms, sheep=sheep",
    )
    assert_maps(
        english.past,
        "buy=bought, visit=visited, arrive=arrived, study=studied, play=played, "
        "look for=looked for, wake up=woke up, read=read, travel=traveled, hug=hugged",
    )
    assert_maps(
        english.third_person,
        "go=goes, watch=watches, study=studies, play=plays, have lunch=has lunch, wash=washes, "
        "put away=puts away",
    )
    assert_maps(
        english.gerund,
        "write=writing, run=running, see=seeing, put away=putting away, cut=cutting",
    )
    assert_maps(
        english.comparative,
        "tall=taller, nice=nicer, big=bigger, funny=funnier, good=better, famous=more famous, "
        "expensive=more expensive, boring=more boring",
    )
    assert_maps(english.article, "apple=an, hour=an, university=a, umbrella=an, house=a, one=a")


@pytest.mark.parametrize("adjective", qualities.COMPARABLE, ids=lambda adjective: adjective.en)
def test_comparatives_are_formed_one_way_only(adjective):
    form = english.comparative(adjective.en)
    assert form.startswith("more ") != form.endswith("er")


BOOK = Phrase("o livro", "the book")
BUY = words.verb("comprar", "buy")
NOT = {"denies": True}
NEVER = {"adverb": Phrase("nunca", "never")}


@pytest.mark.parametrize(
    "subject, tense, options, pt, en",
    [
        ("eu", Tense.PRESENT, {}, "eu compro o livro", "I buy the book"),
        ("ela", Tense.PRESENT, {}, "ela compra o livro", "she buys the book"),
        ("você", Tense.PAST, {}, "você comprou o livro", "you bought the book"),
        ("nós", Tense.FUTURE, {}, "nós vamos comprar o livro", "we are going to buy the book"),
        ("eles", Tense.NOW, {}, "eles estão comprando o livro", "they are buying the book"),
        ("elas", Tense.WAS, {}, "elas estavam comprando o livro", "they were buying the book"),
        ("ele", Tense.PRESENT, NOT, "ele não compra o livro", "he doesn't buy the book"),
        ("eu", Tense.NOW, NOT, "eu não estou comprando o livro", "I am not buying the book"),
        ("vocês", Tense.PAST, NOT, "vocês não compraram o livro", "you didn't buy the book"),
        (
            "ela",
            Tense.FUTURE,
            NOT,
            "ela não vai comprar o livro",
            "she isn't going to buy the book",
        ),
        ("ela", Tense.PRESENT, NEVER, "ela nunca compra o livro", "she never buys the book"),
    ],
)
def test_clauses(subject, tense, options, pt, en):
    assert clause(PERSONS[subject], tense, BUY, BOOK, **options).statement() == (pt, en)


@pytest.mark.parametrize(
    "subject, tense, en",
    [
        ("ele", Tense.PRESENT, "does he buy the book"),
        ("vocês", Tense.PRESENT, "do you buy the book"),
        ("ela", Tense.PAST, "did she buy the book"),
        ("eles", Tense.FUTURE, "are they going to buy the book"),
        ("nós", Tense.NOW, "are we buying the book"),
    ],
)
def test_questions(subject, tense, en):
    assert clause(PERSONS[subject], tense, BUY, BOOK, asks=True).question().en == en


def test_modal_verbs_and_being():
    known = {modal[0].pt.infinitive: modal for modal in actions.MODALS}
    ela = PERSONS["ela"]

    def said(name, **options):
        verb = clauses.with_modal(known[name], BUY)
        return clause(ela, Tense.PRESENT, verb, BOOK, **options).statement()

    assert said("poder") == ("ela pode comprar o livro", "she can buy the book")
    shouldnt = ("ela não deve comprar o livro", "she shouldn't buy the book")
    assert said("dever", denies=True) == shouldnt
    assert said("ter") == ("ela tem que comprar o livro", "she has to buy the book")
    assert said("gostar", denies=True).en == "she doesn't like to buy the book"
    tired = Phrase("cansada", "tired")
    was = clause(ela, Tense.PAST, actions.STAY, tired, denies=True).statement()
    assert was == ("ela não estava cansada", "she wasn't tired")
    keys = Nominal("as chaves", "the keys", portuguese.THIRD_PLURAL, True, "they")
    where = clause(keys, Tense.PRESENT, actions.STAY).inverted("onde", "where")
    assert where == ("onde estão as chaves", "where are the keys")


def test_a_hundred_thousand_distinct_pairs_of_some_hundred_words(pairs):
    assert len({pt for pt, _ in pairs}) == 100_000
    for side in zip(*pairs, strict=True):
        counts = collections.Counter(re.findall(r"[\w'-]+", " ".join(side).lower()))
        assert 800 < len(counts) < 2500


def test_sentences_are_written_as_sentences(pairs):
    for text in (text for pair in pairs for text in pair):
        assert re.fullmatch(r"[A-ZÀ-Ú][\w ,'-]*\w[.?!]", text), text
        assert "  " not in text and " ," not in text
    assert all(unicodedata.is_normalized("NFC", pt) for pt, _ in pairs)


FEMININE = (
    "maçã|laranja|salada|água|carta|revista|camisa|bolsa|chave|mala|porta|janela|mesa|cadeira|casa|"
    "cozinha|praia|escola|loja|estação|cidade|mãe|irmã|filha|menina|professora|amiga|viagem|foto"
)
MASCULINE = (
    "pão|queijo|leite|livro|jornal|poema|vestido|sapato|relógio|telefone|mapa|presente|copo|sofá|"
    "carro|trem|gato|cachorro|quarto|jardim|parque|mercado|hospital|pai|irmão|filho|menino|filme"
)
ONE = "o|um|este|aquele|no|do|ao|pelo|num|neste|naquele|deste|meu|seu|nosso"
ONES = "os|estes|aqueles|nos|dos|aos|muitos|poucos|alguns|meus|seus|nossos|dois"
HER = "a|uma|esta|aquela|na|da|à|minha|sua|as|estas|muitas|duas"


@pytest.fixture(scope="module")
def portuguese_text(pairs):
    return "\n".join(pt.lower() for pt, _ in pairs[:40_000])


def absent(pattern, text):
    found = re.search(pattern, text)
    assert found is None, text[found.start() - 40 : found.end() + 40]


def test_determiners_agree_with_their_nouns(portuguese_text):
    text = re.sub(r"pref[ei]r.*", "", portuguese_text)  # `pão a queijo`: no article
    absent(rf"\b({ONE}|{ONES}) ({FEMININE})s?\b", text)
    absent(rf"\b({HER}) ({MASCULINE})s?\b", text)
    absent(rf"\b({ONES}|as|estas|muitas|duas) ({MASCULINE}|{FEMININE})\b", text)
    assert len(re.findall(rf"\b({ONE}) ({MASCULINE})\b", text)) > 2000


def test_adjectives_agree_with_their_nouns(portuguese_text):
    said = r"(?:muito )?(\w+)[.?]"
    one = re.findall(rf"\b(?:a|esta|minha) (?:{FEMININE}) é {said}", portuguese_text)
    several = re.findall(rf"\b(?:as|estas|minhas) (?:{FEMININE})s são {said}", portuguese_text)
    masculine = re.findall(rf"\b(?:os|estes|meus) (?:{MASCULINE})s são {said}", portuguese_text)
    assert min(map(len, (one, several, masculine))) > 10
    assert not [word for word in one if word.endswith(("o", "s"))]
    assert not [word for word in several if not word.endswith("s") or word.endswith("os")]
    assert not [word for word in masculine if not word.endswith("s") or word.endswith("as")]


def test_prepositions_are_contracted(portuguese_text):
    absent(r"\b(de|em) (o|a|os|as|este|esta|aquele|aquela|ele|ela)\b", portuguese_text)
    absent(r"\b(a|por) (o|a|os|as)\b", portuguese_text)
    absent(r"\ba (aquele|aquela)", portuguese_text)
    for word in words_of("no da pelo ao à num neste daquela àquele dele comigo conosco"):
        assert re.search(rf"\b{word}\b", portuguese_text), word


def test_english_agrees(pairs):
    text = "\n".join(en for _, en in pairs[:40_000])
    verbs = "buy|eat|go|write|wash|study|want|need|like|have|play"
    wrong = [
        rf"\n(He|She) ({verbs})\b",
        rf"\n(I|You|We|They) ({verbs})e?s\b",
        r"\b(he|she|it|He|She|It) (are|were|don't|aren't)\b",
        r"\b(I|we|they|you|We|They|You) (is|has|doesn't|isn't)\b",
        r"\b(these|those|many|some|two|ten) (book|car|cat|man|woman|child|box|knife)\b",
        r"\b(a [aeio]|an [bcdfgjklmnpqrstvwxyz])",
    ]
    for pattern in wrong:
        assert re.search(pattern, text) is None, re.search(pattern, text)
    for right in (r"Does \w+ ", r"Did you ", r"Are they ", r"\n(He|She) \w+s ", r"\ban \w"):
        assert re.search(right, text), right


def test_a_sentence_has_one_translation(pairs):
    known = dict(pairs)
    for seed in range(2):
        for pt, en in phrasebook.generate(15_000, seed):
            assert known.setdefault(pt, en) == en


def test_pairs_follow_from_the_seed_alone():
    code = "from training.corpus import phrasebook as p; print(p.generate(400, seed=3))"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert printed.stdout.strip() == str(phrasebook.generate(400, seed=3))
    assert phrasebook.generate(400, seed=4) != phrasebook.generate(400, seed=3)


def test_parts_share_no_sentence_of_either_language():
    parts = phrasebook.split(seed=2, train=20_000, validation=300, test=200)
    assert [len(part) for part in parts] == [20_000, 300, 200]
    for side in (0, 1):
        train, validation, test = ({pair[side] for pair in part} for part in parts)
        assert not (train & validation or train & test or validation & test)
    more = phrasebook.split(seed=2, train=21_000, validation=300, test=200)
    assert more.train[:20_000] == parts.train and more.test == parts.test
