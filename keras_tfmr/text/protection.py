"""Protected spans inside the graph: slots for them in a text, and spans for slots afterwards."""

import tensorflow as tf

from keras_tfmr.text.spans import PRIVATE, SLOTS

# A byte that occurs in no UTF-8, so that no text has it.
_MARK, _MARKED = b"\xff", b"\xff\\1\xff"
_FIRST, _PRIVATE_CHARACTERS = ord(SLOTS[0]), 0x1000


def checked(pattern: str) -> str:
    """The pattern; a ValueError unless RE2 reads it, or if it matches the empty text."""
    try:
        empty = bool(tf.strings.regex_full_match("", pattern))
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(f"RE2 cannot read the pattern {pattern!r}: {error.message}") from None
    if empty:
        raise ValueError(f"A pattern must not match the empty text. Received: {pattern!r}")
    return pattern


def protect(texts: tf.Tensor, pattern: str | tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
    """Texts with a slot for each span, and the spans.

    Args:
        texts: string [batch], valid UTF-8.
        pattern: What to protect, in RE2's syntax.

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
    spans = tf.ragged.boolean_mask(pieces, pieces.with_values(is_span))
    number = tf.cumsum(tf.cast(is_span, tf.int64), exclusive=True)
    number -= tf.gather(spans.row_starts(), pieces.value_rowids())  # among those of its text
    codes = _FIRST + tf.cast(number % _PRIVATE_CHARACTERS, tf.int32)
    slots = tf.strings.unicode_encode(codes[:, None], "UTF-8")
    slotted = tf.where(is_span, slots, pieces.flat_values)
    rows = pieces.nrows()
    return tf.strings.unsorted_segment_join(slotted, pieces.value_rowids(), rows), spans


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
    rows, flat = pieces.value_rowids(), tf.where(is_slot)  # [pieces], [slots, 1]
    codes = tf.strings.unicode_decode(tf.gather_nd(pieces.flat_values, flat), "UTF-8").flat_values
    number, row = tf.cast(codes - _FIRST, tf.int64), tf.gather_nd(rows, flat)
    known = number < tf.gather(spans.row_lengths(), row)
    flat = flat[known]
    place = (tf.gather(spans.row_starts(), row) + number)[known]  # among all spans
    values = tf.tensor_scatter_nd_update(
        pieces.flat_values, flat, tf.gather(spans.flat_values, place)
    )
    missing = tf.tensor_scatter_nd_update(
        tf.where(spans.flat_values == "", "", " " + spans.flat_values),
        place[:, None],
        tf.fill(tf.shape(place), ""),
    )
    values, rows = tf.concat([values, missing], 0), tf.concat([rows, spans.value_rowids()], 0)
    joined = tf.strings.unsorted_segment_join(values, rows, pieces.nrows())
    return tf.where(texts == "", tf.strings.regex_replace(joined, "^ ", ""), joined)


def _split(texts, pattern):
    """Texts as ragged string [batch, (pieces)], and which of all pieces match, bool [pieces]."""
    marked = tf.strings.regex_replace(texts, tf.strings.join(["(", pattern, ")"]), _MARKED)
    pieces = tf.strings.split(marked, _MARK)
    place = tf.range(tf.size(pieces.flat_values, tf.int64))
    place -= tf.gather(pieces.row_starts(), pieces.value_rowids())
    return pieces, (place % 2 == 1) & (pieces.flat_values != "")
