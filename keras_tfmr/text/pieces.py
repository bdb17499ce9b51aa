"""Texts in pieces, in the graph: flat tensors, and for each piece the row of its text.

A `tf.RaggedTensor` does the same with 30 more operations to split texts, 40 to choose some pieces
and 80 to join them. What waits for a graph (an export, a server's start, its first answers) waits
for the number of its operations.
"""

from typing import NamedTuple

import tensorflow as tf


class Pieces(NamedTuple):
    """The pieces of a batch of texts, in order.

    Fields:
        values: string [pieces].
        rows: int64 [pieces], ascending: the text of each.
        places: int64 [pieces]: 0, 1, 2 and so on in each text.
    """

    values: tf.Tensor
    rows: tf.Tensor
    places: tf.Tensor


def split(texts: tf.Tensor, mark: str | bytes) -> Pieces:
    """Texts, string [batch], cut at each mark; every one has a piece, which may be empty.

    >>> split(tf.constant(["a,b", ""]), ",").values.numpy().tolist()
    [b'a', b'b', b'']
    """
    indices, values, _ = tf.raw_ops.StringSplitV2(input=texts, sep=mark)
    return Pieces(values, *tf.unstack(indices, axis=1))


def join(values: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Pieces joined to string [count]; a text without pieces is empty."""
    return tf.strings.unsorted_segment_join(values, rows, count)


def chosen(wanted: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
    """The values of tensors [n] where bool [n] is True."""
    places = tf.where(wanted)
    return [tf.gather_nd(tensor, places) for tensor in tensors]


def rows_of(values: tf.Tensor, wanted: tf.Tensor) -> tf.RaggedTensor:
    """The values of a tensor [batch, length] where bool [batch, length] is True, ragged."""
    [kept] = chosen(wanted, values)
    lengths = tf.reduce_sum(tf.cast(wanted, tf.int64), axis=1)
    splits = tf.cumsum(tf.pad(lengths, [[1, 0]]))
    return tf.RaggedTensor.from_row_splits(kept, splits, validate=False)


def table(values: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Pieces as string [count, most pieces of a text], padded with empty strings."""
    return tf.raw_ops.RaggedTensorToTensor(
        shape=[-1, -1],
        values=values,
        default_value="",
        row_partition_tensors=[count, rows],
        row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
    )
