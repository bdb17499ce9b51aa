"""The greatest of many values, in few passes over them."""

import numpy as np
from keras import ops


def argmax(values):
    """The first position of the greatest value of each row, and that value.

    Written as two plain reductions, which compilers vectorise; an arg-reduction they do not.

    Args:
        values: float32 `[rows, n]`, n static.

    Returns:
        int32 `[rows]` positions and float32 `[rows]` values.
    """
    size = values.shape[-1]
    greatest = ops.max(values, axis=-1, keepdims=True)  # [rows, 1]
    positions = ops.where(values >= greatest, np.arange(size, dtype="int32"), size - 1)
    return ops.min(positions, axis=-1), greatest[:, 0]


def offsets(batch, size):
    """Where each row's entries begin in a table of `batch` x `size` laid flat, int32 [batch, 1]."""
    return ops.arange(batch, dtype="int32")[:, None] * size


def top_k(values, k):
    """The k greatest values of each row in descending order, and their positions.

    A selection over a whole vocabulary is slow. The k greatest values lie in the k groups with the
    greatest maxima, so all but those groups are looked at only once, by a fast maximum.

    Args:
        values: float32 `[rows, n]`, n static.
        k: static.

    Returns:
        float32 `[rows, k]` values and int32 `[rows, k]` positions.

    >>> values, positions = top_k(np.array([[3.0, 1.0, 4.0, 1.5]], "float32"), 2)
    >>> np.array(positions).tolist()
    [[2, 0]]
    """
    n = values.shape[-1]
    size = _group_size(n, k)
    if size == 1:
        return ops.top_k(values, k)
    rows, groups = ops.shape(values)[0], n // size
    values = ops.reshape(values, (-1, groups, size))
    _, best = ops.top_k(ops.max(values, axis=-1), k)  # [rows, k]
    best = ops.reshape(best + offsets(rows, groups), (-1,))  # [rows * k]
    kept = ops.take(ops.reshape(values, (-1, size)), best, axis=0)  # [rows * k, size]
    greatest, inside = ops.top_k(ops.reshape(kept, (-1, k * size)), k)  # [rows, k]
    group = ops.take(best, inside // size + offsets(rows, k), axis=0) - offsets(rows, groups)
    return greatest, group * size + inside % size


def _group_size(n, k):
    """The divisor of n that leaves the fewest values to select from; 1 for no groups."""
    divisors = [size for size in range(2, n // k + 1) if n % size == 0]
    cost = {size: n // size + k * size for size in divisors}
    best = min(cost, key=cost.get, default=1)
    # Small rows are cheaper to select from at once than through a dozen small operations.
    return best if n >= 1024 and cost[best] * 4 < n else 1
