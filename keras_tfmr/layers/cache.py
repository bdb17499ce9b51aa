"""The keys and values of the tokens so far, which self-attention keeps for its `step`.

A cache is a dictionary. One that grows has `keys` and `values`, `[rows, heads, tokens, dim]` of the
tokens so far. One of fixed shapes, as JAX and XLA need, has room for more tokens, and `filled`, an
int32 scalar, says how many it holds; what stands behind these is overwritten.
"""

from keras import ops, tree

from keras_tfmr.config import Nested, Tensor

Cache = dict[str, Tensor]


def empty_cache(rows, heads, key_dim, value_dim, room, dtype) -> Cache:
    """A cache of no tokens.

    Args:
        rows: Number of hypotheses, an int or an int32 scalar.
        heads: Number of heads of keys and values.
        key_dim, value_dim: Widths of a key and of a value in one head.
        room: The number of tokens that a cache of fixed shapes has room for; None for a cache that
            grows.
        dtype: The dtype of keys and values.
    """
    cache = {
        "keys": ops.zeros((rows, heads, room or 0, key_dim), dtype),
        "values": ops.zeros((rows, heads, room or 0, value_dim), dtype),
    }
    return cache if room is None else {**cache, "filled": ops.zeros((), "int32")}


def extended(cache: Cache, keys: Tensor, values: Tensor) -> Cache:
    """The cache with the keys and values of further tokens, `[rows, heads, length, dim]`."""
    keys, values = ops.cast(keys, cache["keys"].dtype), ops.cast(values, cache["values"].dtype)
    if "filled" not in cache:
        return {
            "keys": ops.concatenate([cache["keys"], keys], axis=2),
            "values": ops.concatenate([cache["values"], values], axis=2),
        }
    start = (0, 0, cache["filled"], 0)
    return {
        "keys": ops.slice_update(cache["keys"], start, keys),
        "values": ops.slice_update(cache["values"], start, values),
        "filled": cache["filled"] + ops.shape(keys)[2],
    }


def is_fixed(cache) -> bool:
    """Whether it is a cache of fixed shapes."""
    return isinstance(cache, dict) and "filled" in cache


def shortened(caches: Nested, length: Tensor) -> Nested | None:
    """Nested caches of fixed shapes, cut to `length` tokens; None if there are others in it."""
    leaves = tree.flatten(tree.traverse(lambda x: () if is_fixed(x) else None, caches))
    if leaves:
        return None
    return tree.traverse(lambda x: {**x, "filled": length} if is_fixed(x) else None, caches)


def visible(cache: Cache, length) -> Tensor | None:
    """Which tokens `length` new ones after a cache may attend to: bool `[length, tokens]`.

    None if the only new one may attend to all.
    """
    if "filled" in cache:
        before = cache["filled"]
    elif isinstance(length, int) and length == 1:
        return None
    else:
        before = ops.shape(cache["keys"])[2]
    return key_positions(cache, length)[None, :] <= new_positions(before, length)[:, None]


def key_positions(cache: Cache, length) -> Tensor:
    """The positions int32 `[tokens]` of the keys of a cache once `length` tokens are added."""
    tokens = ops.shape(cache["keys"])[2]
    return ops.arange(tokens if "filled" in cache else tokens + length, dtype="int32")


def new_positions(index: Tensor, length) -> Tensor:
    """The positions int32 `[length]` of the tokens after `index` others."""
    if isinstance(length, int) and length == 1:
        return ops.reshape(index, (1,))
    return index + ops.arange(length, dtype="int32")
