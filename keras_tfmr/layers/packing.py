"""The three projections of self-attention as one product, for decoding with fixed weights."""

import math

import keras
from keras import ops

from keras_tfmr.layers.attention import MultiHeadAttention


def packed_projections(attention):
    """One kernel and one bias for the three projections of self-attention.

    Args:
        attention: A built `MultiHeadAttention`.

    Returns:
        Kernel `[width, (heads + 2 · kv_heads) · dim]` and bias or None. None in place of both if
        the layer overrides a projection, or if a projection is not a plain `Dense`: quantised
        weights have scales that only their layers apply.
    """
    kind = type(attention)
    if kind.project_query is not MultiHeadAttention.project_query:
        return None
    if kind.project is not MultiHeadAttention.project:
        return None
    parts = (attention.query_dense, attention.key_dense, attention.value_dense)
    if not all(map(_plain, parts)):
        return None
    scale = 1.0 if attention.key_norm is not None else 1 / math.sqrt(attention.key_dim)

    def joined(query, key, value):
        weights = (ops.cast(w, attention.compute_dtype) for w in (query, key * scale, value))
        return ops.concatenate(list(weights), axis=-1)

    kernel = joined(*(part.kernel for part in parts))
    return kernel, joined(*(part.bias for part in parts)) if attention.use_bias else None


def _plain(dense):
    return type(dense) is keras.layers.Dense and dense.dtype_policy.quantization_mode is None
