"""Keys and values of earlier positions, and where a step of decoding stands among them.

A cache lies as `[batch, kv_heads, room * beams, dim]`: the hypotheses (beams) of an example side by
side at each position. They share the cache, which is never reordered; a mask says what each
hypothesis may attend to.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_tfmr.layers.masking import MASKED, AttentionMask


class StepPosition(NamedTuple):
    """Where a step stands: one new token for each hypothesis, or several for a single one.

    Fields:
        index: int32 scalar, how many positions the caches hold.
        query: int, the new tokens of an example, side by side.
        beams: int, the hypotheses of an example; 1 where several tokens follow each other.
        mask: `AttentionMask` whose bias broadcasts to `[batch, heads, query, room * beams]`.
        places: int32 `[batch * kv_heads * new, 1]`, where to scatter to; None writes slices.
        rotation: What `RotaryPositions.rotation` gives for the new positions.
    """

    index: Any
    query: Any
    beams: int
    mask: Any
    places: Any = None
    rotation: Any = None

    @property
    def new(self):
        """How many positions are new."""
        return self.query // self.beams


def following(index, query, room):
    """The `StepPosition` of tokens that follow `index` earlier ones, of one hypothesis each.

    Args:
        index: int32 scalar, how many positions the caches hold.
        query: Number of new tokens.
        room: Number of positions that the caches have room for.
    """
    # What may be attended to, each as far as itself: [key], or [query, key] for several.
    last = index if query == 1 else (index + ops.arange(query, dtype="int32"))[:, None]
    earlier = ops.less_equal(np.arange(room, dtype="int32"), last)
    bias = ops.where(earlier, 0.0, MASKED)
    return StepPosition(index, query, 1, AttentionMask(bias))


def write(cache, new, at):
    """`new` `[batch, kv_heads, query, dim]` in its place of a cache.

    Args:
        cache: Tensor `[batch, kv_heads, room * beams, dim]`.
        new: Keys or values of the step's tokens.
        at: The `StepPosition`.

    Returns:
        The cache with the new positions written.
    """
    if at.places is None:
        return ops.slice_update(cache, (0, 0, at.index * at.beams, 0), new)
    # Only XLA writes slices in place. Where nothing else holds the cache, TensorFlow scatters into
    # it without a copy.
    _, heads, size, dim = cache.shape
    width = at.beams * dim
    positions = ops.reshape(cache, (-1, width))  # [batch * kv_heads * room, beams * dim]
    positions = ops.scatter_update(positions, at.places, ops.reshape(new, (-1, width)))
    return ops.reshape(positions, (-1, heads, size, dim))
