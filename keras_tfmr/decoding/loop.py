"""The loop of every search: it adds one token after another to the hypotheses of a batch."""

import numpy as np
from keras import ops, tree

from keras_tfmr.compat import any_rows
from keras_tfmr.decoding.result import DecodingResult, lengths_of
from keras_tfmr.decoding.step import select_rows

# Examples that have ended leave a batch that shrinks as soon as a quarter of it has, and at least
# this many: leaving copies the state.
LEAST_LEAVING = 4


def run(step, state, hypotheses, *, extend, unfinished, result):
    """Adds tokens until all examples have ended.

    Args:
        step: A `DecodingStep`.
        state: Its first state.
        hypotheses: Those before the first token: a NamedTuple of nested tensors `[batch, ...]`. It
            holds all that belongs to an example, and `examples`, int32 `[batch]`: the index of each
            in the batch that the search began with.
        extend: A function `extend(position, rows, state, hypotheses)` that adds one token and
            returns the next position, state and hypotheses. `position` is an int32 scalar, the
            number of tokens before; `rows` are 0 to batch - 1, int32 `[batch, 1]`.
        unfinished: A function of the hypotheses, bool `[batch]`: which examples may still change.
        result: A function of the hypotheses: ids `[batch, n, length]`, log-probabilities and scores
            `[batch, n]`.

    Returns:
        DecodingResult.
    """

    def run_until(few, position, state, hypotheses):
        """Adds tokens until at most `few` examples are unfinished."""
        rows = ops.arange(ops.shape(hypotheses.examples)[0], dtype="int32")[:, None]

        def going(position, state, hypotheses):
            return ops.sum(ops.cast(unfinished(hypotheses), "int32")) > few

        def add_token(position, state, hypotheses):
            return extend(position, rows, state, hypotheses)

        return ops.while_loop(going, add_token, (position, state, hypotheses))

    def run_and_leave(position, state, hypotheses, results):
        """Leaves the examples that have ended behind, and adds tokens until more have."""
        going_on = ops.nonzero(unfinished(hypotheses))[0]  # [n], the rows that stay
        state = step.select_examples(state, going_on)
        hypotheses = select_rows(hypotheses, going_on)
        count = ops.shape(going_on)[0]
        quarter = count // 4
        # ops.maximum would make them integers of floatx's width.
        leaving = ops.where(quarter > LEAST_LEAVING, quarter, np.int32(LEAST_LEAVING))
        few = ops.where(count > leaving, count - leaving, np.int32(0))
        position, state, hypotheses = run_until(few, position, state, hypotheses)
        results = tree.map_structure(
            lambda old, new: ops.scatter_update(old, hypotheses.examples[:, None], new),
            results,
            result(hypotheses),
        )
        return position, state, hypotheses, results

    start = ops.zeros((), "int32")
    state = tree.map_structure(ops.convert_to_tensor, state)
    if hypotheses.examples.shape[0] == 0:  # JAX cannot take rows of an empty batch
        found = result(hypotheses)
    elif step.shrinks:
        *_, found = ops.while_loop(
            lambda position, state, hypotheses, results: ops.any(unfinished(hypotheses)),
            run_and_leave,
            (start, *tree.map_structure(any_rows, (state, hypotheses)), result(hypotheses)),
        )
    else:
        found = result(run_until(0, start, state, hypotheses)[2])
    ids, log_probs, scores = found
    ids = ops.where(log_probs[:, :, None] > -np.inf, ids, 0)  # a missing hypothesis
    return DecodingResult(ids, lengths_of(ids), log_probs, scores)
