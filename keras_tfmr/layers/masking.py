"""Masks, and the masked softmax: the only softmax of attention in the package."""

from typing import Any, NamedTuple

import numpy as np
from keras import backend, ops

# Added to the scores of masked keys. Scores are float32 under every dtype policy, in which exp() is
# then exactly zero beside any real score.
MASKED = np.float32(-1e9)


class AttentionMask(NamedTuple):
    """A bool mask in the form in which scores and outputs use it.

    Fields:
        bias: float32, broadcasts to scores `[..., key]`: 0 where a query may attend to a key, else
            `MASKED`; a bias by position may be added to it.
        attends: bool, broadcasts to scores: False for a query that may attend to nothing; None if
            there is no such query.
    """

    bias: Any
    attends: Any = None


def additive_mask(may_attend):
    """The `AttentionMask` of a bool tensor `[..., key]`, True = may attend; None for None."""
    if may_attend is None:
        return None
    bias = ops.where(may_attend, np.float32(0), MASKED)
    return AttentionMask(bias, ops.any(may_attend, axis=-1, keepdims=True))


def causal_mask(query, key):
    """bool `[query, key]`: a query may attend only to its own and earlier positions."""
    return ops.arange(query, dtype="int32")[:, None] >= ops.arange(key, dtype="int32")[None, :]


def merge_masks(masks, position_bias=None):
    """The `AttentionMask` of what all masks allow, plus a bias by position; None without either.

    Args:
        masks: bool tensors that broadcast to `[batch, heads, query, key]`, or None.
        position_bias: float32, broadcasts to `[batch, heads, query, key]`, or None.
    """
    may_attend = None
    for mask in masks:
        if mask is not None:
            may_attend = mask if may_attend is None else ops.logical_and(may_attend, mask)
    mask = additive_mask(may_attend)
    if position_bias is None:
        return mask
    position_bias = ops.cast(position_bias, "float32")
    return (
        AttentionMask(position_bias)
        if mask is None
        else mask._replace(bias=mask.bias + position_bias)
    )


def zero_masked_rows(values, mask):
    """`values`, set to zero for queries that may attend to nothing, whose softmax is uniform."""
    if mask is None or mask.attends is None:
        return values
    return values * ops.cast(mask.attends, values.dtype)


def masked_softmax(scores, mask=None):
    """Softmax over the last axis, in float32 under every dtype policy.

    Args:
        scores: Tensor `[..., key]` of any float dtype.
        mask: An `AttentionMask`, or None.

    Returns:
        Weights `[..., key]`, float32 (float64 for float64 scores), zero for a query that may attend
        to nothing.

    >>> mask = additive_mask(np.array([True, False]))
    >>> np.array(masked_softmax(np.zeros((1, 2), "float32"), mask)).tolist()
    [[1.0, 0.0]]
    """
    scores = ops.cast(scores, backend.result_type(scores.dtype, "float32"))
    if mask is not None:
        scores = scores + ops.cast(mask.bias, scores.dtype)
    if scores.shape[-1] == 1:  # Keras warns of a softmax over a single position
        return zero_masked_rows(0.0 * scores + 1.0, mask)  # keeps a gradient, of zero
    return zero_masked_rows(ops.softmax(scores, axis=-1), mask)
