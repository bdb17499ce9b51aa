"""The loop of a search, which adds one token after the other to the hypotheses of a batch.

What enters is a `DecodingStep` with its first state, and `Constraints`; what leaves is a
`DecodingResult`. What a hypothesis is, and how a token is added to it, `searches` says.
"""

import copy

import numpy as np
from keras import ops, tree

from keras_tfmr.compat import take
from keras_tfmr.decoding.result import DecodingResult, lengths_of
from keras_tfmr.decoding.step import select_rows

# While the batch shrinks, examples that have ended leave it as soon as a quarter of it has, but at
# least so many: to leave costs a copy of the state.
LEAST_LEAVING = 4


class Search:
    """A loop that adds tokens to the hypotheses of a batch until all examples have ended.

    The hypotheses are nested tensors `[batch, ...]`. A subclass defines them, and
        `start()`: those before the first token;
        `extend(position, state, hypotheses)`: all three after one more token;
        `unfinished(hypotheses)`: bool `[batch]`, which examples may still change;
        `result(hypotheses)`: ids `[batch, n, length]`, log-probabilities and scores `[batch, n]`.

    Args:
        step: A `DecodingStep`.
        constraints: The `Constraints`.
    """

    def __init__(self, step, constraints):
        self.step, self.constraints = step, constraints
        self.max_length = constraints.config.max_length
        self.columns = np.arange(self.max_length, dtype="int32")
        # The places of the batch's examples in the batch that the search began with, [batch].
        self.examples = ops.arange(ops.shape(constraints.bos_ids)[0], dtype="int32")

    def decode(self, state):
        """The `DecodingResult` of the search that starts with this state."""
        state = tree.map_structure(ops.convert_to_tensor, state)
        loop = ops.zeros((), "int32"), state, self.start()
        if self.examples.shape[0] == 0:  # JAX cannot take rows of an empty batch
            result = self.result(loop[2])
        elif self.step.shrinks:
            result = self._run_shrinking(*loop)
        else:
            result = self.result(self._run(*loop)[2])
        ids, log_probs, scores = result
        ids = ops.where(log_probs[:, :, None] > -np.inf, ids, 0)  # a missing hypothesis
        return DecodingResult(ids, lengths_of(ids), log_probs, scores)

    def _run(self, *loop, few=0):
        """Adds tokens until at most `few` examples are unfinished."""

        def going(position, state, hypotheses):
            return ops.sum(ops.cast(self.unfinished(hypotheses), "int32")) > few

        return ops.while_loop(going, self.extend, loop)

    def _run_shrinking(self, position, state, hypotheses):
        """Runs of some steps, each for the examples that have not ended.

        The size of the batch is known at run time only, so that one traced loop serves all.
        """

        def run(examples, position, state, hypotheses, results):
            left, count = self.of(examples), ops.shape(examples)[0]
            quarter = count // 4
            # ops.maximum would make them integers of floatx's width.
            leaving = ops.where(quarter > LEAST_LEAVING, quarter, np.int32(LEAST_LEAVING))
            few = ops.where(count > leaving, count - leaving, np.int32(0))
            position, state, hypotheses = left._run(position, state, hypotheses, few=few)
            results = tree.map_structure(
                lambda old, new: ops.scatter_update(old, examples[:, None], new),
                results,
                left.result(hypotheses),
            )
            going_on = ops.nonzero(left.unfinished(hypotheses))[0]  # places in `examples`
            state = left.step.select_state(state, going_on)
            hypotheses = select_rows(hypotheses, going_on)
            return take(examples, going_on), position, state, hypotheses, results

        examples = ops.nonzero(self.unfinished(hypotheses))[0]
        state = self.step.select_state(state, examples)
        first = position, state, select_rows(hypotheses, examples)
        loop = (examples, *first, self.result(hypotheses))
        return ops.while_loop(lambda left, *_: ops.shape(left)[0] > 0, run, loop)[-1]

    def of(self, examples):
        """This search for some of the examples of the whole batch, int32 `[n]`.

        A copy whose step, constraints and other values by example are those of the examples alone:
        the loop runs on it as if the others had never been in the batch.
        """
        part = copy.copy(self)
        part.step = self.step.select_step(examples)
        part.constraints = self.constraints.select(examples)
        part.examples = examples
        return part
