"""The phrasebook: word forms against lists written by hand; agreement and contractions in what it
writes; one translation for each sentence; parts that share none; labels and tags."""

import os
import re
import subprocess
import sys

import pytest

from training import phrasebook
from training.phrasebook import forms

VERBS = """
    abraçar: abraço abraça abraçamos abraçam; abracei abraçou abraçamos abraçaram; abraçando; abrace
    trazer: trago traz trazemos trazem; trouxe trouxe trouxemos trouxeram; trazendo; traga
    dormir: durmo dorme dormimos dormem; dormi dormiu dormimos dormiram; dormindo; durma
"""
OTHER_FORMS = {
    forms.plural: "livro=livros, canção=canções, jovem=jovens, mês=meses, lápis=lápis, "
    "flor=flores, feliz=felizes, jornal=jornais, hotel=hotéis, café da manhã=cafés da manhã",
    forms.feminine: "novo=nova, inglês=inglesa, trabalhador=trabalhadora, grande=grande",
    forms.english_past: "buy=bought, visit=visited, arrive=arrived, study=studied, hug=hugged",
    forms.article: "apple=an, hour=a, university=a, umbrella=an, house=a, one=a",
}
FEMININE = "maçã|laranja|água|carta|camisa|bolsa|chave|mesa|cadeira|casa|praia|loja|mãe|irmã|foto"
MASCULINE = "pão|queijo|livro|jornal|poema|vestido|relógio|mapa|copo|carro|gato|parque"
ONE = "o|um|este|aquele|no|do|ao|pelo|num|neste|naquele|deste|meu|seu|nosso"
ONES = "os|estes|aqueles|nos|dos|aos|muitos|poucos|alguns|meus|seus|nossos|dois"
HER = "a|uma|esta|aquela|na|da|à|minha|sua|as|estas|muitas|duas"

TAGGED = {
    "Our new knife is next to our bed .": "DET ADJ NOUN AUX ADP ADP DET NOUN PUNCT",
    "This novel is as difficult as that one .": "DET NOUN AUX CONJ ADJ CONJ DET PRON PUNCT",
    "It is snowing in New York .": "PRON AUX VERB ADP PROPN PROPN PUNCT",
    "Whose shirts are these ?": "DET NOUN AUX PRON PUNCT",
}


@pytest.fixture(scope="module")
def pairs():
    return phrasebook.generate(60_000, seed=11)


def test_portuguese_verbs():
    for line in VERBS.strip().splitlines():
        infinitive, listed = line.strip().split(": ")
        present, past, gerund, imperative = (part.split() for part in listed.split(";"))
        expected = (infinitive, tuple(present), tuple(past), *gerund, *imperative)
        assert tuple(forms.conjugate(infinitive)) == expected


@pytest.mark.parametrize("function", OTHER_FORMS, ids=lambda function: function.__name__)
def test_other_word_forms(function):
    listed = [pair.split("=") for pair in re.split(r",\s*", OTHER_FORMS[function])]
    assert [function(word) for word, _ in listed] == [form for _, form in listed]


def test_many_distinct_sentences_are_written_as_sentences(pairs):
    assert len({portuguese for portuguese, _ in pairs}) == len(pairs)
    for side in zip(*pairs, strict=True):
        assert 1000 < len(set(re.findall(r"[\w'-]+", " ".join(side).lower()))) < 2500
        for text in side:
            assert re.fullmatch(r"[A-ZÀ-Ú](?:[\w'-]|,? (?=\w))*\w[.?!]", text), text


def absent(pattern, text):
    found = re.search(pattern, text)
    assert found is None, text[found.start() - 40 : found.end() + 40]


def test_portuguese_agrees_and_contracts(pairs):
    text = "\n".join(portuguese.lower() for portuguese, _ in pairs)
    text = re.sub(r"pref[ei]r.*", "", text)  # `pão a queijo` has no article
    absent(rf"\b({ONE}|{ONES}) ({FEMININE})s?\b", text)
    absent(rf"\b({HER}) ({MASCULINE})s?\b", text)
    absent(rf"\b({ONES}|as|estas|muitas|duas) ({MASCULINE}|{FEMININE})\b", text)
    absent(r"\b(de|em) (o|a|os|as|este|esta|aquele|aquela|ele|ela)\b", text)
    absent(r"\b(por|a) (o|a|os|as)\b|\ba aquel[ea]", text)
    for word in re.findall(r"\S+", "no da pelo ao à num neste daquela àquele dele comigo conosco"):
        assert re.search(rf"\b{word}\b", text), word
    said = r"(?:muito )?(\w+)[.?]"
    one = re.findall(rf"\b(?:a|esta|minha) (?:{FEMININE}) é {said}", text)
    several = re.findall(rf"\b(?:os|estes|meus) (?:{MASCULINE})s são {said}", text)
    assert min(len(one), len(several)) > 10
    assert not [word for word in one if word.endswith(("o", "s"))]
    assert not [word for word in several if not word.endswith("s") or word.endswith("as")]


def test_english_agrees(pairs):
    text = "\n".join(english for _, english in pairs)
    absent(r"\n(He|She) (buy|eat|go|write|wash|study|want|need|like|have|play)\b", text)
    absent(r"\b(he|she|it|He|She|It) (are|were|don't|aren't)\b", text)
    absent(r"\b(I|we|they|you|We|They|You) (is|has|doesn't|isn't)\b", text)
    absent(r"\b(these|those|many|some|two|ten) (book|cat|man|child|box|knife)\b", text)
    absent(r"\b(a [aeio]|an [bcdfgjklmnpqrstvwxyz])", text)


def test_a_sentence_has_one_translation(pairs):
    known = dict(pairs)
    for portuguese, english in phrasebook.generate(10_000, seed=0):
        assert known.setdefault(portuguese, english) == english


def test_pairs_follow_from_the_seed_alone():
    code = "from training import phrasebook as p; print(p.generate(400, seed=3))"
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert printed.strip() == str(phrasebook.generate(400, seed=3))


@pytest.mark.parametrize("task", ["translation", "classify", "language"])
def test_parts_share_no_sentence(task):
    parts = phrasebook.split(2, train=1500, validation=150, test=100, task=task)
    assert [len(part) for part in parts] == [1500, 150, 100]
    texts = [part if task == "language" else [row[0] for row in part] for part in parts]
    train, validation, test = map(set, texts)
    assert not (train & validation or train & test or validation & test)
    if task == "translation":
        train, *held_out = ({english for _, english in part} for part in parts)
        assert not train & (held_out[0] | held_out[1])
    if task == "classify":
        assert len({kind for _, kind in parts.train}) == 12
    assert phrasebook.split(2, 2000, 150, 100, task=task).train[:1500] == parts.train


def test_parts_of_speech_as_a_person_gives_them():
    tagged = dict(phrasebook.split(train=60_000, task="tag").train)
    for sentence, tags in TAGGED.items():
        assert tagged[sentence] == tags
    assert all(len(tokens.split()) == len(tags.split()) for tokens, tags in tagged.items())
