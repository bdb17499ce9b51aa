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
        greatest = ops.max(values, axis=-1, keepdims=True)  # [rows, 1]
        return _first(values >= greatest), greatest[:, 0]
    groups = n // size
    values = ops.reshape(values, (-1, size))  # [rows * groups, size]
    maxima = ops.reshape(ops.max(values, axis=-1), (-1, groups))
    greatest = ops.max(maxima, axis=-1, keepdims=True)  # [rows, 1]
    group = _first(maxima >= greatest)
    kept = ops.take(values, group + ops.arange(rows, dtype="int32") * groups, axis=0)
    return group * size + _first(kept >= greatest), greatest[:, 0]


def _first(found):
    """The first True of each row, by plain operations that compilers vectorise."""
    n = last_axis(found)
    return ops.min(ops.where(found, ops.arange(n, dtype="int32"), n - 1), axis=-1)


def last_axis(x):
    """The size of the last axis, an int where it is static.

    `ops.shape` would add operations for the other axes.
    """
    return ops.shape(x)[-1] if x.shape[-1] is None else x.shape[-1]


def top_sums(so_far, log_probs, k):
    """The k most probable continuations of each example's hypotheses, best first.

    Selecting from all sums is slow. The k greatest lie in the k groups with the greatest maxima, so
    only those groups are added up and selected from; the others are read by a fast maximum.

    Args:
        so_far: float32 `[batch, beams]`, the log-probability of each hypothesis.
        log_probs: float32 `[batch * beams, vocab]`, that of its next token; vocab static, or a
            multiple of `GROUP` with at least k groups.
        k: Static.

    Returns:
        float32 `[batch, k]` sums, and int32 `[batch, k]` each: the beam that is continued and the
        next token.

    >>> log_probs = np.log(np.array([[0.2, 0.8], [0.6, 0.4]], "float32"))
    >>> _, beams, tokens = top_sums(np.log(np.array([[0.3, 0.7]], "float32")), log_probs, 3)
    >>> np.array(beams).tolist(), np.array(tokens).tolist()
    ([[1, 1, 0]], [[0, 1, 1]])
    """
    (batch, beams), vocab = ops.shape(so_far), last_axis(log_probs)
    size = _group_size(vocab, k, beams)
    groups = vocab // size
    values = ops.reshape(log_probs, (-1, size))  # [batch * beams * groups, size]
    maxima = ops.reshape(ops.max(values, axis=-1), (-1, beams, groups)) + so_far[:, :, None]
    sums, best = ops.top_k(ops.reshape(maxima, (-1, beams * groups)), k)  # [batch, k]
    if size > 1:
        example = ops.arange(batch, dtype="int32")[:, None]
        best = ops.reshape(best + example * (beams * groups), (-1,))  # [batch * k]
        kept = ops.take(values, best, axis=0) + ops.take(so_far, best // groups)[:, None]
        sums, inside = ops.top_k(ops.reshape(kept, (-1, k * size)), k)
        best = ops.take(best, inside // size + example * k) - example * (beams * groups)
        best = best * size + inside % size
    beam = best // vocab
    return sums, beam, best - beam * vocab


def _group_size(n, k, rows=1):
    """The divisor of n that leaves the fewest values to select from; 1 for no groups.

    Args:
        n: Values in a row; an int, or a scalar for the fixed size.
        k: Number of values to select from all rows.
        rows: Number of rows to select from at once.
    """
    if not isinstance(n, int):
        return GROUP
    divisors = [size for size in range(1, n * rows // k + 1) if n % size == 0]
    cost = {size: n * rows // size + k * size for size in divisors}
    best = min(cost, key=cost.get)
    # For small rows, one selection is cheaper than a dozen small operations.
    return best if n * rows >= 1024 and cost[best] * 4 < n * rows else 1


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
