"""One more token of a model: with caches, or by the model called on all tokens so far."""

import contextlib
import copy

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr.decoding.step import DecodingStep, select_rows
from keras_tfmr.layers.cache import shortened
from keras_tfmr.models.prompts import shortest


class CachedStep(DecodingStep):
    """The `DecodingStep` of a `DerivedStep`: one token after those in caches.

    The state has `length`, the number of tokens in the caches; `caches`, of each row; and
    `examples`, what the step reads of each example.

    Args:
        derived: The `DerivedStep`.
        vocab_size: The number of token IDs.
        num_beams: The number of hypotheses of an example.
        max_length: The number of tokens that can be decoded.
        vectors: The position vectors that `derived.encode` gave.
        shrinks: Whether shapes may change.
        bounded: Whether no logit's exp() can overflow.
    """

    def __init__(self, derived, vocab_size, num_beams, max_length, vectors, shrinks, bounded):
        self.bounded = bounded
        self.derived, self.vocab_size, self.vectors = derived, vocab_size, vectors
        self.num_beams, self.max_length, self.shrinks = num_beams, max_length, shrinks
        self.variables = read_once(derived.step.variables)

    def next(self, tokens, state):
        logits, normaliser, state = self.unnormalised(tokens, state)
        return logits - normaliser, state

    def unnormalised(self, tokens, state):
        logits, state = self.outputs(tokens, state)
        return logits, log_of_sum(logits, self.bounded), state

    def outputs(self, tokens, state):
        """What the model gives for one more token of each row, float32 `[rows, vocab]`; the state.

        Args:
            tokens, state: As for `next`.
        """
        length, caches, examples = state["length"], state["caches"], state["examples"]
        with self.variables:
            y, caches = self.derived.step(
                [ops.expand_dims(tokens, 1), length, caches, examples, self.vectors]
            )
        rows = -1 if tokens.shape[0] is None else tokens.shape[0]
        y = ops.cast(ops.reshape(y, (rows, self.vocab_size)), "float32")
        return y, {**state, "length": length + 1, "caches": caches}

    def after(self, prompt, state, reading):
        """The step and the state after as many tokens as the shortest prompt has, minus one.

        Caches of fixed shapes read all prompts whole, and forget what comes later: their reading
        has one shape, however long the shortest prompt is.

        Args:
            prompt: int32 `[batch, length]`, padded with 0 at the end.
            state: The state before the first token.
            reading: The `DerivedStep` of one hypothesis for each example.
        """
        index, length = shortest(prompt) - 1, ops.shape(prompt)[1]
        whole = not self.shrinks and not isinstance(index, int)
        count = length - 1 if whole else index  # the tokens that are read
        if isinstance(count, int) and count == 0:
            return self, state
        room = None if self.shrinks else self.max_length
        caches = reading.empty_caches(ops.shape(prompt)[0], room)
        start = ops.zeros((), "int32")
        inputs = [prompt[:, :count], start, caches, state["examples"], self.vectors]
        with self.variables:
            _, caches = reading.step(inputs)
        index = ops.convert_to_tensor(index, "int32")
        if whole:
            caches = shortened(caches, index)
            if caches is None:  # caches of another kind hold the tokens behind `index` too
                return self, state
        if self.num_beams > 1:
            caches = tree.map_structure(
                lambda x: ops.repeat(x, self.num_beams, axis=0) if len(x.shape) else x, caches
            )
        step = copy.copy(self)
        step.max_length = self.max_length - index
        return step, {**state, "length": index, "caches": reading.of_any_size(caches)}

    def reorder(self, state, rows):
        return {**state, "caches": super().reorder(state["caches"], rows)}

    def select_examples(self, state, examples):
        beams = np.arange(self.num_beams, dtype="int32")
        rows = ops.reshape(examples[:, None] * self.num_beams + beams, (-1,))
        return {
            **state,
            "caches": select_rows(state["caches"], rows),
            "examples": select_rows(state["examples"], examples),
        }


def log_of_sum(logits, bounded):
    """The logarithm of the sum of exp(logits) `[rows, vocab]`: `[rows, 1]`.

    Args:
        logits: The logits.
        bounded: Whether no exp() overflows, so that their sum needs no maximum.
    """
    if bounded:
        return ops.log(ops.sum(ops.exp(logits), axis=-1, keepdims=True))
    return ops.logsumexp(logits, axis=-1, keepdims=True)


def read_once(variables):
    """A scope in which these variables have the values that they have now.

    On TensorFlow, each step of a loop would read each of them again.
    """
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    # Keras's own conversion gives a variable back, unread.
    values = [(variable, tf.convert_to_tensor(variable.value)) for variable in variables]
    return keras.StatelessScope(values)


class WholeSequenceStep(DecodingStep):
    """A `DecodingStep` that calls the model on all tokens so far.

    It decodes every model, on every backend, and is what `CachedStep` must equal. The time of a
    search grows with the square of its length.

    Args:
        model: A `NextTokenModel`.
        num_beams: The number of hypotheses of an example.
        max_length: The number of tokens that can be decoded.

    The state is `ids` int32 `[rows, length]`, the tokens so far with padding behind them; `length`,
    their number; and `sources`, the other inputs of each row.
    """

    def __init__(self, model, num_beams, max_length):
        self.model, self.vocab_size = model, model.vocab_size
        self.num_beams, self.max_length = num_beams, max_length

    def start(self, sources, batch):
        """The state before the first token of `batch` examples."""
        ids = ops.zeros((batch * self.num_beams, self.max_length), "int32")
        sources = [ops.repeat(source, self.num_beams, axis=0) for source in sources]
        return {"ids": ids, "length": ops.zeros((), "int32"), "sources": sources}

    def after(self, prompt, state, reading):
        """As `CachedStep.after`; the prompts are the first tokens of the state."""
        index, length = shortest(prompt) - 1, ops.shape(prompt)[1]
        ids = ops.repeat(prompt, self.num_beams, axis=0)  # [rows, length]
        ids = ops.pad(ids, [[0, 0], [0, ops.shape(state["ids"])[1] - length]])
        step, index = copy.copy(self), ops.convert_to_tensor(index, "int32")
        step.max_length = self.max_length - index
        return step, {**state, "ids": ids, "length": index}

    def next(self, tokens, state):
        ids, length = state["ids"], state["length"]
        here = ops.equal(ops.arange(ops.shape(ids)[1], dtype="int32"), length)
        ids = ops.where(here, tokens[:, None], ids)  # [rows, length]
        inputs = list(state["sources"])
        inputs.insert(self.model.target_place, ids)
        outputs = self.model(tree.pack_sequence_as(self.model.input, inputs))
        logits = tree.flatten(outputs)[self.model.logits_place]  # [rows, length, vocab]
        logits = ops.cast(ops.take(logits, length, axis=1), "float32")
        return ops.log_softmax(logits, axis=-1), {**state, "ids": ids, "length": length + 1}
