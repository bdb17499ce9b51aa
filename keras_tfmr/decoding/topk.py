"""Selection of the most probable continuations, in few passes over the vocabulary."""

from keras import ops

from keras_tfmr.compat import take


def last_axis(x):
    """The size of the last axis, an int where it is static.

    `ops.shape` would add operations for the other axes.
    """
    return ops.shape(x)[-1] if x.shape[-1] is None else x.shape[-1]


def top_sums(so_far, log_probs, k, example):
    """The k most probable continuations of each example's hypotheses, best first.

    Selecting from all sums is slow. The k greatest lie in the k groups with the greatest maxima, so
    only those groups are added up and selected from; the others are read by a fast maximum.

    Args:
        so_far: float32 `[batch, beams]`, the log-probability of each hypothesis.
        log_probs: float32 `[batch * beams, vocab]`, that of its next token; vocab static for
            groups.
        k: Static.
        example: int32 `[batch, 1]`, 0 to batch - 1.

    Returns:
        float32 `[batch, k]` sums, and int32 `[batch, k]` each: the hypothesis that is continued, a
        row of `log_probs`, and the next token.

    >>> log_probs = np.log(np.array([[0.2, 0.8], [0.6, 0.4]], "float32"))
    >>> so_far, example = np.log(np.array([[0.3, 0.7]], "float32")), np.array([[0]], "int32")
    >>> _, rows, tokens = top_sums(so_far, log_probs, 3, example)
    >>> np.array(rows).tolist(), np.array(tokens).tolist()
    ([[1, 1, 0]], [[0, 1, 1]])
    """
    beams, vocab = so_far.shape[1], last_axis(log_probs)
    size = _group_size(vocab, k, beams)
    groups = vocab // size
    values = ops.reshape(log_probs, (-1, size))  # [batch * beams * groups, size]
    maxima = values if size == 1 else ops.max(values, axis=-1)
    maxima = ops.reshape(maxima, (-1, beams, groups)) + so_far[:, :, None]
    sums, best = ops.top_k(ops.reshape(maxima, (-1, beams * groups)), k)  # [batch, k]
    best = best + example * (beams * groups)  # a row of `values`
    tokens = 0
    if size > 1:
        kept = take(values, best) + take(ops.reshape(so_far, (-1,)), best // groups)[:, :, None]
        sums, inside = ops.top_k(ops.reshape(kept, (-1, k * size)), k)  # [batch, k]
        best = take(ops.reshape(best, (-1,)), inside // size + example * k)
        tokens = inside % size
    rows = best // groups
    return sums, rows, (best - rows * groups) * size + tokens


def most_probable(log_probs):
    """The best token int32 `[rows]` of `[rows, vocab]`, and its log-probability `[rows]`."""
    best, tokens = ops.top_k(log_probs, 1)  # [rows, 1], by a maximum and where it is
    return tokens[:, 0], best[:, 0]


def _group_size(n, k, rows):
    """The divisor of n that leaves the fewest values to select from; 1 for no groups.

    Args:
        n: Values in a row, an int; one known at run time only has no groups.
        k: Number of values to select from all rows.
        rows: Number of rows to select from at once.
    """
    if not isinstance(n, int):
        return 1
    divisors = [size for size in range(1, n * rows // k + 1) if n % size == 0]
    cost = {size: n * rows // size + k * size for size in divisors}
    best = min(cost, key=cost.get)
    # For small rows, one selection is cheaper than a dozen small operations.
    return best if n * rows >= 1024 and cost[best] * 4 < n * rows else 1
