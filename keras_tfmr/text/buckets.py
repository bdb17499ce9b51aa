"""Padding: a row and a column there always are, and few sizes where each has to be compiled."""

import bisect

import tensorflow as tf

# Each pair of sizes is a program of its own, seconds of compilation. Requests are of one sentence,
# of a few, or batched; and few sentences are longer than 32 tokens, whose padding costs a pass of
# the encoder and no step.
BATCH_BUCKETS = (1, 4, 32)
LENGTH_BUCKETS = (32, 128)


def length_buckets(longest):
    """The lengths up to which ids of at most `longest` are padded, ascending.

    >>> length_buckets(100)
    (32, 100)
    """
    return (*(rung for rung in LENGTH_BUCKETS if rung < longest), longest)


def at_least_one(ids):
    """Adds a row, a column of padding where ids [rows, length] have none."""
    return pad_to(ids, tf.maximum(tf.shape(ids)[0], 1), tf.maximum(tf.shape(ids)[1], 1))


def pad_to(ids, rows, columns):
    """Ids [.., ..] padded with 0 to [rows, columns]."""
    shape = tf.shape(ids)
    return tf.pad(ids, [[0, rows - shape[0]], [0, columns - shape[1]]])


def pad_to_buckets(ids, lengths):
    """Ids [rows, length] padded to sizes of `BATCH_BUCKETS` and of `lengths`."""
    shape = tf.shape(ids)
    return pad_to(ids, _rung(shape[0], BATCH_BUCKETS), _rung(shape[1], lengths))


def text_per_bucket(texts, lengths, count):
    """One text for every length that is compiled, made of the words of `texts`.

    Args:
        texts: a list of strings with at least one word.
        lengths: the lengths, ascending.
        count: a function from a text to its number of tokens; what is cut counts.

    Returns:
        A list of strings, the shortest first.
    """
    words = " ".join(texts).split()
    words = words * (1 + lengths[-1] // len(words))  # at least one token each
    found, start = [], 0
    for bucket in lengths:
        # The longest beginning that fits; the tokens of a beginning grow with its words.
        fits = bisect.bisect_right(
            range(1, len(words) + 1), bucket, key=lambda n: count(" ".join(words[:n]))
        )
        if fits > start:
            found.append(" ".join(words[:fits]))
        start = fits
    return found


def _rung(size, ladder):
    """The smallest bucket that `size` fits; above the ladder, multiples of its last rung."""
    rungs, last = tf.constant(ladder), ladder[-1]
    above = tf.reduce_sum(tf.cast(rungs < size, tf.int32))
    multiple = -(-size // last) * last
    return tf.where(size > last, multiple, rungs[tf.minimum(above, len(ladder) - 1)])
