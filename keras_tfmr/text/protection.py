"""Protected spans inside the graph: slots for them in a text, and spans for slots afterwards."""

from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from keras_tfmr.text.pieces import Pieces, chosen, join, split
from keras_tfmr.text.spans import (
    DEFAULT,
    MATCHES_NOTHING,
    PATTERNS,
    PRIVATE,
    SLOTS,
    combined,
    without_borders,
)  # fmt: skip
from keras_tfmr.text.tokenizer import valid_utf8

# A byte that occurs in no UTF-8, so that no text has it.
MARK, MARKED = b"\xff", b"\xff\\1\xff"
NO_SPAN = MARK
# What stands for a piece of a text, by its place: a slot for each of the first spans, at odd ones.
_SLOT_AT = (*(each for slot in SLOTS for each in ("", slot)), "")
_NOTHING = r"[^\x{0}-\x{10FFFF}]"
# Only separators and control characters; slots are among the latter.
_BLANK = r"[\pZ\pC]*"


def is_blank(texts: tf.Tensor) -> tf.Tensor:
    """bool [batch]: which texts have nothing to translate."""
    return tf.strings.regex_full_match(texts, _BLANK)


def patterns(protect: Iterable[str]) -> str:
    """One pattern for all that is protected: see `combined`.

    Raises:
        ValueError: As `combined`; or if RE2 cannot read a pattern, or it can match nothing.
    """
    pattern = combined(protect)  # which refuses a str, before it is taken for a list
    for each in (*(PATTERNS.get(each, each) for each in protect), pattern):
        try:
            tf.strings.regex_full_match("", each)
            empty = bool(tf.strings.regex_full_match("", without_borders(each)))
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(f"RE2 cannot read the pattern {each!r}: {error.message}") from None
        if empty:
            raise ValueError(MATCHES_NOTHING.format(each))
    return pattern


class Slotted(NamedTuple):
    """Texts with slots for their spans.

    Fields:
        texts: string [batch], with up to 16 slots each.
        spans: string [batch, 16], what the slots of each stand for; `NO_SPAN` where it has fewer.
        crowded: bool [batch], which have further spans, left as text.
    """

    texts: tf.Tensor
    spans: tf.Tensor
    crowded: tf.Tensor

    def restored(self, translations: tf.Tensor) -> tf.Tensor:
        """Translations of these texts with spans instead of slots, both string [batch].

        A text of nothing but spans and white space is its own translation.
        """
        kept = is_blank(self.texts) & (self.spans[:, 0] != NO_SPAN) & ~self.crowded
        return restore(tf.where(kept, self.texts, translations), self.spans)

    def repeated(self, n: int) -> "Slotted":
        """Each text n times in a row."""
        rows = tf.range(n * tf.size(self.texts)) // n
        return Slotted(*(tf.gather(field, rows) for field in self))


def protect(texts: tf.Tensor, pattern: str) -> Slotted:
    """Texts with slots for their first 16 spans.

    Args:
        texts: string [batch], valid UTF-8.
        pattern: The pattern of protected spans, in RE2's syntax.

    >>> texts, spans, _ = protect(tf.constant(["Use {a} or {b}."]), r"\\{\\w\\}")
    >>> texts.numpy()[0].decode() == "Use \\ue000 or \\ue001."
    True
    >>> spans.numpy()[0, :3].tolist()
    [b'{a}', b'{b}', b'\\xff']
    """
    pieces = around(texts, pattern)
    return with_slots(pieces, pieces.values, tf.size(texts, tf.int64))


def around(texts: tf.Tensor, pattern: str) -> Pieces:
    """Texts cut around what a pattern matches: at even places what is not, at odd ones what is."""
    return split(tf.strings.regex_replace(texts, f"({pattern})", MARKED), MARK)


def with_slots(pieces: Pieces, spans: tf.Tensor, count: tf.Tensor) -> Slotted:
    """Texts joined of their pieces, with slots for those at the first 16 odd places.

    Args:
        pieces: The pieces of texts, as `around` gives them.
        spans: string [pieces], at odd places what a slot stands for.
        count: int64 scalar, the number of texts.
    """
    slots = tf.gather(_SLOT_AT, tf.minimum(pieces.places, len(_SLOT_AT) - 1))
    is_slot = slots != ""
    texts = join(tf.where(is_slot, slots, pieces.values), pieces.rows, count)
    rows, places, own = chosen(is_slot, pieces.rows, pieces.places, spans)
    none = tf.fill(tf.stack([count, len(SLOTS)]), NO_SPAN)
    spans = tf.tensor_scatter_nd_update(none, tf.stack([rows, places // 2], axis=1), own)
    last = tf.math.unsorted_segment_max(pieces.places, pieces.rows, count)
    return Slotted(texts, spans, last >= len(_SLOT_AT))


def protect_alike(texts: tf.Tensor, pattern: str, spans: tf.Tensor) -> tf.Tensor:
    """Texts with the slots that the same spans have elsewhere, as in a reference translation.

    Args:
        texts: string [batch], valid UTF-8.
        pattern: As for `protect`.
        spans: string [batch, 16], those of the other texts. The second of equal ones stands for
            the second here, and so on.

    Returns:
        string [batch].
    """
    pieces, count = around(texts, pattern), tf.size(texts, tf.int64)
    equal_before = tf.linalg.band_part(spans[:, :, None] == spans[:, None], -1, 0)  # and itself
    nth = tf.reduce_sum(tf.cast(equal_before, tf.int32), axis=2)  # [batch, 16], from 1
    same = pieces.values[:, None] == tf.gather(spans, pieces.rows)  # [pieces, 16]
    same &= (pieces.places % 2 == 1)[:, None]
    so_far = tf.cumsum(tf.cast(same, tf.int32))  # in all texts
    before = tf.math.unsorted_segment_min(so_far - tf.cast(same, tf.int32), pieces.rows, count)
    same &= so_far == tf.gather(before + nth, pieces.rows)
    slots = tf.gather(SLOTS, tf.argmax(same, axis=1))
    values = tf.where(tf.reduce_any(same, axis=1), slots, pieces.values)
    return join(values, pieces.rows, count)


def restore(texts: tf.Tensor, spans: tf.Tensor) -> tf.Tensor:
    """Texts with their spans instead of slots; spans that are missing come last.

    Args:
        texts: string [batch].
        spans: string [batch, 16], as `protect` gives.

    Returns:
        string [batch].

    >>> _, spans, _ = protect(tf.constant(["Use {a} or {b}."]), r"\\{\\w\\}")
    >>> restore(tf.constant(["Ou \\ue001."]), spans).numpy()
    array([b'Ou {b}. {a}'], dtype=object)
    """
    pieces, count = around(texts, PRIVATE), tf.size(texts, tf.int64)
    same = pieces.values[:, None] == SLOTS  # [pieces, 16]
    own = tf.gather_nd(spans, tf.stack([pieces.rows, tf.argmax(same, axis=1)], axis=1))
    known = tf.reduce_any(same, axis=1) & (own != NO_SPAN)
    values = tf.where(known, own, pieces.values)
    used = tf.math.unsorted_segment_max(tf.cast(same, tf.int32), pieces.rows, count) > 0
    missing = tf.where(used | (spans == NO_SPAN) | (spans == ""), "", " " + spans)  # [batch, 16]
    joined = join(values, pieces.rows, count) + tf.strings.reduce_join(missing, axis=1)
    return tf.where(texts == "", tf.strings.regex_replace(joined, "^ ", ""), joined)


class Protection:
    """The spans that a translator protects.

    Args:
        protect: Names of `PATTERNS`, and patterns in RE2's syntax; None for `DEFAULT`, if both
            vocabularies have slots.
        tokenizers: The tokenizers of source and target.

    Attributes:
        possible: Whether both vocabularies have slots.
        protect: The names and patterns; None if it is not possible.
        pattern: One pattern for all of them; if protection is not possible, one without matches.
        private: The pattern of slots in a text; likewise.

    Raises:
        ValueError: If a pattern is wrong, or there are spans to protect but no slots.
    """

    def __init__(self, protect, tokenizers):
        self.possible = all(tokenizer.slot_ids for tokenizer in tokenizers)
        if self.possible:
            protect = DEFAULT if protect is None else protect
            self.pattern, self.private, self.protect = patterns(protect), PRIVATE, tuple(protect)
        elif protect:
            raise ValueError(
                "To protect spans, both vocabularies must have slots for them: train the model "
                f"with --protect. Received: protect={protect!r}"
            )
        else:
            self.pattern, self.private, self.protect = _NOTHING, _NOTHING, None

    def slotted(self, texts):
        """The `Slotted` of strings [batch]."""
        return protect(_checked(texts), self.pattern)

    def taken_out(self, texts):
        """Strings [batch] with U+E000 for each span, and all spans in order, string [spans]."""
        texts = _checked(texts)
        pieces = around(texts, self.pattern)
        [spans] = chosen(pieces.places % 2 == 1, pieces.values)
        return tf.strings.regex_replace(texts, self.pattern, SLOTS[0]), spans

    def put_back(self, texts, spans):
        """The reverse of `taken_out` for parts of its texts, in order.

        Returns string [parts], and their `Slotted`.
        """
        pieces, count = around(texts, self.private), tf.size(texts, tf.int64)
        is_span = tf.where(pieces.places % 2 == 1)
        pieces = pieces._replace(values=tf.tensor_scatter_nd_update(pieces.values, is_span, spans))
        return join(pieces.values, pieces.rows, count), with_slots(pieces, pieces.values, count)

    def shown(self, tokenizer, ids, spans):
        """The subwords of ids [batch, length], string of their shape, with spans for slots."""
        pieces = tokenizer.pieces(ids)
        if not self.possible:
            return pieces
        same = ids[:, :, None] == tf.constant(tokenizer.slot_ids)  # [batch, length, 16]
        own = tf.gather(spans, tf.argmax(same, axis=2), batch_dims=1)
        return tf.where(tf.reduce_any(same, axis=2), own, pieces)


def _checked(texts):
    """Valid UTF-8 [batch]: the server does not check a request's ranks against the signature."""
    return valid_utf8(tf.ensure_shape(texts, [None]))
