"""Slots for what stands on both sides of a pair, from which a translator learns where they belong.

A translator puts a slot for each span of a text that must not change, such as code or a link, and
the span for the slot of the translation: see `keras_tfmr/text/spans.py`. Because few corpora have
many such spans, some of the names, numbers and other words that both sides share become slots too.
"""

import collections
import random
import re

from keras_tfmr.text.spans import SLOTS, python_pattern

SHARE = 0.15  # of the words that both sides share
# The share of pairs whose spans stay text: a model that only saw slots could not copy the names of
# code that nothing protects (on technical documentation, 6 BLEU of the sentences with such names).
SPELT = 0.5
_WORD = re.compile(r"\b(?:\d+|\w{3,})(?:[.,]\w+)*\b")
_RESERVED = re.compile(f"[{SLOTS[0]}-{SLOTS[-1]}]")


class PairProtection:
    """Puts slots into pairs, the same ones into the same pair in any process.

    A span that both sides do not have equally often is left as it is: as a slot, it would teach
    that slots may be lost or repeated.

    Args:
        protect: Names and patterns of spans, as for `Translator`.
        seed: Seed of the choice of words.

    Call arguments:
        source, target: str.

    Returns:
        `(source, target)` with slots, numbered from left to right in the source.

    >>> pair = PairProtection(["code"], seed=2)("Use o `pip`.", "Use `pip`.")
    >>> pair == (f"Use o {SLOTS[0]}.", f"Use {SLOTS[0]}.")
    True
    """

    def __init__(self, protect, seed):
        self._pattern, self._seed = python_pattern(protect), seed

    def finds(self, text):
        """Whether a text holds a span."""
        return bool(self._pattern.search(text))

    def __call__(self, source, target):
        spans, words = zip(*map(self._found, (source, target)), strict=True)
        draw = random.Random(f"{self._seed}\t{source}\t{target}")
        spans = ([], []) if draw.random() < SPELT else _shared(*spans)
        words = _shared(*words, lambda: draw.random() < SHARE)
        # Pairs without spans begin at any slot, half of them, so that every slot is learned.
        first = 0 if spans[0] or draw.random() < 0.5 else draw.randrange(len(SLOTS))
        sides = [_counted(a + b) for a, b in zip(spans, words, strict=True)]
        slots = dict(zip([which for _, which in sides[0]], SLOTS[first:], strict=False))
        texts = zip((source, target), sides, strict=True)
        return tuple(_replaced(text, side, slots) for text, side in texts)

    def _found(self, text):
        """The spans of a text, and the words between them: two lists of (begin, text)."""
        rest = self._pattern.sub(lambda match: " " * len(match.group()), text)
        places = self._pattern.finditer(text), _WORD.finditer(rest)
        return [[(match.start(), match.group()) for match in matches] for matches in places]


def _shared(source, target, wanted=lambda: True):
    """The (begin, text) of both sides whose texts both have equally often, if they are wanted."""
    counts = [collections.Counter(text for _, text in side) for side in (source, target)]
    same = {text for text, n in counts[0].items() if counts[1][text] == n and wanted()}
    return [[place for place in side if place[1] in same] for side in (source, target)]


def _counted(places):
    """(begin, (text, number)) of (begin, text), from left to right: the first of a text is 0."""
    seen = collections.Counter()
    numbered = []
    for begin, text in sorted(places):
        numbered.append((begin, (text, seen[text])))
        seen[text] += 1
    return numbered


def _replaced(text, places, slots):
    """A text in which slots stand for what has one, and none of its own characters is a slot."""
    pieces, end = [], 0
    for begin, which in places:
        if which in slots:  # there may be more places than slots
            pieces += [_RESERVED.sub("\ufffd", text[end:begin]), slots[which]]
            end = begin + len(which[0])
    return "".join([*pieces, _RESERVED.sub("\ufffd", text[end:])])
