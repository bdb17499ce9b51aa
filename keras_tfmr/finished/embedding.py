"""Embeddings and logits, finished."""

import math

from keras import ops

from keras_tfmr.finished.products import Norm, Part, matrix
from keras_tfmr.finished.stacks import copied
from keras_tfmr.layers import NoPositions, PositionalEmbedding
from keras_tfmr.layers.embedding import vectors_at


class FinishedEmbedding(Part):
    """The finished form of a `PositionalEmbedding`.

    Args:
        kind: The `Kind`.
        layer: The `PositionalEmbedding`.
        embeds: Whether it is called with IDs.
        reverse: Whether it is called to make logits; its table is then held a second time,
            transposed.
    """

    def __init__(self, kind, layer, embeds, reverse):
        super().__init__(layer.name)
        self.vocab_size, self.d_model = layer.vocab_size, layer.d_model
        self.mask_zero = layer.mask_zero
        self.norm = None if layer.norm is None else Norm(layer.norm)
        self.positions = None
        if not isinstance(layer.positions, NoPositions):
            self.positions = copied(layer.positions, (None,))
        vectors = ops.cast(layer.tokens.embeddings, "float32")
        self.table = self.logits = None
        if embeds:
            scale = math.sqrt(layer.d_model) if layer.scaled else 1.0
            self.table = kind.table(vectors * scale)
        if reverse:
            bias = ops.cast(layer.bias, "float32") if layer.logits_bias else None
            self.logits = kind.product(layer.path, ops.transpose(vectors), bias, float32_sum=True)

    def call(self, inputs, reverse=False):
        if reverse:
            return logits_of(self.logits, inputs)
        positions = ops.arange(ops.shape(inputs)[1], dtype="int32")
        return self._embedded(inputs, self.position_vectors(positions))

    def position_vectors(self, positions):
        """As `PositionalEmbedding.position_vectors`."""
        if self.positions is None:
            return ops.zeros((ops.shape(positions)[0], 1), "float32")
        return ops.cast(self.positions(positions), "float32")

    def step(self, inputs, vectors, index):
        """As `PositionalEmbedding.step`."""
        return self._embedded(inputs, vectors_at(vectors, index, inputs))

    def _embedded(self, ids, vectors):
        """float32 `[batch, length, d_model]`."""
        x = self.table(ops.cast(ids, "int32"))
        x = x if self.positions is None else x + vectors
        return x if self.norm is None else self.norm(x)

    compute_mask = PositionalEmbedding.compute_mask  # by `mask_zero`


class FinishedHead(Part):
    """The finished form of an `LMHead`."""

    position_wise = True

    def __init__(self, kind, layer):
        super().__init__(layer.name)
        place = layer.dense.path
        self.logits = kind.product(place, *matrix(layer.dense), float32_sum=True)

    def call(self, x):
        return logits_of(self.logits, x)


def logits_of(product, x):
    """float32 logits `[..., vocab]` of vectors `[..., width]`."""
    y = product(ops.reshape(x, (-1, x.shape[-1])))
    inner = x.shape[1:-1]
    before = (-1, *inner) if None not in inner else ops.shape(x)[:-1]  # fewer operations
    return ops.reshape(y, (*before, y.shape[-1]))
