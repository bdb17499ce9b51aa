"""The loop that all searches share: it adds one token after another to the hypotheses."""

import numpy as np
from keras import ops, tree

from keras_tfmr.compat import any_rows
from keras_tfmr.decoding.result import DecodingResult, lengths_of
from keras_tfmr.decoding.step import select_rows

# Examples that have ended leave a batch that shrinks as soon as a quarter of it has, and at least
# this many: leaving copies the state.
LEAST_LEAVING = 4


def run(step, state, hypotheses, extend, unfinished, result):
    """Adds tokens until all examples have ended.

    Args:
        step: A `DecodingStep`.
        state: Its first state.
        hypotheses: The hypotheses before the first token: a NamedTuple of nested tensors
            `[batch, ...]`, with everything that belongs to an example. Its field `examples`, int32
            `[batch]`, is the index of each example in the batch that the search began with.
        extend: A function `extend(position, rows, state, hypotheses)` that adds one token and
            returns the next position, state and hypotheses. `position` is an int32 scalar, the
            number of tokens so far; `rows` are 0 to batch - 1, int32 `[batch, 1]`.
        unfinished: A function of the hypotheses that returns which examples may still change, bool
            `[batch]`.
        result: A function of the hypotheses that returns ids `[batch, n, length]`,
            log-probabilities and scores `[batch, n]`.

    Returns:
        DecodingResult.
    """
    state = tree.map_structure(ops.convert_to_tensor, state)
    loop = ops.zeros((), "int32"), state, hypotheses
    if hypotheses.examples.shape[0] == 0:  # JAX cannot take rows of an empty batch
        found = result(hypotheses)
    elif step.shrinks:
        found = _run_shrinking(step, loop, extend, unfinished, result)
    else:
        found = result(_run_until(0, hypotheses.examples, loop, extend, unfinished)[2])
    ids, log_probs, scores = found
    ids = ops.where(log_probs[:, :, None] > -np.inf, ids, 0)  # a missing hypothesis
    return DecodingResult(ids, lengths_of(ids), log_probs, scores)


def _run_until(few, rows, loop, extend, unfinished):
    """Adds tokens until at most `few` examples are unfinished; `rows` are 0 to batch - 1."""
    rows = rows[:, None]  # [batch, 1]
    return ops.while_loop(
        lambda position, state, hypotheses: (
            ops.sum(ops.cast(unfinished(hypotheses), "int32")) > few
        ),
        lambda position, state, hypotheses: extend(position, rows, state, hypotheses),
        loop,
    )


def _run_shrinking(step, loop, extend, unfinished, result):
    """Adds tokens, and takes examples that have ended out of the batch.

    The size of the batch is known at run time only, so that one traced loop serves all sizes.

    Returns:
        What `result` returned for each example of the whole batch when it ended.
    """

    def leave_and_run(position, state, hypotheses, results):
        going_on = ops.nonzero(unfinished(hypotheses))[0]  # [n], the rows that stay
        state = step.select_examples(state, going_on)
        hypotheses = select_rows(hypotheses, going_on)
        count = ops.shape(going_on)[0]
        quarter = count // 4
        # ops.maximum would make them integers of floatx's width.
        leaving = ops.where(quarter > LEAST_LEAVING, quarter, np.int32(LEAST_LEAVING))
        few = ops.where(count > leaving, count - leaving, np.int32(0))
        loop, rows = (position, state, hypotheses), ops.arange(count, dtype="int32")
        position, state, hypotheses = _run_until(few, rows, loop, extend, unfinished)
        results = tree.map_structure(
            lambda old, new: ops.scatter_update(old, hypotheses.examples[:, None], new),
            results,
            result(hypotheses),
        )
        return position, state, hypotheses, results

    loop = tree.map_structure(any_rows, loop)
    _, _, hypotheses = loop
    return ops.while_loop(
        lambda position, state, hypotheses, results: ops.any(unfinished(hypotheses)),
        leave_and_run,
        (*loop, result(hypotheses)),
    )[3]
