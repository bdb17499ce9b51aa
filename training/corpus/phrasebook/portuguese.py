"""Portuguese word forms: plurals, feminines, contractions, conjugation, numbers."""

from typing import NamedTuple

from training.corpus.phrasebook.lists import words

# Persons of a verb: eu; você, ele, ela; nós; vocês, eles, elas.
FIRST, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(4)


class Forms(NamedTuple):
    """A verb. The tenses are tuples by person."""

    infinitive: str
    present: tuple
    past: tuple
    gerund: str
    imperative: str  # to você


_ENDINGS = {
    "ar": (("o", "a", "amos", "am"), ("ei", "ou", "amos", "aram"), "ando"),
    "er": (("o", "e", "emos", "em"), ("i", "eu", "emos", "eram"), "endo"),
    "ir": (("o", "e", "imos", "em"), ("i", "iu", "imos", "iram"), "indo"),
}

# Spelling that keeps the sound of the stem, before e, for verbs whose ending begins with a …
_BEFORE_E = {"c": "qu", "g": "gu", "ç": "c"}
# … and before o and a, for verbs whose ending begins with e or i.
_BEFORE_O = {"c": "ç", "g": "j"}

# infinitive: present; past (both by person, empty where regular).
_IRREGULAR = {
    "ser": ("sou é somos são", "fui foi fomos foram"),
    "estar": ("estou está estamos estão", "estive esteve estivemos estiveram"),
    "ter": ("tenho tem temos têm", "tive teve tivemos tiveram"),
    "ir": ("vou vai vamos vão", "fui foi fomos foram"),
    "fazer": ("faço faz fazemos fazem", "fiz fez fizemos fizeram"),
    "trazer": ("trago traz trazemos trazem", "trouxe trouxe trouxemos trouxeram"),
    "poder": ("posso pode podemos podem", "pude pôde pudemos puderam"),
    "querer": ("quero quer queremos querem", "quis quis quisemos quiseram"),
    "saber": ("sei sabe sabemos sabem", "soube soube soubemos souberam"),
    "ver": ("vejo vê vemos veem", "vi viu vimos viram"),
    "ler": ("leio lê lemos leem", "li leu lemos leram"),
    "dar": ("dou dá damos dão", "dei deu demos deram"),
    "perder": ("perco perde perdemos perdem", ""),
    "ouvir": ("ouço ouve ouvimos ouvem", ""),
    "dormir": ("durmo dorme dormimos dormem", ""),
    "preferir": ("prefiro prefere preferimos preferem", ""),
    "servir": ("sirvo serve servimos servem", ""),
    "sair": ("saio sai saímos saem", "saí saiu saímos saíram"),
    "construir": (
        "construo constrói construímos constroem",
        "construí construiu construímos construíram",
    ),
    "passear": ("passeio passeia passeamos passeiam", ""),
}
_IMPERATIVE = {"dar": "dê", "ir": "vá", "ser": "seja", "estar": "esteja"}

ESTAVA = ("estava", "estava", "estávamos", "estavam")


def conjugate(infinitive):
    """The `Forms` of a verb, without the words that follow it in a phrase (`assistir a`)."""
    stem, ending = infinitive[:-2], infinitive[-2:]
    present, past, gerund = _ENDINGS[ending]
    softened = stem[:-1] + _BEFORE_O.get(stem[-1:], stem[-1:]) if ending != "ar" else stem
    hardened = stem[:-1] + _BEFORE_E.get(stem[-1:], stem[-1:]) if ending == "ar" else stem
    irregular_present, irregular_past = _IRREGULAR.get(infinitive, ("", ""))
    present = tuple(irregular_present.split()) or (
        softened + present[0],
        *(stem + form for form in present[1:]),
    )
    past = tuple(irregular_past.split()) or (
        hardened + past[0],
        *(stem + form for form in past[1:]),
    )
    told = present[0][:-1]  # the imperative swaps the vowel of the present
    told = told[:-1] + _BEFORE_E.get(told[-1:], told[-1:]) + "e" if ending == "ar" else told + "a"
    imperative = _IMPERATIVE.get(infinitive, told)
    return Forms(infinitive, present, past, stem + gerund, imperative)


_CONTRACTIONS = {
    "de": {"o": "do", "a": "da", "os": "dos", "as": "das"},
    "em": {"o": "no", "a": "na", "os": "nos", "as": "nas", "um": "num", "uma": "numa"},
    "a": {"o": "ao", "a": "à", "os": "aos", "as": "às"},
    "por": {"o": "pelo", "a": "pela", "os": "pelos", "as": "pelas"},
    "com": {"eu": "comigo", "nós": "conosco"},
    "para": {"eu": "para mim"},
}
for _word in words("este esta estes estas aquele aquela aqueles aquelas"):
    _CONTRACTIONS["de"][_word] = "d" + _word
    _CONTRACTIONS["em"][_word] = "n" + _word
    if _word.startswith("a"):
        _CONTRACTIONS["a"][_word] = "à" + _word[1:]
for _word in words("ele ela eles elas"):
    _CONTRACTIONS["de"][_word] = "d" + _word


def contract(preposition, phrase):
    """A preposition before a phrase: `em` + `o parque` is `no parque`.

    In a preposition of several words (`perto de`), the last one contracts.
    """
    before, _, last = preposition.rpartition(" ")
    first, _, rest = phrase.partition(" ")
    joined = _CONTRACTIONS.get(last, {}).get(first, f"{last} {first}")
    return " ".join(part for part in (before, joined, rest) if part)


def plural(word):
    """The regular plural of a noun or adjective; of `suco de laranja`, that of the first word."""
    head, space, rest = word.partition(" ")
    if space:
        return plural(head) + space + rest
    for ending, replacement in _PLURALS:
        if word.endswith(ending):
            return word[: len(word) - len(ending)] + replacement
    return word + "s"


_PLURALS = (
    ("ão", "ões"),
    ("m", "ns"),
    ("ês", "eses"),
    ("s", "s"),
    ("r", "res"),
    ("z", "zes"),
    ("al", "ais"),
    ("el", "éis"),
    ("ol", "óis"),
    ("ul", "uis"),
    ("il", "eis"),
)


def feminine(adjective):
    """The regular feminine of an adjective."""
    if adjective.endswith("o"):
        return adjective[:-1] + "a"
    if adjective.endswith("ês"):
        return adjective[:-2] + "esa"
    return adjective + "a" if adjective.endswith("dor") else adjective


_UNITS = words(
    "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze "
    "dezesseis dezessete dezoito dezenove"
)
_TENS = words("- - vinte trinta quarenta cinquenta sessenta setenta oitenta noventa")
_HUNDREDS = words(
    "- cento duzentos trezentos quatrocentos quinhentos seiscentos setecentos oitocentos novecentos"
)


def number(n, feminine=False):
    """0 to 999 in words: `duzentas e vinte e uma`."""
    if n == 100:
        return "cem"
    parts = []
    if n > 100:
        word = _HUNDREDS[n // 100]
        parts.append(word[:-2] + "as" if feminine and n >= 200 else word)
        n %= 100
    if n >= 20:
        parts.append(_TENS[n // 10])
        n %= 10
    if n or not parts:
        word = _UNITS[n]
        parts.append({"um": "uma", "dois": "duas"}.get(word, word) if feminine else word)
    return " e ".join(parts)
