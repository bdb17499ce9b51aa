"""The decoding step of a Transformer: a stack of layers with caches."""

import copy

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr.decoding.constraints import rows_of
from keras_tfmr.decoding.step import DecodingStep, take_rows
from keras_tfmr.layers.cache import StepPosition, following, places
from keras_tfmr.layers.masking import MASKED, AttentionMask

# The slot of a beam at positions that have not been decoded.
NO_SLOT = -1

# The first room of the caches under XLA. Up to this length, attending to unfilled positions costs
# less than another loop, which takes seconds to compile.
FIRST_ROOM = 64


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
        beams: Hypotheses per example.
        max_length: Number of tokens that can be decoded.
        compiled: Whether XLA will compile the steps. Caches are then updated in place, by an
            operation that a server without XLA refuses.
        before: Number of prompt tokens, for which the caches have room too.
        shortlist: A `Shortlist` whose places take the part of token ids, or None.
    """

    def __init__(
        self, stack, logits, batch, memory=None, *, beams, max_length, compiled, before=0,
        shortlist=None,
    ):  # fmt: skip
        self.stack, self.logits, self.memory = stack, logits, memory
        self.before, self.max_length = before, max_length
        self.beams, self.compiled = beams, compiled
        self._set_batch(batch)
        # The number of unfinished examples is known at run time only; XLA needs fixed shapes.
        self.shrinks = not compiled and keras.backend.backend() != "jax"
        self.packed = stack.pack(before + max_length)
        self.shortlist = shortlist
        self.packed_logits = logits.pack(
            batch * beams, None if shortlist is None else shortlist.token_ids
        )
        # Read once, before the loop. Otherwise the graph reads each variable in every step, which
        # makes up a fifth of its operations.
        weights = {id(weight): weight for weight in stack.weights + logits.weights}
        self.read = [(weight, ops.cast(weight, weight.dtype)) for weight in weights.values()]

    def _set_batch(self, batch):
        """What depends on the number of examples; computed once, before the steps."""
        self.batch = batch
        slots = ops.arange(self.beams, dtype="int32")
        # The slot of each row, and where the first step writes.
        self.slots = ops.reshape(ops.zeros((batch, 1), "int32") + slots, (-1, 1))  # [rows, 1]
        self.places = None if self.compiled else self._places(slots)

    def _places(self, positions):
        """`places` of int32 `[query]` positions for all examples."""
        heads = self.stack.layers[0].self_attention.attention.num_kv_heads
        return places(self.batch, heads, positions)

    @property
    def rooms(self):
        """Lengths for which caches are allocated one after the other, up to `max_length`."""
        rooms = [FIRST_ROOM]
        while rooms[-1] < self.max_length:
            rooms.append(2 * rooms[-1])
        return (*rooms[:-1], self.max_length)

    def start(self):
        """The state before the first token."""
        size = (self.before + self.max_length) * self.beams
        return self._state(ops.zeros((), "int32"), self.stack.caches(self.batch, size))

    def start_after(self, prompt):
        """The state after as many tokens as the shortest prompt has, minus one.

        Args:
            prompt: int32 `[batch, before]`, padded with 0 at the end; each has at least one token.

        Returns:
            The state, the next token of each prompt `[batch]`, and the tokens after it
            `[batch, before]`.
        """
        at = following(0, self.before, self.before)
        if not self.compiled:
            at = at._replace(places=self._places(ops.arange(self.before, dtype="int32")))
        caches = self.stack.caches(self.batch, self.before)
        _, caches = self.stack.step(ops.reshape(prompt, (-1,)), caches, at, self.packed)
        # Entries beyond the shortest prompt are overwritten before anything attends to them.
        index = ops.min(ops.sum(ops.cast(prompt != 0, "int32"), axis=1)) - 1
        state = self._state(index, tree.map_structure(self._spread, caches))
        positions = index + np.arange(1 + self.before, dtype="int32")  # [1 + before]
        tokens = ops.take(ops.pad(prompt, [[0, 0], [0, 1 + self.before]]), positions, axis=1)
        return state, tokens[:, 0], tokens[:, 1:]

    def _state(self, index, caches):
        """The state of caches that hold `index` positions, all in slot 0 of the beam."""
        state = {"index": index, "caches": caches}
        if self.beams > 1:
            held = ops.less(np.arange(caches[0][0].shape[2] // self.beams, dtype="int32"), index)
            rows = ops.zeros((self.batch * self.beams, 1), "int32")
            state["ancestry"] = rows + ops.where(held, 0, NO_SLOT)  # [rows, length]
        return state

    def _spread(self, cache):
        """A cache `[batch, kv_heads, before, dim]` of one hypothesis, widened to all beams."""
        _, heads, length, dim = cache.shape
        length += self.max_length
        new = [[0, 0], [0, 0], [0, self.max_length], [0, (self.beams - 1) * dim]]
        return ops.reshape(ops.pad(cache, new), (-1, heads, length * self.beams, dim))

    def __call__(self, tokens, state):
        """int `[rows]` and a state → float32 `[rows, vocab]` log-probabilities and the next."""
        listed = self.shortlist
        ids = tokens if listed is None else ops.take(listed.token_ids, tokens)
        index = state["index"]
        new_state = {"index": index + 1}
        if self.beams == 1:
            at = following(index, 1, ops.shape(state["caches"][0][0])[2])
        else:
            new_state["ancestry"] = self._ancestry(state["ancestry"], index)
            at = StepPosition(index, self.beams, self.beams, self._mask(new_state["ancestry"]))
        if not self.compiled:
            moved = ops.multiply(index, np.array([0, 0, self.beams], "int32"))
            at = at._replace(places=self.places + moved)
        with keras.StatelessScope(state_mapping=self.read):
            x, new_state["caches"] = self.stack.step(
                ids, state["caches"], at, self.packed, self.memory
            )
            logits = self.logits(x, packed=self.packed_logits)
        if listed is not None:
            if self.packed_logits is None:  # quantised
                logits = ops.take(logits, listed.token_ids, axis=-1)
            logits = listed.restrict(logits, self.beams)
        return ops.log_softmax(logits, axis=-1), new_state

    def _ancestry(self, ancestry, index):
        """The ancestry `[rows, length]` with each row's own slot at the position of this step."""
        here = ops.equal(ops.arange(ops.shape(ancestry)[1], dtype="int32"), index)
        return ops.where(here, self.slots, ancestry)

    def _mask(self, ancestry):
        """The mask by which each row attends only to what its ancestors wrote to the cache.

        Its bias is `[batch, 1, beams, room * beams]`.
        """
        slots = np.arange(self.beams, dtype="int32")
        bias = ops.where(ops.equal(ancestry[:, :, None], slots), 0.0, MASKED)
        shape = (-1, 1, self.beams, ops.shape(ancestry)[1] * self.beams)
        return AttentionMask(ops.reshape(bias, shape))

    def reorder(self, state, rows):
        if self.beams == 1:
            return take_rows(state, rows)
        return {**state, "ancestry": ops.take(state["ancestry"], rows, axis=0)}

    def resize(self, state, room):
        room += self.before
        caches = tree.map_structure(
            lambda cache: _resized(cache, 2, room * self.beams), state["caches"]
        )
        state = {**state, "caches": caches}
        if self.beams > 1:
            state["ancestry"] = _resized(state["ancestry"], 1, room, NO_SLOT)
        return state

    def take(self, examples):
        step = copy.copy(self)
        step._set_batch(ops.shape(examples)[0])
        step.memory = take_rows(self.memory, examples)
        if self.shortlist is not None:
            step.shortlist = self.shortlist.take(examples)
        return step

    def keep(self, state, examples):
        state = {**state, "caches": take_rows(state["caches"], examples)}
        if self.beams > 1:
            rows = rows_of(examples, self.beams)
            state["ancestry"] = ops.take(state["ancestry"], rows, axis=0)
        return state


def _resized(x, axis, size, value=0):
    """`x` cut or padded to `size` along an axis."""
    x = x[:, :size] if axis == 1 else x[:, :, :size]
    width = [[0, 0]] * len(x.shape)
    width[axis] = [0, size - ops.shape(x)[axis]]
    return ops.pad(x, width, constant_values=value)
