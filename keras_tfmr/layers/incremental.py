"""The decoder one token at a time, in few operations: what decoding spends its time on."""

import copy
import math

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr.layers.attention import MASKED, softmax
from keras_tfmr.layers.logits import TiedLogits

# The slot of a beam at positions still to come.
NOWHERE = -1

# Up to so many tokens, reading what is not filled yet costs less than a second loop does: seconds
# of compilation, or next to nothing where nothing is compiled.
FIRST_COMPILED_ROOM, FIRST_PLAIN_ROOM = 64, 16


class IncrementalDecoder:
    """A function `step(tokens, state) -> (log_probs, state)` over a `Decoder` and a context.

    The same numbers as the decoder's full forward pass. What does not change from step to step is
    prepared once: keys and values of the context, positions, the three projections of
    self-attention as one.

    The hypotheses of a sentence share their caches. A hypothesis that another one grew out of is
    not copied: each remembers in `ancestry` which slot of the beam it sat in at every position, and
    attends to those keys only. So reordering the beam moves a table of small integers, and the
    caches are read once for all beams of a sentence.

    Args:
        decoder: a built `Decoder`.
        logits: the layer that makes logits of its output.
        context: `[batch, source, width]`, what the encoder made.
        context_mask: bool `[batch, source]`, True = valid.
        beams: hypotheses per sentence.
        max_length: number of tokens that can be decoded.
        compiled: whether XLA will compile the steps: caches are then updated in place, by an
            operation that a server without XLA refuses.
    """

    def __init__(self, decoder, logits, context, context_mask, *, beams, max_length, compiled):
        self.decoder, self.logits = decoder, logits
        self.batch = ops.shape(context)[0]
        self.beams, self.max_length = beams, max_length
        self.compiled = compiled
        # Which examples are left is known at run time only, when XLA wants to know every shape.
        self.shrinks = not compiled and keras.backend.backend() != "jax"
        self.positions = decoder.embedding.positions(np.arange(max_length, dtype="int32"))
        self.context_bias = ops.where(context_mask, 0.0, MASKED)[:, None, None]
        # A sentence without a token has nothing to attend to: zero values make its heads zero.
        some = ops.any(context_mask, axis=-1)[:, None, None]  # [batch, 1, 1]
        self.nowhere = ops.zeros_like(some[:, :, 0], dtype="int32") + NOWHERE  # [batch, 1]
        self.logits_kernel = None
        if compiled and isinstance(logits, TiedLogits) and not _quantized(logits.embedding.tokens):
            table = ops.cast(logits.embedding.tokens.embeddings, logits.compute_dtype)
            self.logits_kernel = ops.transpose(table)  # [d_model, vocab]
        self.layers = [_IncrementalLayer(layer, context, some, beams) for layer in decoder.layers]
        # Read once, before the loop: a graph reads a variable anew in every step, and of the
        # operations of a step every fifth would be that.
        weights = {id(weight): weight for weight in decoder.weights + logits.weights}
        self.read = [(weight, ops.cast(weight, weight.dtype)) for weight in weights.values()]

    def start(self):
        """The state before the first token."""
        state = {
            "index": ops.zeros((), "int32"),
            "caches": [layer.cache(self.batch, self.max_length) for layer in self.layers],
        }
        if self.beams > 1:
            none = ops.repeat(self.nowhere, self.beams, axis=0)  # [rows, 1]
            state["ancestry"] = none + ops.zeros((self.max_length,), "int32")  # [rows, length]
        return state

    def __call__(self, tokens, state):
        """int `[rows]` and a state -> float32 `[rows, vocab]` log-probabilities and the next."""
        with keras.StatelessScope(state_mapping=self.read):
            return self._step(tokens, state)

    def _step(self, tokens, state):
        index = state["index"]
        room = state["caches"][0][0].shape[2] // self.beams
        places = np.arange(room, dtype="int32")
        new_state = {"index": index + 1, "caches": []}
        if self.beams == 1:
            bias = ops.where(ops.less_equal(places, index), 0.0, MASKED)  # [key]
        else:
            slots = np.arange(self.beams, dtype="int32")
            own = ops.add(ops.reshape(ops.zeros_like(tokens), (-1, self.beams)), slots)
            ancestry = ops.where(
                ops.equal(places, index), ops.reshape(own, (-1, 1)), state["ancestry"]
            )
            new_state["ancestry"] = ancestry
            seen = ops.equal(ancestry[:, :, None], slots)  # [rows, length, beam]
            bias = ops.where(seen, 0.0, MASKED)
            bias = ops.reshape(bias, (-1, 1, self.beams, room * self.beams))
        embedding = self.decoder.embedding
        x = embedding.at(tokens, self.positions[index])  # [rows, d_model]
        write = self._writer(index, room)
        for layer, cache in zip(self.layers, state["caches"], strict=True):
            x, cache = layer(x, cache, write, bias, self.context_bias)
            new_state["caches"].append(cache)
        return ops.log_softmax(self._logits(self.decoder.finish(x)), axis=-1), new_state

    def _logits(self, x):
        """`[rows, d_model]` -> `[rows, vocab]`.

        XLA multiplies several rows by a table that lies transposed 1.5 to 3 times as slowly, one
        row as fast. Its size is known when it compiles: it keeps one side of the condition.
        """
        if self.logits_kernel is None:
            return self.logits(x)
        return ops.cond(
            ops.shape(x)[0] > 1,
            lambda: ops.cast(ops.matmul(x, self.logits_kernel), "float32"),
            lambda: self.logits(x),
        )

    def reorder(self, state, rows):
        """The state in which every row continues the given one, of the same sentence."""
        if self.beams == 1:
            take = lambda leaf: ops.take(leaf, rows, axis=0) if len(leaf.shape) else leaf  # noqa: E731
            return tree.map_structure(take, state)
        return {**state, "ancestry": ops.take(state["ancestry"], rows, axis=0)}

    def take(self, state, examples):
        """The step and the state for some of the sentences, int32 `[n]`."""

        def take(leaf):
            return ops.take(leaf, examples, axis=0)

        step = copy.copy(self)
        step.batch = ops.shape(examples)[0]
        step.context_bias, step.nowhere = take(self.context_bias), take(self.nowhere)
        step.layers = [layer.take(examples) for layer in self.layers]
        state = {**state, "caches": tree.map_structure(take, state["caches"])}
        if self.beams > 1:
            by_sentence = ops.reshape(
                state["ancestry"], (-1, self.beams, state["ancestry"].shape[-1])
            )
            state["ancestry"] = ops.reshape(take(by_sentence), (-1, by_sentence.shape[-1]))
        return step, state

    @property
    def rooms(self):
        """Lengths for which caches are allocated one after the other, up to `max_length`."""
        rooms = [FIRST_COMPILED_ROOM if self.compiled else FIRST_PLAIN_ROOM]
        while rooms[-1] < self.max_length:
            rooms.append(2 * rooms[-1])
        return (*rooms[:-1], self.max_length)

    def resize(self, state, room):
        """The state with room for so many tokens, at least those it holds."""

        def fit(leaf, axis, size, value=0):
            if size <= leaf.shape[axis]:
                return leaf[:, :size] if axis == 1 else leaf[:, :, :size]
            width = [[0, 0]] * len(leaf.shape)
            width[axis] = [0, size - leaf.shape[axis]]
            return ops.pad(leaf, width, constant_values=value)

        caches = [
            tuple(fit(leaf, 2, room * self.beams) for leaf in cache) for cache in state["caches"]
        ]
        state = {**state, "caches": caches}
        if self.beams > 1:
            state["ancestry"] = fit(state["ancestry"], 1, room, NOWHERE)
        return state

    def _writer(self, index, room):
        """A function that puts `new` `[batch, heads, beam, dim]` at position `index` of a cache
        `[batch, heads, key, dim]`."""
        if self.compiled:
            return lambda cache, new: ops.slice_update(cache, (0, 0, index * self.beams, 0), new)
        # Where nothing else holds the cache, TensorFlow scatters into it without a copy.
        heads = self.decoder.layers[0].causal_attention.attention.num_heads
        here = ops.arange(self.batch * heads, dtype="int32") * room + index
        here = here[:, None]  # [batch * heads, 1]

        def write(cache, new):
            _, heads, keys, dim = cache.shape
            width = self.beams * dim
            places = ops.reshape(cache, (-1, width))  # [batch * heads * room, beam * dim]
            places = ops.scatter_update(places, here, ops.reshape(new, (-1, width)))
            return ops.reshape(places, (-1, heads, keys, dim))

        return write


class _IncrementalLayer:
    """One decoder layer for `[rows, d_model]`, over weights and memory prepared before."""

    def __init__(self, layer, context, some, beams):
        self.layer, self.beams = layer, beams
        own, cross = layer.causal_attention.attention, layer.cross_attention.attention
        projections = (own.query_dense, own.key_dense, own.value_dense)
        # Integer weights have scales of their own, which only their layers know.
        self.packed = None if any(map(_quantized, projections)) else _packed(own)
        keys, values = cross.project(context)  # [batch, heads, source, dim]
        keys = keys * ops.cast(1 / math.sqrt(cross.key_dim), keys.dtype)
        self.memory = (
            ops.transpose(keys, (0, 1, 3, 2)),
            values * ops.cast(some, values.dtype)[:, None],
        )

    def take(self, examples):
        """The same layer over the memory of some of the sentences."""
        taken = copy.copy(self)
        taken.memory = tuple(ops.take(part, examples, axis=0) for part in self.memory)
        return taken

    def cache(self, batch, max_length):
        return self.layer.causal_attention.attention.cache(batch, max_length * self.beams)

    def __call__(self, x, cache, write, bias, context_bias):
        x, cache = self.self_attention(x, cache, write, bias)
        x = self.cross_attention(x, context_bias)
        return self.layer.feed_forward(x), cache

    def self_attention(self, x, cache, write, bias):
        sublayer = self.layer.causal_attention
        attention, residual = sublayer.attention, sublayer.residual
        queries, *new = self.three(residual.prepare(x), attention)
        keys, values = (write(old, one) for old, one in zip(cache, new, strict=True))
        heads = _attend(queries, ops.transpose(keys, (0, 1, 3, 2)), values, bias)
        return residual(x, self.output(attention, heads)), (keys, values)

    def cross_attention(self, x, context_bias):
        sublayer = self.layer.cross_attention
        attention, residual = sublayer.attention, sublayer.residual
        queries = self.heads(attention.query_dense(residual.prepare(x)), attention.key_dim)
        heads = _attend(queries, *self.memory, context_bias)
        return residual(x, self.output(attention, heads))

    def three(self, x, attention):
        """`[rows, d_model]` -> queries, keys and values `[batch, heads, beam, dim]`."""
        if self.packed is None:
            queries = attention.query_dense(x) * (1 / math.sqrt(attention.key_dim))
            return (
                self.heads(queries, attention.key_dim),
                self.heads(attention.key_dense(x), attention.key_dim),
                self.heads(attention.value_dense(x), attention.value_dim),
            )
        kernel, bias = self.packed
        packed = ops.matmul(x, kernel)
        if bias is not None:
            packed = packed + bias
        if attention.key_dim == attention.value_dim:
            return ops.split(self.heads(packed, attention.key_dim), 3, axis=1)
        width = attention.num_heads * attention.key_dim
        return (
            self.heads(packed[:, :width], attention.key_dim),
            self.heads(packed[:, width : 2 * width], attention.key_dim),
            self.heads(packed[:, 2 * width :], attention.value_dim),
        )

    def heads(self, x, dim):
        """`[rows, heads * dim]` -> `[batch, heads, beam, dim]`."""
        if self.beams == 1:
            return ops.reshape(x, (-1, x.shape[-1] // dim, 1, dim))
        x = ops.reshape(x, (-1, self.beams, x.shape[-1] // dim, dim))
        return ops.transpose(x, (0, 2, 1, 3))

    def output(self, attention, heads):
        """`[batch, heads, beam, value_dim]` -> `[rows, d_model]`."""
        if self.beams > 1:
            heads = ops.transpose(heads, (0, 2, 1, 3))
        width = attention.num_heads * attention.value_dim
        return attention.output_dense(ops.reshape(heads, (-1, width)))


def _attend(queries, keys, values, bias):
    """Softmax in float32 of `[batch, heads, beam, dim]` on keys `[batch, heads, dim, key]`."""
    scores = ops.cast(ops.matmul(queries, keys), "float32") + bias
    return ops.matmul(ops.cast(softmax(scores), values.dtype), values)


def _quantized(layer):
    return layer.dtype_policy.quantization_mode is not None


def _packed(attention):
    """The three projections as one kernel and bias, the query's divided by √key_dim."""
    scale = 1 / math.sqrt(attention.key_dim)
    query, key, value = attention.query_dense, attention.key_dense, attention.value_dense
    dtype = attention.compute_dtype
    kernels = [query.kernel * scale, key.kernel, value.kernel]
    kernel = ops.concatenate([ops.cast(k, dtype) for k in kernels], axis=1)
    if not attention.use_bias:
        return kernel, None
    biases = [query.bias * scale, key.bias, value.bias]
    return kernel, ops.concatenate([ops.cast(b, dtype) for b in biases], axis=0)
