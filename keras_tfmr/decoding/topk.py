"""Selection of the greatest values, in few passes over them."""

from keras import ops

# The lowest difference, in nats, from the most probable token whose exp() is not 0 in float32.
LOWEST = -104.0
# Halvings of that range until only rounding errors are left.
_HALVINGS = 30
# The values in a group where their number is known at run time only.
GROUP = 16


def argmax(values):
    """The first position of the greatest value of each row, and that value.

    One fast maximum reads all values; the position is then looked for in one group only.

    Args:
        values: float32 `[rows, n]`; n static or a multiple of `GROUP`.

    Returns:
        int32 `[rows]` positions and float32 `[rows]` values.
    """
    rows, n = ops.shape(values)
    size = _group_size(n, 1)
    if size == 1:
        return _argmax(values)
    groups = n // size
    values = ops.reshape(values, (-1, groups, size))
    group, greatest = _argmax(ops.max(values, axis=-1))
    kept = ops.reshape(values, (-1, size))
    kept = ops.take(kept, group + offsets(rows, groups)[:, 0], axis=0)  # [rows, size]
    return group * size + _argmax(kept)[0], greatest


def _argmax(values):
    """`argmax` by two plain reductions, because compilers vectorise them."""
    size = ops.shape(values)[-1]
    greatest = ops.max(values, axis=-1, keepdims=True)  # [rows, 1]
    positions = ops.where(values >= greatest, ops.arange(size, dtype="int32"), size - 1)
    return ops.min(positions, axis=-1), greatest[:, 0]


def offsets(batch, size):
    """Where each row begins in a flattened table `[batch, size]`, int32 `[batch, 1]`."""
    return ops.arange(batch, dtype="int32")[:, None] * size


def top_k(values, k):
    """The k greatest values of each row in descending order, and their positions.

    Selecting from a whole vocabulary is slow. The k greatest values lie in the k groups with the
    greatest maxima, so only those groups are selected from; the others are read by a fast maximum.

    Args:
        values: float32 `[rows, n]`; n static, or a multiple of `GROUP` with at least k groups.
        k: Static.

    Returns:
        float32 `[rows, k]` values and int32 `[rows, k]` positions.

    >>> values, positions = top_k(np.array([[3.0, 1.0, 4.0, 1.5]], "float32"), 2)
    >>> np.array(positions).tolist()
    [[2, 0]]
    """
    rows, n = ops.shape(values)
    size = _group_size(n, k)
    if size == 1:
        return ops.top_k(values, k)
    groups = n // size
    values = ops.reshape(values, (-1, groups, size))
    _, best = ops.top_k(ops.max(values, axis=-1), k)  # [rows, k]
    best = ops.reshape(best + offsets(rows, groups), (-1,))  # [rows * k]
    kept = ops.take(ops.reshape(values, (-1, size)), best, axis=0)  # [rows * k, size]
    greatest, inside = ops.top_k(ops.reshape(kept, (-1, k * size)), k)  # [rows, k]
    group = ops.take(best, inside // size + offsets(rows, k), axis=0) - offsets(rows, groups)
    return greatest, group * size + inside % size


def _group_size(n, k):
    """The divisor of n that leaves the fewest values to select from; 1 for no groups."""
    if not isinstance(n, int):
        return GROUP
    divisors = [size for size in range(2, n // k + 1) if n % size == 0]
    cost = {size: n // size + k * size for size in divisors}
    best = min(cost, key=cost.get, default=1)
    # For small rows, one selection is cheaper than a dozen small operations.
    return best if n >= 1024 and cost[best] * 4 < n else 1


def picked(values, places):
    """The value at one place of each row: `[rows, n]` and int32 `[rows]` to `[rows]`."""
    rows, n = ops.shape(values)[0], values.shape[-1]
    return ops.take(ops.reshape(values, (-1,)), places + offsets(rows, n)[:, 0], axis=0)


def relative(logits, temperature=1.0):
    """Logits minus the greatest of each row, clipped at twice `LOWEST`, where exp() is 0.

    Args:
        logits: float32 `[rows, n]`; minus infinity for tokens that must not be drawn.
        temperature: The divisor of the differences, a number or `[rows, 1]`.
    """
    below = (logits - ops.max(logits, axis=-1, keepdims=True)) / temperature
    return ops.maximum(below, 2 * LOWEST)


def threshold(below, weights, wanted):
    """The highest value such that the weights at and above it sum to `wanted` or more.

    Found by bisection, so that the vocabulary need not be sorted. Values that differ only by
    rounding count as equal.

    Args:
        below: float32 `[rows, n]`, at most 0, as `relative` gives.
        weights: float32 `[rows, n]`, at least 0.
        wanted: float32 `[rows]`.

    Returns:
        float32 `[rows]`; `LOWEST` for rows whose weights do not sum to `wanted`.

    >>> below = np.log(np.array([[0.25, 1.0, 0.5]], "float32"))
    >>> found = threshold(below, np.exp(below), np.array([1.2], "float32"))
    >>> (np.array(below >= found[:, None])).tolist()
    [[False, True, True]]
    """

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        reached = ops.sum(ops.where(below >= middle[:, None], weights, 0.0), axis=-1)
        enough = reached >= wanted
        return ops.where(enough, middle, low), ops.where(enough, high, middle)

    low = ops.zeros_like(below[:, 0]) + LOWEST
    return ops.fori_loop(0, _HALVINGS, halve, (low, ops.zeros_like(low)))[0]
