"""Slots in the pairs that a translator learns from.

A translator replaces each protected span of a text, such as code or a link, by a slot, and the slot
of the translation by the span: see `keras_tfmr/text/spans.py`. To teach it, spans that both sides
of a pair share become slots. Few corpora have many spans, so some of the words that both sides
share, such as names and numbers, become slots too: an augmentation, drawn at random.
"""

import collections
import random
import re

from keras_tfmr.text.spans import SLOTS, python_pattern

AUGMENTED = 0.15  # fraction of the shared words that become slots
# Fraction of the pairs whose spans stay text: a model that only saw slots could not copy the names
# of code that nothing protects (on technical documentation, 6 BLEU in sentences with such names).
SPELT = 0.5
_WORD = re.compile(r"\b(?:\d+|\w{3,})(?:[.,]\w+)*\b")
_RESERVED = re.compile(f"[{SLOTS[0]}-{SLOTS[-1]}]")


class SlotInserter:
    """Puts slots into pairs, the same ones into the same pair in any process.

    A span that the sides do not have equally often stays text: as a slot, it would teach that slots
    may be lost or repeated.

    Args:
        protect: Names and patterns of spans, as for `Translator`.
        seed: Seed of the random choices.

    Call arguments:
        source, target: str.

    Returns:
        `(source, target)` with slots, numbered from left to right in the source.

    >>> pair = SlotInserter(["code"], seed=2)("Use o `pip`.", "Use `pip`.")
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
        words = [w for w in _shared(source_words, target_words) if draw.random() < AUGMENTED]
        # Half of the pairs without spans begin at any slot, so that every slot is learned.
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
    """The texts that occur equally often among the (begin, text) of both sides, in source order."""
    in_source = collections.Counter(text for _, text in source)
    in_target = collections.Counter(text for _, text in target)
    return [text for text, count in in_source.items() if in_target[text] == count]


def _chosen(places, texts):
    """The places, (begin, text), of these texts."""
    return [(begin, text) for begin, text in places if text in texts]


def _replaced(text, places, slots):
    """A text with the slots of each span, {span: slots}; slots of its own become U+FFFD."""
    left = {span: list(of_span) for span, of_span in slots.items()}
    pieces, end = [], 0
    for begin, span in sorted(places):
        if left.get(span):
            pieces += [_RESERVED.sub("\ufffd", text[end:begin]), left[span].pop(0)]
            end = begin + len(span)
    pieces.append(_RESERVED.sub("\ufffd", text[end:]))
    return "".join(pieces)
