"""The phrasebook: word forms against lists written by hand; agreement and contractions in what it
writes; tables that fit together; parts that share no sentence; labels and tags."""

import os
import random
import re
import subprocess
import sys

import pytest

from training import phrasebook
from training.phrasebook import english, grammar, lexicon, portuguese

VERBS = """
abraçar pres: abraço abraças abraça abraçamos abraçam
abraçar subj: abrace abraces abrace abracemos abracem
abraçar isubj: abraçasse abraçasses abraçasse abraçássemos abraçassem
trazer fut: trarei trarás trará traremos trarão
trazer isubj: trouxesse trouxesses trouxesse trouxéssemos trouxessem
trazer fsubj: trouxer trouxeres trouxer trouxermos trouxerem
dormir pres: durmo dormes dorme dormimos dormem
dormir isubj: dormisse dormisses dormisse dormíssemos dormissem
conseguir subj: consiga consigas consiga consigamos consigam
sair past: saí saíste saiu saímos saíram
sair imp: saía saías saía saíamos saíam
sair fsubj: sair saíres sair sairmos saírem
passear subj: passeie passeies passeie passeemos passeiem
pagar past: paguei pagaste pagou pagamos pagaram
comer isubj: comesse comesses comesse comêssemos comessem
ser imp: era eras era éramos eram
"""
OTHER_FORMS = {
    portuguese.plural: "livro=livros, canção=canções, jovem=jovens, mês=meses, lápis=lápis, "
    "flor=flores, jornal=jornais, hotel=hotéis, pão=pães, mão=mãos, "
    "provável=prováveis, café da manhã=cafés da manhã",
    english.plural: "dictionary=dictionaries, wife=wives, piece of news=pieces of news",
    lambda verb: english.form(verb, "past"): "buy=bought, visit=visited, hug=hugged",
    lambda verb: english.form(verb, "part"): "see=seen, put=put, arrive=arrived",
    lambda verb: english.form(verb, "ing"): "make=making, run=running, lie=lying, open=opening",
    lambda word: english.compared(word, "er"): "big=bigger/ADJ, happy=happier/ADJ, "
    "famous=more famous/ADJ, good=better/ADJ, nice=nicer/ADJ",
    english.article: "a apple=an apple, a hour=an hour, a university=a university, a one=a one",
    portuguese.contract: "em o parque=no parque, de ela=dela, a as=às, com mim=comigo",
    lambda verb: portuguese.with_object(verb, "o"): "ver=vê-lo, ajudar=ajudá-lo, abrir=abri-lo, "
    "construir=construí-lo",
}
FEMININE = "maçã|laranja|água|carta|camisa|bolsa|chave|mesa|cadeira|casa|praia|loja|mãe|irmã|foto"
MASCULINE = "pão|queijo|livro|jornal|poema|vestido|relógio|mapa|copo|carro|gato|parque"
ONE = "o|um|este|aquele|no|do|ao|pelo|neste|naquele|deste|meu|seu|nosso"
ONES = "os|estes|aqueles|nos|dos|aos|muitos|poucos|alguns|meus|seus|nossos|dois"
HER = "a|uma|esta|aquela|na|da|à|minha|sua|as|estas|muitas|duas"

TAGGED = {  # the Portuguese and English of a row of sentences.tsv: English tokens with their tags
    ("[ele=Jim|não estar].", "[be] here."): "Jim/PROPN is/AUX n't/PART here/ADV ./PUNCT",
    ("[I|querer comer:pres].", "[want to eat]."): "I/PRON want/VERB to/PART eat/VERB ./PUNCT",
    ("[they|ver:going] tudo.", "[see] it."): "They/PRON 'll/AUX see/VERB it/PRON ./PUNCT",
    ("É do Tom.", "It's Tom's car."): "It/PRON 's/AUX Tom/PROPN 's/PART car/NOUN ./PUNCT",
}


@pytest.fixture(scope="module")
def pairs():
    return phrasebook.generate(20_000, seed=11)


@pytest.mark.parametrize("line", VERBS.strip().splitlines())
def test_portuguese_verbs(line):
    infinitive, tense, *forms = line.replace(":", "").split()
    assert portuguese.conjugate(infinitive)[tense] == tuple(forms)


@pytest.mark.parametrize("function", OTHER_FORMS)
def test_other_word_forms(function):
    listed = [pair.split("=") for pair in re.split(r",\s*", OTHER_FORMS[function])]
    assert [function(word) for word, _ in listed] == [form for _, form in listed]


def test_every_row_of_every_table_is_written_in_both_languages():
    """No row names what its other half or another table lacks; no mark of a table is left."""
    draw, rows = random.Random(5), [row[2:] for row in lexicon.table("sentences")]
    rows += [(".", f"[who|@{group}:past].", "[@].") for group in lexicon.actions()] * 20
    for moods, *row in rows:
        for mood in sorted(set(moods)) * 8:
            for text in grammar.Sentence(draw, mood).write(*row):
                assert not re.search(r"[{}\[\]()|@_#+=<>~]", text), (row, text)
    for pt, en in [row[-2:] for name in ("sentences", "actions") for row in lexicon.table(name)]:
        known, meant = (re.findall(r"\((?:(\d):)?([^)]*)\)", text) for text in (pt, en))
        for i, (number, options) in enumerate(meant):
            same = known[int(number or i + 1) - 1][1]
            assert same.count("|") == options.count("|"), (pt, en)


def test_many_distinct_sentences_are_written_as_sentences(pairs):
    assert len({portuguese for portuguese, _ in pairs}) == len(pairs)
    for side, least in zip(zip(*pairs, strict=True), (5000, 2500), strict=True):
        assert len(set(re.findall(r"[\w'-]+", " ".join(side).lower()))) > least
        for text in side:
            assert re.fullmatch(r"[\dA-ZÀ-Ú](?:[\w':-]|[,.?!]? (?=\w))*[\w'][.?!]", text), text


def absent(pattern, text):
    found = re.search(pattern, text)
    assert found is None, text[found.start() - 40 : found.end() + 40]


def test_portuguese_agrees_and_contracts(pairs):
    text = "\n".join(portuguese.lower() for portuguese, _ in pairs)
    text = re.sub(r"(pref[ei]r|alérgica).*", "", text)  # `pão a queijo` has no article
    absent(rf"\b({ONE}|{ONES}) ({FEMININE})s?\b", text)
    absent(rf"\b({HER}) ({MASCULINE})s?\b", text)
    absent(rf"\b({ONES}|as|estas|muitas|duas) ({MASCULINE}|{FEMININE})\b", text)
    absent(r"\b(de|em) (o|a|os|as|este|esta|aquele|aquela|ele|ela)\b", text)
    absent(r"\bpor (o|a|os|as)\b|\ba (o|a|os|as)\b|\ba aquel[ea]", text)
    absent(r"\b(para|de|com|em) (eu|tu)\b", text)
    absent(r"\b(eu|ele|ela|você) \w+(amos|emos|imos|aram|eram)\b", text)
    for word in re.findall(r"\S+", "no da pelo ao à neste daquela dele comigo conosco lhe vê-lo"):
        assert re.search(rf"\b{word}\b", text), word
    said = (
        r"(?:é|são|era|eram|está|estão|estava|estavam) (?:muito |tão )?(?!del|com|\w+ndo)(\w+)[.?]"
    )
    one = re.findall(rf"\b(?:a|esta|minha) (?:{FEMININE}) {said}", text)
    several = re.findall(rf"\b(?:os|estes|meus) \w+s {said}", text)
    assert min(len(one), len(several)) > 10
    assert not [word for word in one if word.endswith(("os", "oso", "ado", "ido"))]
    assert not [word for word in several if word.endswith(("osas", "oso", "ado", "ido", "adas"))]


def test_english_agrees(pairs):
    text = "\n".join(english for _, english in pairs)
    absent(r"\n(He|She) (buy|eat|go|write|wash|study|want|need|like|have|play)\b", text)
    absent(r"\b(he|she|it|He|She|It) (are|were|don't|aren't)\b", text)
    absent(r"\b(we|they|We|They) (is|has|doesn't|isn't)\b", text)
    absent(r"\b(these|those|many|some|two|ten) (book|cat|man|child|box|knife)\b", text)
    absent(r"\b(a [aeio]\w+|an [bcdfgjklmnpqrstvwxyz])", re.sub(r"\ba (one|euro)", "", text))


def test_a_sentence_has_one_translation(pairs):
    known, other = dict(pairs), phrasebook.generate(5000, seed=0)
    assert sum(known.get(portuguese, english) != english for portuguese, english in other) < 30


def test_pairs_follow_from_the_seed_alone():
    code = "from training import phrasebook as p; print(p.split(3, 400, 20, 20))"
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert printed.strip() == str(phrasebook.split(3, 400, 20, 20))


@pytest.mark.parametrize("task", ["translation", "classify", "language"])
def test_parts_share_no_sentence(task):
    found = phrasebook.split(2, train=1500, validation=150, test=100, task=task)
    parts = found[:3]
    assert [len(part) for part in parts] == [1500, 150, 100]
    texts = [part if task == "language" else [row[0] for row in part] for part in parts]
    train, validation, test = map(set, texts)
    assert not (train & validation or train & test or validation & test)
    if task == "translation":
        train, *held_out = ({english for _, english in part} for part in parts)
        assert not (train | {english for _, english in found.whole}) & (held_out[0] | held_out[1])
    if task == "classify":
        assert len({kind for _, kind in found.train}) == 12
    assert phrasebook.split(2, 2000, 150, 100, task=task).train[:1500] == found.train


def bare(text):
    return re.sub(r"[\W_]+", " ", text).strip().casefold()


def test_everyday_pairs_are_never_trained_on(monkeypatch):
    """Nor is one that the grammar or the whole pairs have, whatever its marks and case."""
    known = phrasebook.split(4, train=300, validation=10, test=10).train
    held_out = [(known[7][0].upper(), "x"), ("y", known[11][1].replace(".", "!"))]
    held_out += [(portuguese, "z") for portuguese, _ in phrasebook.whole_pairs()[:5]]
    monkeypatch.setattr(phrasebook, "everyday", lambda: held_out)
    phrasebook.whole_pairs.cache_clear()
    try:
        found = phrasebook.split(4, train=30_000, validation=10, test=10)
    finally:
        phrasebook.whole_pairs.cache_clear()
    texts = {bare(text) for pair in found.train + found.whole for text in pair}
    assert not texts & {bare(text) for pair in held_out for text in pair}
    assert bare(known[8][0]) in texts


def test_whole_pairs_are_trained_on_and_no_everyday_pair_is():
    whole, everyday = phrasebook.whole_pairs(), phrasebook.everyday()
    assert whole == list(map(tuple, lexicon.table("pairs")))  # so none had to be left out
    beside = phrasebook.split(1, train=100).whole  # without what its held-out pairs have
    assert len(set(whole) & set(beside)) >= 0.98 * len(whole)
    for table in (whole, everyday):
        assert len(set(table)) == len(table)


def test_parts_of_speech_as_a_person_gives_them():
    for row, expected in TAGGED.items():
        mood = "-" if "não" in row[0] else "."
        tagged = grammar.Sentence(random.Random(1), mood).write(*row)[1]
        columns = phrasebook.tags(phrasebook.Pair("", "", "", tagged))
        assert " ".join(map("/".join, zip(*columns, strict=True))) == expected
    tagged = phrasebook.split(train=5000, task="tag").train
    assert all(len(tokens.split()) == len(tags.split()) for tokens, tags in tagged)
    found = sorted({tag for _, tags in tagged for tag in tags.split()})
    expected = "ADJ ADP ADV AUX CONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT VERB"
    assert " ".join(found) == expected
