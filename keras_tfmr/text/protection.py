"""Protected spans inside the graph: slots for them in a text, and spans for slots afterwards."""

from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

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
_MARK, _MARKED = b"\xff", b"\xff\\1\xff"
_FIRST, _PRIVATE_CHARACTERS = ord(SLOTS[0]), 0x1000
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


def protect(
    texts: tf.Tensor, pattern: str | tf.Tensor, most: int | None = None
) -> tuple[tf.Tensor, tf.RaggedTensor]:
    """Texts with a slot for each span, and the spans.

    Args:
        texts: string [batch], valid UTF-8.
        pattern: What to protect, in RE2's syntax; string [batch] for one of each text.
        most: The most spans of a text; what follows them is left as it is.

    Returns:
        Texts string [batch], in which the spans of each are U+E000, U+E001 and so on, from the
        first again after U+EFFF; and spans ragged string [batch, (spans)].

    >>> texts, spans = protect(tf.constant(["Use {a} or {b}."]), r"\\{\\w\\}")
    >>> texts.numpy()[0].decode() == "Use \\ue000 or \\ue001."
    True
    >>> spans.to_list()
    [[b'{a}', b'{b}']]
    """
    pieces, is_span = _split(texts, pattern)
    spans = tf.ragged.boolean_mask(pieces, is_span)
    number = tf.ragged.range(spans.row_lengths(), row_splits_dtype=tf.int64).flat_values
    codes = _FIRST + tf.cast(number % _PRIVATE_CHARACTERS, tf.int32)
    slots = tf.strings.unicode_encode(codes[:, None], "UTF-8")
    if most is not None:
        slots, spans = tf.where(number < most, slots, spans.flat_values), spans[:, :most]
    flat = tf.tensor_scatter_nd_update(pieces.flat_values, tf.where(is_span.flat_values), slots)
    return tf.strings.reduce_join(pieces.with_flat_values(flat), axis=1), spans


def protect_alike(texts: tf.Tensor, pattern: str, spans: tf.RaggedTensor) -> tf.Tensor:
    """Texts with the slots that the same spans have elsewhere, as in a reference translation.

    Args:
        texts: string [batch], valid UTF-8.
        pattern: As for `protect`.
        spans: ragged string [batch, (spans)] of the other texts, up to 16 of each. The second of
            equal ones stands for the second here, and so on.

    Returns:
        string [batch].
    """
    pieces, is_span = _split(texts, pattern)
    pieces, is_span = pieces.to_tensor(""), is_span.to_tensor(False)  # [batch, pieces]
    spans = spans.to_tensor("", shape=[None, len(SLOTS)])
    before = tf.linalg.band_part(spans[:, :, None] == spans[:, None], -1, 0)  # and itself
    nth = tf.math.count_nonzero(before, axis=2, dtype=tf.int32)  # [batch, spans], from 1
    same = is_span[:, :, None] & (pieces[:, :, None] == spans[:, None])  # [batch, pieces, spans]
    same &= tf.cumsum(tf.cast(same, tf.int32), axis=1) == nth[:, None]
    slots = tf.gather(tf.constant(SLOTS), tf.argmax(same, axis=2))
    return tf.strings.reduce_join(tf.where(tf.reduce_any(same, axis=2), slots, pieces), axis=1)


def restore(texts: tf.Tensor, spans: tf.RaggedTensor) -> tf.Tensor:
    """Texts with their spans instead of slots; spans that are missing come last.

    Args:
        texts: string [batch].
        spans: ragged string [batch, (spans)], as `protect` gives.

    Returns:
        string [batch].

    >>> spans = tf.ragged.constant([["{a}", "{b}"]])
    >>> restore(tf.constant(["Ou \\ue001."]), spans).numpy()
    array([b'Ou {b}. {a}'], dtype=object)
    """
    pieces, is_slot = _split(texts, PRIVATE)
    rows, slots = pieces.value_rowids(), tf.where(is_slot.flat_values)  # [pieces], [slots, 1]
    codes = tf.strings.unicode_decode(tf.gather_nd(pieces.flat_values, slots), "UTF-8").flat_values
    number, row = tf.cast(codes - _FIRST, tf.int64), tf.gather_nd(rows, slots)
    known = number < tf.gather(spans.row_lengths(), row)
    span = (tf.gather(spans.row_starts(), row) + number)[known]  # among all spans
    values = tf.tensor_scatter_nd_update(
        pieces.flat_values, slots[known], tf.gather(spans.flat_values, span)
    )
    missing = tf.tensor_scatter_nd_update(
        tf.where(spans.flat_values == "", "", " " + spans.flat_values),
        span[:, None],
        tf.fill(tf.shape(span), ""),
    )
    values, rows = tf.concat([values, missing], 0), tf.concat([rows, spans.value_rowids()], 0)
    joined = tf.strings.unsorted_segment_join(values, rows, pieces.nrows())
    return tf.where(texts == "", tf.strings.regex_replace(joined, "^ ", ""), joined)


def _split(texts, pattern):
    """Texts in pieces, and which of them match: ragged string and bool [batch, (pieces)]."""
    if isinstance(pattern, str):
        marked = tf.strings.regex_replace(texts, f"({pattern})", _MARKED)
    else:
        marked = tf.map_fn(
            lambda each: tf.strings.regex_replace(*each, _MARKED),
            (texts, tf.strings.join(["(", pattern, ")"])),
            fn_output_signature=tf.TensorSpec([], tf.string),
        )
    pieces = tf.strings.split(marked, _MARK)
    place = tf.ragged.range(pieces.row_lengths(), row_splits_dtype=tf.int64).flat_values
    return pieces, pieces.with_flat_values((place % 2 == 1) & (pieces.flat_values != ""))


class Parts(NamedTuple):
    """Texts with slots. Those with too many spans are in several parts.

    Fields:
        texts: string [parts], with up to 16 slots each.
        rows: int64 [parts], ascending: the text of each.
        spans: ragged string [parts, (spans)].
        kept: bool [parts]: those without anything to translate, which stay as they are.
        count: int64 scalar, the number of texts.
    """

    texts: tf.Tensor
    rows: tf.Tensor
    spans: tf.RaggedTensor
    kept: tf.Tensor
    count: tf.Tensor

    def joined(self, translations, scores, truncated):
        """The translations of texts, with their spans, of those of parts with slots.

        `translations` string and `scores` float32 are [parts, n], `truncated` bool is [parts]; the
        results are the same of texts. Scores are sums.
        """
        kept, shape = self.kept[:, None], tf.shape(translations)
        flat = tf.reshape(tf.where(kept, self.texts[:, None], translations), [-1])
        spans = tf.gather(self.spans, tf.repeat(tf.range(shape[0]), shape[1]))
        restored = tf.reshape(restore(flat, spans), shape)
        translations = tf.strings.unsorted_segment_join(restored, self.rows, self.count)
        # What is kept has one translation, and as many as there are beside other parts.
        free = self._sums(tf.cast(~self.kept, tf.int32)) > 0
        scores = tf.where(kept & tf.gather(free, self.rows)[:, None], 0.0, scores)
        return translations, self._sums(scores), self._sums(tf.cast(truncated, tf.int32)) > 0

    def _sums(self, values):
        return tf.math.unsorted_segment_sum(values, self.rows, self.count)


class Protection:
    """What a translator protects.

    Args:
        protect: Names of `PATTERNS`, and patterns in RE2's syntax; None for `DEFAULT`, if both
            vocabularies have slots.
        tokenizers: Those of source and target.
        splitter: The `SentenceSplitter` that cuts a text with too many spans.

    Attributes:
        possible: Whether both vocabularies have slots.
        protect: The names and patterns; None if it is not possible.
        pattern: One pattern for all of them; if it is not possible, one that nothing matches.
        private: The pattern of slots in a text; likewise.

    Raises:
        ValueError: If a pattern is wrong, or there are no slots for what to protect.
    """

    def __init__(self, protect, tokenizers, splitter):
        self.splitter = splitter
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

    def slotted(self, texts, most=None):
        """Strings [batch] with slots for their spans, and these: see `protect`."""
        # The server does not check the rank of a request's inputs against the signature.
        return protect(valid_utf8(tf.ensure_shape(texts, [None])), self.pattern, most)

    def numbered(self, pieces, spans):
        """Pieces of texts with slots, string [pieces] in order, and the spans of each."""
        pieces, own = protect(pieces, self.private)
        return pieces, own.with_flat_values(spans.flat_values)

    def parts(self, texts):
        """The `Parts` of strings [batch]."""
        return self.parts_of(*self.slotted(texts))

    def parts_of(self, texts, spans):
        """The `Parts` of texts with slots, of which there may be too many, and their spans."""
        count, crowded = tf.size(texts, tf.int64), spans.row_lengths() > len(SLOTS)
        texts, rows, spans = tf.cond(
            tf.reduce_any(crowded),
            lambda: self._cut(texts, spans, crowded),
            lambda: (texts, tf.range(count), spans),
        )
        # White space beside the parts of a text is one of them.
        kept = is_blank(texts) & ((spans.row_lengths() > 0) | tf.gather(crowded, rows))
        return Parts(texts, rows, spans, kept, count)

    def _cut(self, texts, spans, crowded):
        """The crowded texts in sentences, and in less where these have too many spans, too.

        Returns the parts of all texts, the text of each, and their spans.
        """
        pieces, _ = self.splitter.split(tf.where(crowded, texts, ""), _Slots, len(SLOTS) + 1)
        whole = tf.ragged.boolean_mask(texts[:, None], ~crowded[:, None])
        pieces = tf.concat([whole, pieces], axis=1)  # one of both is empty
        texts, spans = self.numbered(pieces.flat_values, spans)
        return texts, pieces.value_rowids(), spans

    def shown(self, tokenizer, ids, spans):
        """The subwords of ids [batch, length], string of their shape, with spans for slots."""
        pieces = tokenizer.pieces(ids)
        if not self.possible:
            return pieces
        same = ids[:, :, None] == tf.constant(tokenizer.slot_ids)  # [batch, length, slots]
        dense = spans.to_tensor("", shape=[None, len(SLOTS)])
        own = tf.gather(dense, tf.argmax(same, axis=2), batch_dims=1)
        return tf.where(tf.reduce_any(same, axis=2), own, pieces)


class _Slots:
    """In place of a tokenizer, for a `SentenceSplitter`: only slots are tokens."""

    @staticmethod
    def encode(texts, max_length):
        return protect(texts, PRIVATE)[1][:, :max_length]
