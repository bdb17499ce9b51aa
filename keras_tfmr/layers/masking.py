"""Masks, and the masked softmax: the only softmax of attention in the package."""

import numpy as np
from keras import backend, ops

# Added to the scores of masked keys. Scores are float32 under every dtype policy, in which exp() is
# then exactly zero beside any real score.
MASKED = np.float32(-1e9)


def causal_mask(query, key):
    """bool `[query, key]`: a query may attend only to its own and earlier positions."""
    return ops.arange(query, dtype="int32")[:, None] >= ops.arange(key, dtype="int32")[None, :]


def merge_masks(masks):
    """The conjunction of bool masks, without those that are None; None if all are."""
    may_attend = None
    for mask in masks:
        if mask is not None:
            may_attend = mask if may_attend is None else ops.logical_and(may_attend, mask)
    return may_attend


def mask_bias(may_attend, position_bias=None):
    """The bias of scores `[..., key]`: float32 that broadcasts to them, or None.

    Args:
        may_attend: bool tensor `[..., key]`, True = may attend; or None.
        position_bias: float32, broadcasts to the scores; or None.
    """
    if position_bias is not None:
        position_bias = ops.cast(position_bias, "float32")
    if may_attend is None:
        return position_bias
    bias = ops.where(may_attend, np.float32(0), MASKED)
    return bias if position_bias is None else bias + position_bias


def biased_softmax(scores, bias=None):
    """Softmax over the last axis of scores plus a bias, in float32 under every dtype policy.

    Args:
        scores: Tensor `[..., key]` of any float dtype.
        bias: The output of `mask_bias`.

    Returns:
        Weights `[..., key]`, float32 (float64 for float64 scores). They are the same for all keys
        where none may be attended to: see `zero_rows`.
    """
    scores = ops.cast(scores, backend.result_type(scores.dtype, "float32"))
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    if scores.shape[-1] == 1:  # Keras warns of a softmax over a single position
        return 0.0 * scores + 1.0  # keeps a gradient, of zero
    return ops.softmax(scores, axis=-1)


def any_key(may_attend):
    """bool `[..., 1]`: whether a query may attend to anything; None for None."""
    return None if may_attend is None else ops.any(may_attend, axis=-1, keepdims=True)


def zero_rows(values, attends):
    """`values`, set to zero for queries that may attend to nothing: `attends` is `any_key`'s."""
    return values if attends is None else values * ops.cast(attends, values.dtype)


def masked_mean(x, mask=None):
    """The mean of the vectors at valid positions; zero for a sequence that has none.

    Args:
        x: Tensor `[batch, length, width]`.
        mask: bool `[batch, length]`, True = valid; or None.

    Returns:
        float32 tensor `[batch, width]`.
    """
    x = ops.cast(x, "float32")
    if mask is None:
        return ops.mean(x, axis=1)
    weights = ops.cast(mask, "float32")[:, :, None]  # [batch, length, 1]
    return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def masked_softmax(scores, may_attend=None):
    """Softmax over the keys that may be attended to, in float32 under every dtype policy.

    Args:
        scores: Tensor `[..., key]` of any float dtype.
        may_attend: bool tensor that broadcasts to the scores, or None.

    Returns:
        As `biased_softmax`, but zero for a query that may attend to nothing.

    >>> np.array(masked_softmax(np.zeros((1, 2), "float32"), np.array([True, False]))).tolist()
    [[1.0, 0.0]]
    """
    return zero_rows(biased_softmax(scores, mask_bias(may_attend)), any_key(may_attend))
