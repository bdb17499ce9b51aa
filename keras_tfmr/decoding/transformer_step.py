"""The decoding step of a Transformer: its stack of layers with caches, and how caches move."""

import copy

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr.decoding import checks
from keras_tfmr.decoding.result import lengths_of
from keras_tfmr.decoding.step import DecodingStep, select_rows
from keras_tfmr.layers.cache import CachePosition, causal_position, scatter_indices

# In `ancestors`, the beam of a position that has not been decoded.
NO_BEAM = -1


class TransformerStep(DecodingStep):
    """The `DecodingStep` of a `Decoder` or `CausalDecoder` stack.

    The hypotheses of an example share their caches. When several hypotheses continue the same one,
    its keys and values are not copied: `ancestors` records in which beam the ancestor of each
    hypothesis was at every position, and it attends to those keys only. Reordering the beams
    therefore moves only a table of small integers, and the caches are read once for all of them.

    The state is a dictionary:
        index: int32 scalar, the number of positions decoded.
        cache: A list over layers of keys and values `[batch, kv_heads, length * beams, dim]`, the
            beams of a position side by side.
        ancestors: int32 `[batch * beams, length]`, if there are several beams.

    Args:
        stack: A built `Decoder` or `CausalDecoder`.
        head: The layer that makes logits of its output.
        batch: Number of examples.
        context_cache: What the decoder's `context_cache` gave for its context, or None.
        num_beams: Hypotheses per example.
        max_length: Number of tokens that can be decoded after the longest prompt.
        prompt_length: Number of prompt tokens, for which the caches have room too.

    Raises:
        ValueError: If a number is not positive, or the model has learned fewer positions than
            prompt and decoded tokens take.
    """

    def __init__(
        self, stack, head, batch, context_cache=None, *, num_beams, max_length, prompt_length=0
    ):  # fmt: skip
        self.num_beams = checks.integer("num_beams", num_beams, 1)
        self.max_length = checks.integer("max_length", max_length, 1)
        # The last token of a prompt is the first that a search feeds.
        stack.check_length(max(prompt_length - 1, 0) + max_length)
        self.stack, self.logits, self.prompt_length = stack, head, prompt_length
        self.context = {} if context_cache is None else {"context_cache": context_cache}
        # The number of unfinished examples is known at run time only; JAX needs fixed shapes.
        self.shrinks = keras.backend.backend() != "jax"
        # Read once, before the loop. Otherwise the graph reads each variable in every step, which
        # makes up a fifth of its operations.
        weights = {id(weight): weight for weight in stack.weights + head.weights}
        self.read = [(weight, ops.cast(weight, weight.dtype)) for weight in weights.values()]
        self._prepare(batch)

    def _prepare(self, batch):
        """Values that depend on the number of examples, computed once, before the steps."""
        self.batch = batch
        beams = ops.arange(self.num_beams, dtype="int32")
        self.beams = ops.reshape(ops.zeros((batch, 1), "int32") + beams, (-1, 1))  # [rows, 1]
        self.indices = self._scatter_indices(beams)  # where the first step writes

    def _scatter_indices(self, indices):
        """`scatter_indices` of int32 `[query]` indices in the caches, for all examples."""
        heads = self.stack.layers[0].self_attention.attention.num_kv_heads
        return scatter_indices(self.batch, heads, indices)

    def start(self):
        """The state before the first token."""
        cache = self.stack.cache(self.batch, self.max_length * self.num_beams)
        return self._state(ops.zeros((), "int32"), cache)

    def start_after(self, prompt):
        """The state after as many tokens as the shortest prompt has, minus one.

        A prompt ends at its first padding, and an empty one counts as one token: in a graph, where
        no error can be raised, they then change nothing for the others.

        Args:
            prompt: int32 `[batch, prompt_length]`, padded with 0 at the end; each has at least one
                token.

        Returns:
            The state, the next token of each prompt `[batch]`, and the tokens after it
            `[batch, prompt_length]`.
        """
        length, beams = self.prompt_length, self.num_beams
        real = ops.equal(ops.cumsum(ops.cast(ops.equal(prompt, 0), "int32"), axis=1), 0)
        prompt = ops.where(real, prompt, 0)  # [batch, prompt_length]
        position = causal_position(0, length, length)
        indices = self._scatter_indices(position.positions) if self.shrinks else None
        _, cache = self.stack(
            prompt,
            cache=self.stack.cache(self.batch, length),
            cache_index=position._replace(scatter_indices=indices),
        )

        def widened(cache):  # [batch, kv_heads, prompt_length, dim], of one beam
            _, heads, _, dim = cache.shape
            room = [[0, 0], [0, 0], [0, self.max_length], [0, (beams - 1) * dim]]
            new = (-1, heads, (length + self.max_length) * beams, dim)
            return ops.reshape(ops.pad(cache, room), new)

        # Entries beyond the shortest prompt are overwritten before anything attends to them.
        index = ops.maximum(ops.min(lengths_of(prompt)) - 1, 0)
        state = self._state(index, tree.map_structure(widened, cache))
        room = length - 1 + self.max_length - index
        known = checks.known(room)
        self.max_length = room if known is None else int(known)
        positions = index + np.arange(1 + length, dtype="int32")  # [1 + prompt_length]
        tokens = ops.take(ops.pad(prompt, [[0, 0], [0, 1 + length]]), positions, axis=1)
        return state, tokens[:, 0], tokens[:, 1:]

    def _state(self, index, cache):
        """The state of a cache that holds `index` positions, all in the first beam."""
        state = {"index": index, "cache": cache}
        if self.num_beams > 1:
            positions = np.arange(cache[0][0].shape[2] // self.num_beams, dtype="int32")
            first = ops.where(ops.less(positions, index), np.int32(0), np.int32(NO_BEAM))
            state["ancestors"] = ops.zeros((self.batch * self.num_beams, 1), "int32") + first
        return state

    def next(self, tokens, state):
        """int `[rows]` and a state → float32 `[rows, vocab]` log-probabilities and the next."""
        ids = ops.reshape(tokens, (-1, self.num_beams))  # [batch, beams]
        new_state, position = self._advance(state)
        with keras.StatelessScope(state_mapping=self.read):
            x, new_state["cache"] = self.stack(
                ids, cache=state["cache"], cache_index=position, **self.context
            )  # [batch, beams, d_model]
            logits = self.logits(x)  # [batch, beams, vocab]
        log_probs = ops.log_softmax(logits, axis=-1)
        return ops.reshape(log_probs, (-1, ops.shape(log_probs)[-1])), new_state

    def _advance(self, state):
        """The next state, without its cache, and the `CachePosition` of the step to it."""
        index, beams = state["index"], self.num_beams
        indices = None  # where shapes are fixed, under XLA and on JAX, slices are written in place
        if self.shrinks:
            moved = ops.multiply(index, np.array([0, 0, beams], "int32"))
            indices = self.indices + moved  # [batch * kv_heads * beams, 3]: example, head, index
        if beams == 1:
            position = causal_position(index, 1, ops.shape(state["cache"][0][0])[2])
            return {"index": index + 1}, position._replace(scatter_indices=indices)
        ancestors = state["ancestors"]  # [rows, length]
        length = ops.shape(ancestors)[1]
        here = ops.equal(ops.arange(length, dtype="int32"), index)
        ancestors = ops.where(here, self.beams, ancestors)
        # Each row attends only to what its ancestors wrote to the cache.
        mask = ops.equal(ancestors[:, :, None], np.arange(beams, dtype="int32"))
        mask = ops.reshape(mask, (-1, 1, beams, length * beams))  # [batch, heads, query, key]
        position = CachePosition(index * beams, index[None], mask, indices)
        return {"index": index + 1, "ancestors": ancestors}, position

    def reorder(self, state, rows):
        if self.num_beams == 1:
            return select_rows(state, rows)
        return {**state, "ancestors": ops.take(state["ancestors"], rows, axis=0)}

    def resize(self, state, cache_size):
        length = cache_size + self.prompt_length

        def resized(keys):  # [batch, kv_heads, old length * beams, dim]
            size = length * self.num_beams
            keys = keys[:, :, :size]
            return ops.pad(keys, [[0, 0], [0, 0], [0, size - ops.shape(keys)[2]], [0, 0]])

        state = {**state, "cache": tree.map_structure(resized, state["cache"])}
        if self.num_beams > 1:
            ancestors = state["ancestors"][:, :length]  # [rows, at most length]
            room = [[0, 0], [0, length - ops.shape(ancestors)[1]]]
            state["ancestors"] = ops.pad(ancestors, room, constant_values=NO_BEAM)
        return state

    def select_step(self, examples):
        step = copy.copy(self)
        step._prepare(ops.shape(examples)[0])
        step.context = select_rows(self.context, examples)
        return step

    def select_state(self, state, examples):
        state = {**state, "cache": select_rows(state["cache"], examples)}
        if "ancestors" in state:
            beams = np.arange(self.num_beams, dtype="int32")
            rows = ops.reshape(ops.add(examples[:, None] * self.num_beams, beams), (-1,))
            state["ancestors"] = ops.take(state["ancestors"], rows, axis=0)
        return state


class SSRUStep(TransformerStep):
    """The `DecodingStep` of an `SSRUDecoder`, whose cache is `[batch, 1, beams, d_model]` a layer.

    The arguments are those of `TransformerStep`, without a prompt.
    """

    def _scatter_indices(self, indices):
        return None

    def start(self):
        cache = self.stack.cache(self.batch, self.num_beams)
        return {"index": ops.zeros((), "int32"), "cache": cache}

    def _advance(self, state):
        index = state["index"]
        return {"index": index + 1}, CachePosition(index, index[None], None)

    def reorder(self, state, rows):
        def select(vectors):
            width = vectors.shape[-1]
            chosen = ops.take(ops.reshape(vectors, (-1, width)), rows, axis=0)  # [rows, d_model]
            return ops.reshape(chosen, (-1, 1, self.num_beams, width))

        return {**state, "cache": tree.map_structure(select, state["cache"])}

    resize = DecodingStep.resize  # each token replaces the state of those before it
