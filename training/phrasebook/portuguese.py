"""Word forms of Portuguese: verbs in all tenses, plurals, feminines, contractions, numbers.

Regular forms follow rules; `forms.toml` lists the others.
"""

import functools
import re
import tomllib
from pathlib import Path

TABLES = tomllib.loads((Path(__file__).parent / "forms.toml").read_text(encoding="utf-8"))
_VERBS = TABLES["portuguese"]
# Persons of a verb: eu; tu; você, ele, ela; nós; vocês, eles, elas.
FIRST, SECOND, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(5)

# Endings of the present, the past (perfect), the imperfect, the subjunctive, gerund, participle.
_ENDINGS = {
    "ar": ("o as a amos am,ei aste ou amos aram,ava avas ava ávamos avam,e es e emos em,ando,ado"),
    "er": "o es e emos em,i este eu emos eram,ia ias ia íamos iam,a as a amos am,endo,ido",
    "ir": "o es e imos em,i iste iu imos iram,ia ias ia íamos iam,a as a amos am,indo,ido",
    "vowel": (  # after a or u: sair, construir
        "o is i ímos em,í íste iu ímos íram,ía ías ía íamos íam,a as a amos am,indo,ído"
    ),
}
_FUTURE, _CONDITIONAL = ["ei", "ás", "á", "emos", "ão"], ["ia", "ias", "ia", "íamos", "iam"]
# Spelling that keeps the sound of the stem before e, and before o and a.
_BEFORE_E = {"c": "qu", "g": "gu", "ç": "c"}
_BEFORE_O = {"c": "ç", "g": "j"}
_STRESSED = {"a": "á", "e": "ê", "i": "í", "o": "ô"}


@functools.cache
def conjugate(infinitive):
    """{tense: forms of a verb}, tuples by person; `ger`, `part` and `inf` are strings.

    The tenses: `pres`, `past`, `imp` (imperfect), `fut`, `cond`, and the subjunctives `subj`
    (present), `isubj` (imperfect) and `fsubj` (future).
    """
    base, prefix = _model(infinitive)
    stem, ending = base[:-2], base[-2:].replace("ô", "e")
    after_vowel = ending == "ir" and stem[-1:] in ("a", "u") and stem[-2:] not in ("gu", "qu")
    endings = [part.split() for part in _ENDINGS["vowel" if after_vowel else ending].split(",")]
    before_e = _spelled(stem, _BEFORE_E) if ending == "ar" else stem
    first = _VERBS["first"].get(base) or _first_stem(stem, ending, after_vowel)
    present = [stem + e for e in endings[0]]
    present[0] = first + "o"
    if stem.endswith("z") and ending == "ir":
        present[2] = stem  # traduz
    if (ending == "ar" and stem.endswith("e")) or base in _VERBS["ei"].split():
        own = stem.removesuffix("i").removesuffix("e") + "ei"  # passeio, odeio
        present = [own + e for e in endings[0]]
        present[3], first = stem + "amos", own
    present = _listed("pres", base, present)
    past = _listed("past", base, [stem + e for e in endings[1]])
    past[0] = past[0] if base in _VERBS["past"] else before_e + endings[1][0]
    subjunctive = present[0][:-1] if present[0].endswith("o") else first
    subjunctive = _spelled(subjunctive, _BEFORE_E) if ending == "ar" else subjunctive
    theme, future = past[4][:-3], _VERBS["future"].get(base, base.replace("ô", "o"))
    stressed = "é" if base in _VERBS["past"] and theme[-1] == "e" else _STRESSED.get(theme[-1], "í")
    forms = {
        "pres": present,
        "past": past,
        "imp": _listed("imp", base, [stem + e for e in endings[2]]),
        "fut": [future + e for e in _FUTURE],
        "cond": [future + e for e in _CONDITIONAL],
        "subj": _listed("subj", base, [subjunctive + e for e in endings[3]]),
        "isubj": [theme + e for e in ("sse", "sses", "sse", "", "ssem")],
        "fsubj": [theme + e for e in ("r", "res", "r", "rmos", "rem")],
    }
    forms["isubj"][FIRST_PLURAL] = theme[:-1] + stressed + "ssemos"
    if theme.endswith("í"):
        for person in (FIRST, THIRD, FIRST_PLURAL):
            forms["fsubj"][person] = forms["fsubj"][person].replace("ír", "ir")
    if ending == "ar" and stem.endswith("e"):
        forms["subj"][FIRST_PLURAL] = stem + "emos"
    found = {tense: tuple(prefix + form for form in listed) for tense, listed in forms.items()}
    participle = _VERBS["part"].get(base, stem + endings[5][0])
    gerund = "pondo" if base == "pôr" else stem + endings[4][0]
    return found | {"ger": prefix + gerund, "part": prefix + participle, "inf": infinitive}


def _model(infinitive):
    """The verb that another is conjugated like, and what stands before it: `con` + `seguir`."""
    for base, others in _VERBS["like"].items():
        if infinitive in others.split():
            return base, infinitive[: -len(base)]
    return infinitive, ""


def _first_stem(stem, ending, after_vowel):
    if ending == "ar":
        return stem
    if after_vowel and stem.endswith("a"):
        return stem + "i"  # saio
    return stem[:-1] if stem.endswith(("gu", "qu")) else _spelled(stem, _BEFORE_O)


def _spelled(stem, changes):
    return stem[:-1] + changes.get(stem[-1:], stem[-1:])


def _listed(tense, base, regular):
    found = _VERBS[tense].get(base)
    return found.split() if found else regular


def with_object(infinitive, pronoun):
    """`ver` and `o` is `vê-lo`."""
    stem, vowel = infinitive[:-2], infinitive[-2]
    stressed = "í" if stem[-1:] in ("a", "u") and vowel == "i" else vowel
    return f"{stem}{'áê'['ae'.index(vowel)] if vowel in 'ae' else stressed}-l{pronoun}"


_PLURALS = {"ão": "ões", "ês": "eses", "al": "ais", "el": "éis", "ol": "óis", "ul": "uis"}
_PLURALS |= {"il": "is", "m": "ns", "s": "s", "x": "x", "r": "res", "z": "zes"}


def plural(word):
    """The Portuguese plural; of `suco de laranja`, that of the first word."""
    head, space, rest = word.partition(" ")
    if head in _VERBS["plural"]:
        return _VERBS["plural"][head] + space + rest
    for ending, replacement in _PLURALS.items():
        if head.endswith(ending):
            return head.removesuffix(ending) + replacement + space + rest
    return head + "s" + space + rest


def adjective_forms(masculine):
    """(masculine, feminine, masculine plural, feminine plural); `com fome` never changes."""
    if " " in masculine:
        return (masculine,) * 4
    if masculine in _VERBS["adjective"]:
        return tuple(_VERBS["adjective"][masculine].split())
    feminine = masculine
    if masculine.endswith("o"):
        feminine = masculine[:-1] + "a"
    elif masculine.endswith("ês"):
        feminine = masculine[:-2] + "esa"
    elif masculine.endswith(("dor", "tor")):
        feminine = masculine + "a"
    return masculine, feminine, plural(masculine), plural(feminine)


_CONTRACTED = {
    f"{preposition} {word}": joined
    for preposition, words in TABLES["contractions"].items()
    for word, joined in (pair.split("=") for pair in words.split())
}
_CONTRACTS = re.compile(rf"\b(?i:{'|'.join(sorted(_CONTRACTED, key=len, reverse=True))})(?![\w-])")


def contract(text):
    """The contractions of a sentence: `em o parque` is `no parque`."""

    def joined(found):
        word = _CONTRACTED[found[0].lower()]
        return word.capitalize() if found[0][0].isupper() else word

    return _CONTRACTS.sub(joined, text)


_UNITS, _TENS, _HUNDREDS = (
    TABLES["numbers"][f"pt_{name}"].split() for name in ("units", "tens", "hundreds")
)


def number(n, feminine=False):
    """0 to 999 in Portuguese words: `duzentas e vinte e uma`."""
    if n == 100:
        return "cem"
    parts = []
    if n > 100:
        word = _HUNDREDS[n // 100 - 1]
        parts.append(word[:-2] + "as" if feminine and n >= 200 else word)
        n %= 100
    if n >= 20:
        parts.append(_TENS[n // 10 - 2])
        n %= 10
    if n or not parts:
        word = _UNITS[n]
        parts.append({"um": "uma", "dois": "duas"}.get(word, word) if feminine else word)
    return " e ".join(parts)
