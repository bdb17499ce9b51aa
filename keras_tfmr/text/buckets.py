"""Batches of ids: padded to one row and column at least, or to a few sizes; shifted by one."""

import bisect

import tensorflow as tf

# XLA compiles a program for each pair of sizes, which takes seconds. The batch sizes are for
# requests of one sentence, of a few, and for batches. Few sentences are longer than 32 tokens, and
# padding them costs encoder time but no decoding step.
BATCH_BUCKETS = (1, 4, 32)
# XLA is up to twice as fast as the plain graph with a few rows, and slower with many, whose padding
# to a fixed size costs more.
MOST_COMPILED = 4
LENGTH_BUCKETS = (32, 128)


def length_buckets(longest):
    """The lengths up to which ids of at most `longest` are padded, ascending.

    >>> length_buckets(100)
    (32, 100)
    """
    return (*(rung for rung in LENGTH_BUCKETS if rung < longest), longest)


def at_least_one(ids):
    """Ids [rows, length] with at least one row and one column, of padding if there was none."""
    return pad_to(ids, tf.maximum(tf.shape(ids)[0], 1), tf.maximum(tf.shape(ids)[1], 1))


def pad_to(ids, rows, columns):
    """Ids [.., ..] padded with 0 to [rows, columns]."""
    shape = tf.shape(ids)
    return tf.pad(ids, [[0, rows - shape[0]], [0, columns - shape[1]]])


def pad_to_buckets(ids, lengths):
    """Ids [rows, length] padded to sizes of `BATCH_BUCKETS` and of `lengths`."""
    shape = tf.shape(ids)
    return pad_to(ids, rung(shape[0], BATCH_BUCKETS), rung(shape[1], lengths))


def text_per_bucket(texts, lengths, count):
    """One text for each length that is compiled, made of the words of `texts`.

    Args:
        texts: A list of strings with at least one word.
        lengths: The lengths, ascending.
        count: A function from a text to its number of tokens, those that are cut included.

    Returns:
        A list of strings, the shortest first.
    """
    words = " ".join(texts).split()
    words = words * (1 + lengths[-1] // len(words))  # at least one token each
    found, start = [], 0
    for bucket in lengths:
        # The longest prefix that fits: its tokens grow with its words.
        fits = bisect.bisect_right(
            range(1, len(words) + 1), bucket, key=lambda n: count(" ".join(words[:n]))
        )
        if fits > start:
            found.append(" ".join(words[:fits]))
        start = fits
    return found


def rung(size, ladder):
    """The smallest size of `ladder` that holds `size`; above them, a multiple of the last one."""
    rungs, last = tf.constant(ladder), ladder[-1]
    above = tf.reduce_sum(tf.cast(rungs < size, tf.int32))
    multiple = -(-size // last) * last
    return tf.where(size > last, multiple, rungs[tf.minimum(above, len(ladder) - 1)])


def shifted(ids, start_id):
    """What a decoder is fed to predict ids [rows, length]: the start id, then all but the last."""
    start = tf.fill([tf.shape(ids)[0], 1], start_id)
    return tf.concat([start, ids[:, :-1]], axis=1)
