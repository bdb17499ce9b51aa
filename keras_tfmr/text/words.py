"""The words of a text, split in the graph, for taggers."""

import tensorflow as tf

from keras_tfmr.text.tokenizer import valid_utf8

# A number with its inner punctuation (3.5, 10:30), a word with its inner apostrophes and hyphens,
# or a single punctuation mark. Joiners and other invisible characters belong to a word.
_WORD = (
    r"(\pN+(?:[.,:]\pN+)+"
    r"|[\pL\pM\pN\p{Cf}]+(?:['\x{2019}-][\pL\pM\pN\p{Cf}]+)*"
    r"|[^\pZ\p{Cc}])"
)
_SPACE = r"[\pZ\p{Cc}]+"


def words_of(text):
    """Strings [batch] -> their words and punctuation marks, ragged string [batch, (words)].

    >>> words_of(tf.constant(["It's 3.5 km (or so)."])).to_list()[0]
    [b"It's", b'3.5', b'km', b'(', b'or', b'so', b')', b'.']
    """
    return spaced_words_of(tf.strings.regex_replace(valid_utf8(text), _WORD, r"\1 "))


def spaced_words_of(text):
    """Strings [batch] -> their parts between spaces, ragged string [batch, (words)].

    >>> spaced_words_of(tf.constant(["It 's 3.5 km ."])).to_list()[0]
    [b'It', b"'s", b'3.5', b'km', b'.']
    """
    text = tf.strings.regex_replace(valid_utf8(text), _SPACE, " ")
    return tf.strings.split(tf.ensure_shape(text, [None]))


def first_pieces(words, tokenizer, max_length):
    """The subwords of words, and where each word begins among them.

    Args:
        words: ragged string [batch, (words)].
        tokenizer: A `SubwordTokenizer`. Each word is split as it is after a space.
        max_length: The most ids in a row, the end id included.

    Returns:
        ids: int32 [batch, length], ended by the end id and padded with 0.
        words: ragged string [batch, (words)], the words whose first subword is among the ids.
        places: ragged int64 [batch, (words)], the position of that subword.
        truncated: bool [batch], whether words or subwords were left out.
    """
    given = words.row_lengths()
    words = words[:, :max_length]
    pieces = tokenizer.encode(words.flat_values, max_length)  # [words of all texts, (pieces)]
    lengths = words.with_flat_values(tf.cast(pieces.row_lengths(), tf.int64))
    # Where a word begins: the sum of the lengths before it in its text.
    before = tf.cumsum(lengths.flat_values, exclusive=True)
    starts = tf.pad(tf.cumsum(tf.reduce_sum(lengths, axis=1)), [[1, 0]])  # of the texts
    places = lengths.with_flat_values(before - tf.gather(starts, words.value_rowids()))
    rows = tf.RaggedTensor.from_row_splits(pieces.flat_values, starts)  # [batch, (pieces)]
    kept = places < max_length - 1
    truncated = (rows.row_lengths() > max_length - 1) | (given > words.row_lengths())
    end = tf.fill([rows.nrows(tf.int32), 1], tokenizer.end_id)
    ids = tf.concat([rows[:, : max_length - 1], end], axis=1).to_tensor(tokenizer.pad_id)
    return ids, tf.ragged.boolean_mask(words, kept), tf.ragged.boolean_mask(places, kept), truncated
