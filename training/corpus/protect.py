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
        draw = random.Random(f"{self._seed}\t{source}\t{target}")
        source_spans, source_words = self._found(source)
        target_spans, target_words = self._found(target)
        spans = [] if draw.random() < SPELT else _shared(source_spans, target_spans)
        words = [w for w in _shared(source_words, target_words) if draw.random() < SHARE]
        # Pairs without spans begin at any slot, half of them, so that every slot is learned.
        first = 0 if spans or draw.random() < 0.5 else draw.randrange(len(SLOTS))
        source_places = _chosen(source_spans, spans) + _chosen(source_words, words)
        target_places = _chosen(target_spans, spans) + _chosen(target_words, words)
        slots = collections.defaultdict(list)
        # There may be more places than slots: the last ones stay as they are.
        for (_, text), slot in zip(sorted(source_places), SLOTS[first:], strict=False):
            slots[text].append(slot)
        return _replaced(source, source_places, slots), _replaced(target, target_places, slots)

    def _found(self, text):
        """The spans of a text, and the words between them: two lists of (begin, text)."""
        spans = [(match.start(), match.group()) for match in self._pattern.finditer(text)]
        rest = self._pattern.sub(lambda match: " " * len(match.group()), text)
        words = [(match.start(), match.group()) for match in _WORD.finditer(rest)]
        return spans, words


def _shared(source, target):
    """What stands equally often among the (begin, text) of both sides, in the source's order."""
    in_source = collections.Counter(text for _, text in source)
    in_target = collections.Counter(text for _, text in target)
    return [text for text, count in in_source.items() if in_target[text] == count]


def _chosen(places, texts):
    """The (begin, text) whose text is one of these."""
    return [(begin, text) for begin, text in places if text in texts]


def _replaced(text, places, slots):
    """A text with the slots of each span, {span: slots}; none of its own characters is a slot."""
    left = {span: list(of_span) for span, of_span in slots.items()}
    pieces, end = [], 0
    for begin, span in sorted(places):
        if left.get(span):
            pieces += [_RESERVED.sub("\ufffd", text[end:begin]), left[span].pop(0)]
            end = begin + len(span)
    pieces.append(_RESERVED.sub("\ufffd", text[end:]))
    return "".join(pieces)
