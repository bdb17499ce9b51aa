"""The decoding step with caches, made of the layers of a model."""

import copy

import numpy as np
from keras import ops, tree

from keras_tfmr import _checks
from keras_tfmr.decoding.result import lengths_of
from keras_tfmr.decoding.step import DecodingStep, select_rows
from keras_tfmr.faster import backend
from keras_tfmr.faster.parts import Weights
from keras_tfmr.faster.stack import Head, OwnHead, Source, Stack
from keras_tfmr.layers import LMHead, PositionalEmbedding
from keras_tfmr.layers.masking import mask_bias


class CachedStep(DecodingStep):
    """The `DecodingStep` of a decoder of this package's layers: one token after those in caches.

    The state has the number of tokens, `length`; `caches`, for each layer the keys and values of
    all tokens of each row; and `source` and `source_bias` `[batch, ...]`, without a source empty.

    Args:
        decoder: A `Stack`.
        head: A `Head` or `OwnHead`.
        num_beams, max_length: As for `TranslationModel.start`.
        source: What `Source` gave, if the decoder attends to one.
        source_mask: bool `[batch, source]`, or None.
    """

    def __init__(self, decoder, head, num_beams, max_length, source=None, source_mask=None):
        self.decoder, self.head = decoder, head
        self.vocab_size = decoder.embedding.vocab_size
        self.num_beams = _checks.integer("num_beams", num_beams, 1)
        self.max_length = self.room = _checks.integer("max_length", max_length, 1)
        self.source = [] if source is None else source
        self.source_bias = [] if source_mask is None else [mask_bias(source_mask[:, None, None])]
        self.vectors = decoder.embedding.position_vectors(self.room)
        self.shrinks = not backend.fixed_shapes()

    @classmethod
    def of_layers(cls, graph, num_beams, max_length, context=None, context_mask=None):
        """The step of a model's layers as they are, in training too.

        Args:
            graph: The `Graph` of a model.
            num_beams, max_length: As for `TranslationModel.start`.
            context: Tensor `[batch, source, width]` for a `Decoder`.
            context_mask: Its mask bool `[batch, source]`, or None.
        """
        weights = Weights(graph.decoder.compute_dtype)
        decoder, head = decoder_and_head(weights, graph, cross=context is not None)
        if context is None:
            return cls(decoder, head, num_beams, max_length)
        batch, length, width = ops.shape(context)
        rows = ops.reshape(context, (-1, width))
        source = Source(weights, graph.decoder)(rows, (batch, length), context_mask)
        return cls(decoder, head, num_beams, max_length, source, context_mask)

    def start(self, batch):
        """The state before the first token of `batch` examples."""
        rows = batch * self.num_beams
        caches = [layer.self_attention.cache(rows, self.room) for layer in self.decoder.layers]
        return {
            "length": ops.zeros((), "int32"),
            "caches": caches,
            "source": self.source,
            "source_bias": self.source_bias,
        }

    def after(self, prompt):
        """The step and its state after as many tokens as the shortest prompt has, minus one.

        Args:
            prompt: int32 `[batch, length]`, padded with 0 at the end.
        """
        batch, length = ops.shape(prompt)
        known = _checks.known(prompt)
        if known is not None:
            index = max(int((known != 0).sum(axis=1).min(initial=length)) - 1, 0)
        elif backend.fixed_shapes():
            index = 0
        else:
            index = ops.maximum(ops.min(lengths_of(prompt)) - 1, 0)
        step = copy.copy(self)
        step.room = length - 1 + self.max_length
        step.vectors = self.decoder.embedding.position_vectors(step.room)
        step.max_length = step.room - index
        state = step.start(batch)
        if known is None or index:
            _, caches, _, _ = self.decoder.whole(prompt[:, :index], True)
            read = tree.map_structure(lambda x: ops.repeat(x, self.num_beams, axis=0), caches)
            state["caches"] = tree.map_structure(backend.begin, state["caches"], read)
        return step, {**state, "length": ops.convert_to_tensor(index, "int32")}

    def next(self, tokens, state):
        logits, normaliser, state = self.unnormalised(tokens, state)
        return logits - normaliser, state

    def unnormalised(self, tokens, state):
        source_bias = state["source_bias"][0] if state["source_bias"] else None
        x, caches = self.decoder.step(
            tokens, state["length"], state["caches"], self.vectors, self.room, self.num_beams,
            state["source"], source_bias,
        )  # fmt: skip
        logits, normaliser = self.head.normalised(x)
        return logits, normaliser, {**state, "length": state["length"] + 1, "caches": caches}

    def reorder(self, state, rows):
        return {**state, "caches": super().reorder(state["caches"], rows)}

    def select_examples(self, state, examples):
        beams = np.arange(self.num_beams, dtype="int32")
        rows = ops.reshape(examples[:, None] * self.num_beams + beams, (-1,))
        return {
            **state,
            "caches": select_rows(state["caches"], rows),
            "source": select_rows(state["source"], examples),
            "source_bias": select_rows(state["source_bias"], examples),
        }


def decoder_and_head(weights, graph, *, cross):
    """The decoder of a model as a `Stack`, and what follows it as a `Head` or `OwnHead`."""
    operations = graph.head.operations
    plain = len(operations) == 2 and type(operations[1]) in (LMHead, PositionalEmbedding)
    decoder = Stack(weights, graph.decoder, graph.embedding, cross=cross, folded=plain)
    if plain:
        return decoder, Head(weights, operations[1], decoder)
    return decoder, OwnHead(weights.layers(graph.head))


def checked_prompt(prompt, vocab_size):
    """Prompts int32 `[batch, length]`, each up to its first padding; or a ValueError."""
    prompt = _checks.padded_ids("prompt", prompt, vocab_size - 1, 1, batch=None, length=None)
    # Where no error can be raised, nothing comes behind padding.
    ended = ops.cumsum(ops.cast(ops.equal(prompt, 0), "int32"), axis=1) > 0
    return ops.where(ended, 0, prompt)


def rest_of(prompt, index):
    """`bos_ids` `[batch]` and `prefix` `[batch, length]` of `Examples`: prompts from an index."""
    length = ops.shape(prompt)[1]
    padded = ops.pad(prompt, [[0, 0], [0, 1 + length]])
    places = index + ops.arange(1 + length, dtype="int32")
    rest = ops.take(padded, places, axis=1)  # [batch, 1 + length]
    return rest[:, 0], rest[:, 1:]
