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

# The spelling that keeps the sound of a stem before e, before o and a, and stressed.
_BEFORE_E, _BEFORE_O = {"c": "qu", "g": "gu", "ç": "c"}, {"c": "ç", "g": "j"}
_STRESSED = {"a": "á", "e": "ê", "i": "í", "o": "ô"}


@functools.cache
def conjugate(infinitive):
    """{tense: forms of a verb}, tuples by person; `ger`, `part` and `inf` are strings.

    The tenses: `pres`, `past`, `imp` (imperfect), `fut`, `cond`, and the subjunctives `subj`
    (present), `isubj` (imperfect) and `fsubj` (future).
    """
    alike = (base for base, others in _VERBS["like"].items() if infinitive in others.split())
    base = next(alike, infinitive)  # conseguir is con + seguir
    prefix = infinitive[: -len(base)]
    stem, ending = base[:-2], base[-2:].replace("ô", "e")
    after_vowel = ending == "ir" and stem[-1:] in ("a", "u") and stem[-2:] not in ("gu", "qu")
    endings = _VERBS["endings"]["vowel" if after_vowel else ending]
    present, past, imperfect, subjunctive, others = (
        [stem + e for e in part.split()] for part in endings
    )
    if ending == "ar":
        past[0] = _spelled(stem, _BEFORE_E) + "ei"
    else:
        first = stem + "i" * (after_vowel and stem[-1] == "a")  # saio
        first = first[:-1] if first.endswith(("gu", "qu")) else _spelled(first, _BEFORE_O)
        present[0] = _VERBS["first"].get(base, first) + "o"
    present, past = _listed("pres", base, present), _listed("past", base, past)
    if present[0].endswith("o"):
        root = present[0][:-1] if ending != "ar" else _spelled(present[0][:-1], _BEFORE_E)
        subjunctive = [root + e for e in endings[3].split()]
    theme, future = past[4][:-3], _VERBS["future"].get(base, base.replace("ô", "o"))
    stressed = "é" if base in _VERBS["past"] and theme[-1] == "e" else _STRESSED.get(theme[-1], "í")
    weak = theme.replace("í", "i")
    forms = {
        "pres": present,
        "past": past,
        "imp": _listed("imp", base, imperfect),
        "fut": [future + e for e in ("ei", "ás", "á", "emos", "ão")],
        "cond": [future + e for e in ("ia", "ias", "ia", "íamos", "iam")],
        "subj": _listed("subj", base, subjunctive),
        "isubj": [theme + e for e in ("sse", "sses", "sse", "ssemos", "ssem")],
        "fsubj": [weak + "r", theme + "res", weak + "r", weak + "rmos", theme + "rem"],
    }
    forms["isubj"][FIRST_PLURAL] = theme[:-1] + stressed + "ssemos"
    found = {tense: tuple(prefix + form for form in listed) for tense, listed in forms.items()}
    gerund = prefix + ("pondo" if base == "pôr" else others[0])
    participle = prefix + _VERBS["part"].get(base, others[1])
    return found | {"ger": gerund, "part": participle, "inf": infinitive}


def _spelled(stem, changes):
    return stem[:-1] + changes.get(stem[-1:], stem[-1:])


def _listed(tense, base, regular):
    return _VERBS[tense][base].split() if base in _VERBS[tense] else regular


def with_object(infinitive, pronoun):
    """`ver` and `o` is `vê-lo`."""
    stem, vowel = infinitive[:-2], infinitive[-2]
    stressed = {"a": "á", "e": "ê", "i": "í" if stem[-1:] in ("a", "u") else "i"}.get(vowel, vowel)
    return f"{stem}{stressed}-l{pronoun}"


def plural(word):
    """The Portuguese plural; of `suco de laranja`, that of the first word."""
    head, space, rest = word.partition(" ")
    several = head + "s"
    for ending, replacement in _VERBS["plurals"].items():
        if head.endswith(ending):
            several = head.removesuffix(ending) + replacement
    return _VERBS["plural"].get(word) or _VERBS["plural"].get(head, several) + space + rest


def adjective_forms(masculine):
    """(masculine, feminine, masculine plural, feminine plural); `com fome` never changes."""
    if " " in masculine:
        return (masculine,) * 4
    if masculine in _VERBS["adjective"]:
        return tuple(_VERBS["adjective"][masculine].split())
    feminine = re.sub(r"o$", "a", masculine)
    feminine = re.sub(r"ês$", "esa", re.sub(r"([dt]or)$", r"\1a", feminine))
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
