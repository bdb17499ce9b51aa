"""The decoding step of a Transformer: a stack of layers with caches."""

import copy

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr.decoding.search import DecodingStep, rows_of, select_rows
from keras_tfmr.layers.cache import StepPosition, following, places
from keras_tfmr.layers.masking import MASKED, AttentionMask

# The slot of a beam at positions that have not been decoded.
NO_SLOT = -1


class CachedStep(DecodingStep):
    """The `DecodingStep` of a `Decoder` or `DecoderOnly` stack.

    The hypotheses of an example share their caches. When several hypotheses continue the same one,
    its keys and values are not copied: `ancestry` records which slot of the beam each hypothesis
    had at every position, and it attends to those keys only. Reordering the beam therefore moves
    only a table of small integers, and the caches are read once for all beams of an example.

    Args:
        stack: A built `Decoder` or `DecoderOnly`.
        logits: The layer that makes logits of its output.
        batch: Number of examples.
        memory: What the decoder's `memory` gave for its context, a list over layers, or None.
        num_beams: Hypotheses per example.
        max_length: Number of tokens that can be decoded.
        prompt_length: Number of prompt tokens, for which the caches have room too.
        shortlist: A `Shortlist` whose places take the part of token ids, or None.
    """

    def __init__(
        self, stack, logits, batch, memory=None, *, num_beams, max_length, prompt_length=0,
        shortlist=None,
    ):  # fmt: skip
        self.stack, self.logits, self.memory = stack, logits, memory
        self.prompt_length, self.max_length = prompt_length, max_length
        self.num_beams = num_beams
        # The number of unfinished examples is known at run time only; JAX needs fixed shapes.
        self.shrinks = keras.backend.backend() != "jax"
        self._set_batch(batch)
        self.packed = stack.pack(prompt_length + max_length)
        self.shortlist = shortlist
        self.packed_logits = logits.pack(
            batch * num_beams, None if shortlist is None else shortlist.token_ids
        )
        # Read once, before the loop. Otherwise the graph reads each variable in every step, which
        # makes up a fifth of its operations.
        weights = {id(weight): weight for weight in stack.weights + logits.weights}
        self.read = [(weight, ops.cast(weight, weight.dtype)) for weight in weights.values()]

    def _set_batch(self, batch):
        """What depends on the number of examples; computed once, before the steps."""
        self.batch = batch
        slots = ops.arange(self.num_beams, dtype="int32")
        # The slot of each row, and where the first step writes.
        self.slots = ops.reshape(ops.zeros((batch, 1), "int32") + slots, (-1, 1))  # [rows, 1]
        self.places = self._places(slots)

    def _places(self, positions):
        """`places` of int32 `[query]` positions for all examples."""
        heads = self.stack.layers[0].self_attention.attention.num_kv_heads
        return places(self.batch, heads, positions)

    def start(self):
        """The state before the first token."""
        size = (self.prompt_length + self.max_length) * self.num_beams
        return self._state(ops.zeros((), "int32"), self.stack.caches(self.batch, size))

    def start_after(self, prompt):
        """The state after as many tokens as the shortest prompt has, minus one.

        Args:
            prompt: int32 `[batch, prompt_length]`, padded with 0 at the end; each has at
                least one token.

        Returns:
            The state, the next token of each prompt `[batch]`, and the tokens after it
            `[batch, prompt_length]`.
        """
        at = following(0, self.prompt_length, self.prompt_length)
        if self.shrinks:
            at = at._replace(places=self._places(ops.arange(self.prompt_length, dtype="int32")))
        caches = self.stack.caches(self.batch, self.prompt_length)
        _, caches = self.stack.step(ops.reshape(prompt, (-1,)), caches, at, self.packed)
        # Entries beyond the shortest prompt are overwritten before anything attends to them.
        index = ops.min(ops.sum(ops.cast(prompt != 0, "int32"), axis=1)) - 1
        state = self._state(index, tree.map_structure(self._spread, caches))
        positions = index + np.arange(1 + self.prompt_length, dtype="int32")  # [1 + prompt_length]
        tokens = ops.take(ops.pad(prompt, [[0, 0], [0, 1 + self.prompt_length]]), positions, axis=1)
        return state, tokens[:, 0], tokens[:, 1:]

    def _state(self, index, caches):
        """The state of caches that hold `index` positions, all in slot 0 of the beam."""
        state = {"index": index, "caches": caches}
        if self.num_beams > 1:
            held = ops.less(
                np.arange(caches[0][0].shape[2] // self.num_beams, dtype="int32"), index
            )
            rows = ops.zeros((self.batch * self.num_beams, 1), "int32")
            state["ancestry"] = rows + ops.where(held, 0, NO_SLOT)  # [rows, length]
        return state

    def _spread(self, cache):
        """A cache `[batch, kv_heads, prompt_length, dim]` of one, widened to all beams."""
        _, heads, length, dim = cache.shape
        length += self.max_length
        new = [[0, 0], [0, 0], [0, self.max_length], [0, (self.num_beams - 1) * dim]]
        return ops.reshape(ops.pad(cache, new), (-1, heads, length * self.num_beams, dim))

    def next(self, tokens, state):
        """int `[rows]` and a state → float32 `[rows, vocab]` log-probabilities and the next."""
        listed = self.shortlist
        ids = tokens if listed is None else ops.take(listed.token_ids, tokens)
        index = state["index"]
        new_state = {"index": index + 1}
        if self.num_beams == 1:
            at = following(index, 1, ops.shape(state["caches"][0][0])[2])
        else:
            new_state["ancestry"] = self._ancestry(state["ancestry"], index)
            at = StepPosition(
                index, self.num_beams, self.num_beams, self._mask(new_state["ancestry"])
            )
        if self.shrinks:  # under XLA and on JAX, caches are updated in place, slice by slice
            moved = ops.multiply(index, np.array([0, 0, self.num_beams], "int32"))
            at = at._replace(places=self.places + moved)
        with keras.StatelessScope(state_mapping=self.read):
            x, new_state["caches"] = self.stack.step(
                ids, state["caches"], at, self.packed, self.memory
            )
            logits = self.logits(x, packed=self.packed_logits)
        if listed is not None:
            if self.packed_logits is None:  # quantised
                logits = ops.take(logits, listed.token_ids, axis=-1)
            logits = listed.restrict(logits, self.num_beams)
        return ops.log_softmax(logits, axis=-1), new_state

    def _ancestry(self, ancestry, index):
        """The ancestry `[rows, length]` with each row's own slot at the position of this step."""
        here = ops.equal(ops.arange(ops.shape(ancestry)[1], dtype="int32"), index)
        return ops.where(here, self.slots, ancestry)

    def _mask(self, ancestry):
        """The mask by which each row attends only to what its ancestors wrote to the cache.

        Its bias is `[batch, 1, beams, room * beams]`.
        """
        slots = np.arange(self.num_beams, dtype="int32")
        bias = ops.where(ops.equal(ancestry[:, :, None], slots), 0.0, MASKED)
        shape = (-1, 1, self.num_beams, ops.shape(ancestry)[1] * self.num_beams)
        return AttentionMask(ops.reshape(bias, shape))

    def reorder(self, state, rows):
        if self.num_beams == 1:
            return select_rows(state, rows)
        return {**state, "ancestry": ops.take(state["ancestry"], rows, axis=0)}

    def resize(self, state, cache_size):
        cache_size += self.prompt_length
        caches = tree.map_structure(
            lambda cache: _resized(cache, 2, cache_size * self.num_beams), state["caches"]
        )
        state = {**state, "caches": caches}
        if self.num_beams > 1:
            state["ancestry"] = _resized(state["ancestry"], 1, cache_size, NO_SLOT)
        return state

    def select_step(self, examples):
        step = copy.copy(self)
        step._set_batch(ops.shape(examples)[0])
        step.memory = select_rows(self.memory, examples)
        if self.shortlist is not None:
            step.shortlist = self.shortlist.take(examples)
        return step

    def select_state(self, state, examples):
        state = {**state, "caches": select_rows(state["caches"], examples)}
        if self.num_beams > 1:
            rows = rows_of(examples, self.num_beams)
            state["ancestry"] = ops.take(state["ancestry"], rows, axis=0)
        return state


def _resized(x, axis, size, value=0):
    """`x` cut or padded to `size` along an axis."""
    x = x[:, :size] if axis == 1 else x[:, :, :size]
    width = [[0, 0]] * len(x.shape)
    width[axis] = [0, size - ops.shape(x)[axis]]
    return ops.pad(x, width, constant_values=value)
