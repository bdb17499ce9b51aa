"""The decoding step of a Transformer: the call of its stack of layers, with caches."""

import copy

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr.decoding.search import DecodingStep, rows_of, select_rows
from keras_tfmr.layers.cache import CachePosition, causal_position, scatter_indices

# The slot of a beam at positions that have not been decoded.
NO_SLOT = -1


class CachedStep(DecodingStep):
    """The `DecodingStep` of a `Decoder` or `CausalDecoder` stack.

    The hypotheses of an example share their caches. When several hypotheses continue the same one,
    its keys and values are not copied: `ancestry` records which slot of the beam each hypothesis
    had at every position, and it attends to those keys only. Reordering the beam therefore moves
    only a table of small integers, and the caches are read once for all beams of an example.

    Args:
        stack: A built `Decoder` or `CausalDecoder`.
        head: The layer that makes logits of its output.
        batch: Number of examples.
        context_cache: What the decoder's `context_cache` gave for its context, or None.
        num_beams: Hypotheses per example.
        max_length: Number of tokens that can be decoded.
        prompt_length: Number of prompt tokens, for which the caches have room too.
        shortlist: A `Shortlist` whose places take the part of token ids, or None.
    """

    def __init__(
        self, stack, head, batch, context_cache=None, *, num_beams, max_length, prompt_length=0,
        shortlist=None,
    ):  # fmt: skip
        self.stack, self.context_cache = stack, context_cache
        self.prompt_length, self.max_length = prompt_length, max_length
        self.num_beams, self.shortlist = num_beams, shortlist
        # The number of unfinished examples is known at run time only; JAX needs fixed shapes.
        self.shrinks = keras.backend.backend() != "jax"
        self.logits = head if shortlist is None else head.slice(shortlist.token_ids)
        self._set_batch(batch)
        # Read once, before the loop. Otherwise the graph reads each variable in every step, which
        # makes up a fifth of its operations.
        weights = {id(weight): weight for weight in stack.weights + head.weights}
        self.read = [(weight, ops.cast(weight, weight.dtype)) for weight in weights.values()]

    def _set_batch(self, batch):
        """What depends on the number of examples; computed once, before the steps."""
        self.batch = batch
        slots = ops.arange(self.num_beams, dtype="int32")
        # The slot of each row, and where the first step writes.
        self.slots = ops.reshape(ops.zeros((batch, 1), "int32") + slots, (-1, 1))  # [rows, 1]
        self.indices = self._scatter_indices(slots)

    def _scatter_indices(self, places):
        """`scatter_indices` of int32 `[query]` places for all examples."""
        heads = self.stack.layers[0].self_attention.attention.num_kv_heads
        return scatter_indices(self.batch, heads, places)

    def start(self):
        """The state before the first token."""
        places = (self.prompt_length + self.max_length) * self.num_beams
        return self._state(ops.zeros((), "int32"), self.stack.cache(self.batch, places))

    def start_after(self, prompt):
        """The state after as many tokens as the shortest prompt has, minus one.

        Args:
            prompt: int32 `[batch, prompt_length]`, padded with 0 at the end; each has at least one
                token.

        Returns:
            The state, the next token of each prompt `[batch]`, and the tokens after it
            `[batch, prompt_length]`.
        """
        length = self.prompt_length
        position = causal_position(0, length, length)
        indices = self._scatter_indices(position.positions) if self.shrinks else None
        _, cache = self.stack(
            prompt,
            cache=self.stack.cache(self.batch, length),
            cache_index=position._replace(scatter_indices=indices),
        )
        # Entries beyond the shortest prompt are overwritten before anything attends to them.
        index = ops.min(ops.sum(ops.cast(prompt != 0, "int32"), axis=1)) - 1
        state = self._state(index, tree.map_structure(self._spread, cache))
        positions = index + np.arange(1 + length, dtype="int32")  # [1 + prompt_length]
        tokens = ops.take(ops.pad(prompt, [[0, 0], [0, 1 + length]]), positions, axis=1)
        return state, tokens[:, 0], tokens[:, 1:]

    def _state(self, index, cache):
        """The state of a cache that holds `index` positions, all in slot 0 of the beam."""
        state = {"index": index, "cache": cache}
        if self.num_beams > 1:
            places = np.arange(cache[0][0].shape[2] // self.num_beams, dtype="int32")
            held = ops.less(places, index)
            rows = ops.zeros((self.batch * self.num_beams, 1), "int32")
            state["ancestry"] = rows + ops.where(held, np.int32(0), np.int32(NO_SLOT))
        return state

    def _spread(self, cache):
        """A cache `[batch, kv_heads, prompt, dim]` of one hypothesis, widened to all beams."""
        _, heads, length, dim = cache.shape
        length += self.max_length
        new = [[0, 0], [0, 0], [0, self.max_length], [0, (self.num_beams - 1) * dim]]
        return ops.reshape(ops.pad(cache, new), (-1, heads, length * self.num_beams, dim))

    def next(self, tokens, state):
        """int `[rows]` and a state → float32 `[rows, vocab]` log-probabilities and the next."""
        listed = self.shortlist
        ids = tokens if listed is None else ops.take(listed.token_ids, tokens)
        ids = ops.reshape(ids, (-1, self.num_beams))  # the beams of an example side by side
        new_state, position = self._advance(state)
        context = {} if self.context_cache is None else {"context_cache": self.context_cache}
        with keras.StatelessScope(state_mapping=self.read):
            x, new_state["cache"] = self.stack(
                ids, cache=state["cache"], cache_index=position, **context
            )  # [batch, beams, d_model]
            logits = self.logits(x)  # [batch, beams, vocab]
        if listed is not None:
            logits = listed.restrict(logits)
        log_probs = ops.log_softmax(logits, axis=-1)
        return ops.reshape(log_probs, (-1, ops.shape(log_probs)[-1])), new_state

    def _advance(self, state):
        """The next state, without its cache, and the `CachePosition` of the step to it."""
        index = state["index"]
        indices = None  # where shapes are fixed, under XLA and on JAX, slices are written in place
        if self.shrinks:
            moved = ops.multiply(index, np.array([0, 0, self.num_beams], "int32"))
            indices = self.indices + moved  # example, head, place
        if self.num_beams == 1:
            position = causal_position(index, 1, ops.shape(state["cache"][0][0])[2])
            return {"index": index + 1}, position._replace(scatter_indices=indices)
        ancestry = state["ancestry"]  # [rows, length]
        here = ops.equal(ops.arange(ops.shape(ancestry)[1], dtype="int32"), index)
        ancestry = ops.where(here, self.slots, ancestry)
        # Each row attends only to what its ancestors wrote to the cache.
        mask = ops.equal(ancestry[:, :, None], np.arange(self.num_beams, dtype="int32"))
        places = ops.shape(ancestry)[1] * self.num_beams
        mask = ops.reshape(mask, (-1, 1, self.num_beams, places))  # [batch, 1, beams, places]
        position = CachePosition(index * self.num_beams, index[None], mask, indices)
        return {"index": index + 1, "ancestry": ancestry}, position

    def reorder(self, state, rows):
        if self.num_beams == 1:
            return select_rows(state, rows)
        return {**state, "ancestry": ops.take(state["ancestry"], rows, axis=0)}

    def resize(self, state, cache_size):
        cache_size += self.prompt_length
        cache = tree.map_structure(
            lambda cache: _resized(cache, 2, cache_size * self.num_beams), state["cache"]
        )
        state = {**state, "cache": cache}
        if self.num_beams > 1:
            state["ancestry"] = _resized(state["ancestry"], 1, cache_size, NO_SLOT)
        return state

    def select_step(self, examples):
        step = copy.copy(self)
        step._set_batch(ops.shape(examples)[0])
        step.context_cache = select_rows(self.context_cache, examples)
        if self.shortlist is not None:
            step.shortlist = self.shortlist.take(examples)
        return step

    def select_state(self, state, examples):
        state = {**state, "cache": select_rows(state["cache"], examples)}
        if "ancestry" in state:
            rows = rows_of(examples, self.num_beams)
            state["ancestry"] = ops.take(state["ancestry"], rows, axis=0)
        return state


class StateStep(CachedStep):
    """The `DecodingStep` of an `SSRUDecoder`: a vector for each hypothesis and layer.

    The arguments are those of `CachedStep`, without a prompt.
    """

    def _scatter_indices(self, places):
        return None

    def start(self):
        cache = self.stack.cache(self.batch, self.num_beams)
        return {"index": ops.zeros((), "int32"), "cache": cache}

    def _advance(self, state):
        index = state["index"]
        return {"index": index + 1}, CachePosition(index, index[None], None)

    def reorder(self, state, rows):
        def select(vectors):  # [batch, 1, beams, d_model]
            width = vectors.shape[-1]
            chosen = ops.take(ops.reshape(vectors, (-1, width)), rows, axis=0)
            return ops.reshape(chosen, (-1, 1, self.num_beams, width))

        return {**state, "cache": tree.map_structure(select, state["cache"])}

    def resize(self, state, cache_size):
        return state


def _resized(x, axis, size, value=0):
    """`x` cut or padded to `size` along an axis."""
    x = x[:, :size] if axis == 1 else x[:, :, :size]
    width = [[0, 0]] * len(x.shape)
    width[axis] = [0, size - ops.shape(x)[axis]]
    return ops.pad(x, width, constant_values=value)
