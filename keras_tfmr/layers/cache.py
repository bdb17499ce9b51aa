"""Caches of the keys and values of earlier positions, and the position of a decoding step.

A cache has the shape `[batch, kv_heads, room * beams, dim]`, with the hypotheses (beams) of an
example side by side at each position. They share the cache, which is never reordered; a mask
determines what each hypothesis may attend to.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_tfmr.layers.masking import MASKED, AttentionMask


class StepPosition(NamedTuple):
    """The position of a step: one new token for each hypothesis, or several tokens for only one.

    Fields:
        index: int32 scalar, the number of positions in the caches.
        query: int, the number of new tokens of an example, side by side.
        beams: int, the number of hypotheses of an example; 1 for several consecutive tokens.
        mask: `AttentionMask` whose bias broadcasts to `[batch, heads, query, room * beams]`.
        places: int32 `[batch * kv_heads * query, 3]`, what `places` gives; None writes slices.
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
        """The number of new positions."""
        return self.query // self.beams


def following(index, query, room):
    """The `StepPosition` of tokens after `index` earlier ones, for one hypothesis per example.

    Args:
        index: int32 scalar, the number of positions in the caches.
        query: Number of new tokens.
        room: Number of positions that the caches have room for.
    """
    # The last position that each token may attend to, its own: [], or [query, 1] for several.
    last = index if query == 1 else (index + ops.arange(query, dtype="int32"))[:, None]
    earlier = ops.less_equal(ops.arange(room, dtype="int32"), last)
    bias = ops.where(earlier, 0.0, MASKED)
    return StepPosition(index, query, 1, AttentionMask(bias))


def places(batch, kv_heads, positions):
    """Where the new keys and values of a step go: what `StepPosition.places` takes.

    Args:
        batch: Number of examples, an int or an int32 scalar.
        kv_heads: Number of heads of keys and values.
        positions: int32 `[query]`, the places of an example's new tokens among the `room * beams`.

    Returns:
        int32 `[batch * kv_heads * query, 3]`: example, head and place of each.
    """
    axes = (ops.arange(batch, dtype="int32"), ops.arange(kv_heads, dtype="int32"), positions)
    return ops.reshape(ops.stack(ops.meshgrid(*axes, indexing="ij"), axis=-1), (-1, 3))


def write(cache, new, at):
    """Writes `new` `[batch, kv_heads, query, dim]` into a cache.

    Args:
        cache: Tensor `[batch, kv_heads, room * beams, dim]`.
        new: Keys or values of the step's tokens.
        at: The `StepPosition`.

    Returns:
        The cache with the new positions written.
    """
    if at.places is None:
        return ops.slice_update(cache, (0, 0, at.index * at.beams, 0), new)
    # A server without XLA refuses to write slices. Scattering copies the cache, but takes less time
    # than a selection between old and new.
    return ops.scatter_update(cache, at.places, ops.reshape(new, (-1, cache.shape[3])))
