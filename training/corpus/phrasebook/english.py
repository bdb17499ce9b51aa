"""English word forms: plurals, verb forms, articles, degrees of adjectives, numbers."""

from training.corpus.phrasebook.lists import words

_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "knife": "knives",
    "bookshelf": "bookshelves",
    "scarf": "scarves",
    "wife": "wives",
    "mouse": "mice",
    "sheep": "sheep",
    "potato": "potatoes",
    "tomato": "tomatoes",
}
_IRREGULAR = words(
    "break broke bring brought build built buy bought come came cut cut do did draw drew "
    "drink drank drive drove eat ate feed fed find found forget forgot give gave go went have had "
    "know knew leave left lend lent lose lost make made pay paid put put read read run ran "
    "see saw sell sold send sent sing sang sleep slept speak spoke swim swam take took tell told "
    "think thought wake woke write wrote"
)
_PAST = dict(zip(_IRREGULAR[::2], _IRREGULAR[1::2], strict=True))
_DOUBLED = frozenset(words("cut forget get hug plan put run stop swim"))
_VOWELS = "aeiou"
# Words that begin with a vowel letter but not with a vowel sound.
_CONSONANT_SOUNDS = ("uni", "use", "euro", "one")


def plural(noun):
    """The plural of a noun: `dictionary` -> `dictionaries`; of several words, that of the last."""
    before, space, word = noun.rpartition(" ")
    if word in _PLURALS:
        word = _PLURALS[word]
    elif word.endswith("y") and word[-2] not in _VOWELS:
        word = word[:-1] + "ies"
    else:
        word += "es" if word.endswith(("s", "x", "ch", "sh")) else "s"
    return before + space + word


def possessive(noun):
    """`my brother's`, `the students'`."""
    return noun + ("'" if noun.endswith("s") else "'s")


def third_person(verb):
    """`look for` -> `looks for`."""
    word, space, rest = verb.partition(" ")
    if word in ("have", "be"):
        word = {"have": "has", "be": "is"}[word]
    elif word.endswith("y") and word[-2] not in _VOWELS:
        word = word[:-1] + "ies"
    else:
        word += "es" if word.endswith(("s", "x", "ch", "sh", "o")) else "s"
    return word + space + rest


def past(verb):
    """`buy` -> `bought`, `visit` -> `visited`."""
    word, space, rest = verb.partition(" ")
    if word in _PAST:
        word = _PAST[word]
    elif word.endswith("e"):
        word += "d"
    elif word.endswith("y") and word[-2] not in _VOWELS:
        word = word[:-1] + "ied"
    else:
        word += word[-1] + "ed" if word in _DOUBLED else "ed"
    return word + space + rest


def gerund(verb):
    """`write` -> `writing`, `run` -> `running`."""
    word, space, rest = verb.partition(" ")
    if word in _DOUBLED:
        word += word[-1]
    elif word.endswith("e") and not word.endswith("ee"):
        word = word[:-1]
    return word + "ing" + space + rest


def article(phrase):
    """`a` or `an` before the sound that the phrase begins with."""
    word = phrase.lower()
    vowel = word[0] in _VOWELS and not word.startswith(_CONSONANT_SOUNDS)
    return "an" if vowel or word.startswith(("hour", "honest")) else "a"


# Adjectives of at most six letters that take `more`.
_LONG = frozenset(words("boring famous honest modern polite tired"))


def comparative(adjective):
    """`big` -> `bigger than` without `than`; longer adjectives take `more`."""
    if adjective in ("good", "bad"):
        return {"good": "better", "bad": "worse"}[adjective]
    if adjective.endswith("y") and len(adjective) < 7:
        return adjective[:-1] + "ier"
    if len(adjective) > 6 or adjective in _LONG:
        return "more " + adjective
    if adjective.endswith("e"):
        return adjective + "r"
    if adjective in ("big", "sad", "hot"):
        return adjective + adjective[-1] + "er"
    return adjective + "er"


_UNITS = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = words("- - twenty thirty forty fifty sixty seventy eighty ninety")


def number(n):
    """0 to 999 in words: `two hundred twenty-one`."""
    if n >= 100:
        rest = f" {number(n % 100)}" if n % 100 else ""
        return f"{_UNITS[n // 100]} hundred{rest}"
    if n >= 20:
        rest = f"-{_UNITS[n % 10]}" if n % 10 else ""
        return _TENS[n // 10] + rest
    return _UNITS[n]
