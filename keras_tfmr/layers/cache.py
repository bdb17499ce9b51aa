"""Caches of the keys and values of earlier positions, and where a step's new tokens stand.

A cache is a pair of keys `[batch, kv_heads, cache_length, key_dim]` and values `[batch, kv_heads,
cache_length, value_dim]`. A search keeps the hypotheses (beams) of an example side by side at each
position: cache_length = positions * beams. They share the cache, which is never reordered; a mask
determines what each hypothesis may attend to.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor


class CachePosition(NamedTuple):
    """Where new tokens stand, in the sequence and in the caches: what layers take as `cache_index`.

    The new tokens of an example are consecutive, or one for each of its beams.

    Fields:
        start: int32 scalar, the first index that is written.
        positions: int32 `[query]`, the positions of the new tokens; `[1]` for one of all beams.
        mask: bool, broadcasts to `[batch, heads, query, cache_length]`, True = may attend.
        scatter_indices: int32 `[batch * kv_heads * query, 3]`, from `scatter_indices`;
            without them, slices are written.
        fits: bool scalar, whether the cache has room; if not, NaN is written. None if it has.
    """

    start: Any
    positions: Any
    mask: Any
    scatter_indices: Any = None
    fits: Any = None

    def key_positions(self, query: Tensor, cache_length: Any) -> Tensor:
        """The positions int32 `[cache_length]` of all tokens, of which `query` are new."""
        beams = query // ops.shape(self.positions)[0]
        return ops.arange(cache_length, dtype="int32") // beams


def causal_position(index, query, cache_length):
    """The `CachePosition` of consecutive tokens after `index` earlier ones, without beams.

    Args:
        index: int32 scalar, the number of positions in the caches.
        query: Number of new tokens.
        cache_length: Number of positions that the caches have room for.
    """
    index = ops.convert_to_tensor(index, "int32")
    positions = index + ops.arange(query, dtype="int32")
    return CachePosition(
        index, positions, ops.arange(cache_length, dtype="int32") <= positions[:, None]
    )  # mask [query, cache_length]


def check_cache(cache, batch, *widths):
    """Raises a ValueError unless a cache has tensors `[batch, heads, length, dim]` of these sizes.

    Args:
        cache: The keys and values of a layer, or another tuple of such tensors.
        batch: Number of examples, or None.
        *widths: heads and dim of each tensor.
    """
    shapes = [tuple(getattr(part, "shape", ())) for part in cache]
    expected = [(batch, heads, None, dim) for heads, dim in widths]
    fits = len(shapes) == len(expected) and all(
        len(shape) == 4 and all(None in sizes or sizes[0] == sizes[1] for sizes in pairs)
        for shape, sizes in zip(shapes, expected, strict=True)
        for pairs in [list(zip(shape, sizes, strict=False))]
    )
    if not fits:
        raise ValueError(
            f"`cache` must have tensors of shapes {expected}, as the method `cache` makes them. "
            f"Received: shapes {shapes}"
        )


def as_position(cache_index: Nested, x: Tensor, cache: Nested) -> CachePosition:
    """A `CachePosition`, or the one of a number; for `x` `[batch, query, width]` and a cache.

    Raises:
        ValueError: If the number is negative, or the cache has no room for `x` after it.
    """
    if isinstance(cache_index, CachePosition):
        return cache_index
    query, room = x.shape[1], cache[0].shape[2]
    sizes_known = isinstance(query, int) and isinstance(room, int)
    index = _checks.index("cache_index", cache_index, room - query + 1 if sizes_known else None)
    query, room = ops.shape(x)[1], ops.shape(cache[0])[2]
    position = causal_position(index, query, room)
    if _checks.known(cache_index) is None:
        # A graph cannot raise an error: it would move a slice back over the keys of earlier
        # positions until it fits, or leave out what it cannot scatter.
        fits = ops.equal(index, ops.clip(index, 0, room - query))
        position = position._replace(fits=fits)
    if keras.backend.backend() == "jax":  # writes slices in place
        return position
    # TensorFlow's operation for slices belongs to XLA, and a server without XLA refuses it.
    # Scattering copies the cache, but takes less time than a selection between old and new.
    indices = scatter_indices(ops.shape(x)[0], cache[0].shape[1], position.positions)
    return position._replace(scatter_indices=indices)


def scatter_indices(batch, kv_heads, indices):
    """Where the new keys and values of a step go: what `CachePosition.scatter_indices` takes.

    Args:
        batch: Number of examples, an int or an int32 scalar.
        kv_heads: Number of heads of keys and values.
        indices: int32 `[query]`, where an example's new tokens stand in the cache.

    Returns:
        int32 `[batch * kv_heads * query, 3]`: example, head and index of each.
    """
    axes = (ops.arange(batch, dtype="int32"), ops.arange(kv_heads, dtype="int32"), indices)
    return ops.reshape(ops.stack(ops.meshgrid(*axes, indexing="ij"), axis=-1), (-1, 3))


def write(cache, new, position):
    """Cache `[batch, kv_heads, cache_length, dim]`, with `new` `[batch, kv_heads, query, dim]`."""
    if position.fits is not None:
        new = ops.where(position.fits, new, float("nan"))
    if position.scatter_indices is None:
        return ops.slice_update(cache, (0, 0, position.start, 0), new)
    return ops.scatter_update(
        cache, position.scatter_indices, ops.reshape(new, (-1, cache.shape[3]))
    )
