"""The base of encoder and decoder: embedding, dropout, layers, last normalisation."""

import keras
import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers._parts import described, shared, unbuilt
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.embedding import PositionalEmbedding
from keras_tfmr.layers.masking import biased
from keras_tfmr.layers.normalization import norm_like
from keras_tfmr.layers.packing import packed_projections
from keras_tfmr.layers.relative_positions import Relations


class Stack(keras.layers.Layer):
    """The base of encoder and decoder: embedding, dropout, layers, and pre-norm's last norm."""

    layer_class = None

    def __init__(
        self,
        *,
        num_layers,
        d_model,
        num_heads,
        dff,
        vocab_size=None,
        dropout_rate=0.1,
        attention_dropout_rate=None,
        key_dim=None,
        value_dim=None,
        num_kv_heads=None,
        norm_first=False,
        activation="relu",
        gated=False,
        use_bias=True,
        qk_norm=None,
        norm=None,
        embedding=None,
        relative_positions=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if (embedding is None) == (vocab_size is None):
            raise ValueError(
                "Give either `vocab_size` or `embedding`. "
                f"Received: vocab_size={vocab_size}, embedding={embedding}"
            )
        self.num_layers = _checks.positive_int("num_layers", num_layers)
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.embedding = embedding or PositionalEmbedding(
            vocab_size, d_model, dtype=self.dtype_policy, name="embedding"
        )
        if self.embedding.d_model != d_model:
            raise ValueError(
                f"`embedding` must have d_model={d_model}. "
                f"Received: an embedding of d_model={self.embedding.d_model}"
            )
        self.relative_positions = relative_positions
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.layers = [
            self.layer_class(
                d_model=d_model,
                num_heads=num_heads,
                dff=dff,
                dropout_rate=dropout_rate,
                attention_dropout_rate=attention_dropout_rate,
                key_dim=key_dim,
                value_dim=value_dim,
                num_kv_heads=num_kv_heads,
                norm_first=norm_first,
                activation=activation,
                gated=gated,
                use_bias=use_bias,
                qk_norm=qk_norm,
                norm=norm,
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i in range(num_layers)
        ]
        # Post-norm layers end in a normalisation already.
        self.norm = norm_like(norm, self.dtype_policy) if norm_first else None
        self.supports_masking = True

    def build(self, inputs_shape):
        self.build_around(inputs_shape)
        for layer in self.layers:
            layer.build((*inputs_shape[:2], self.embedding.d_model))
        self.built = True

    def build_around(self, inputs_shape):
        """Builds everything but the layers."""
        if not self.embedding.built:
            self.embedding.build(inputs_shape)
        x_shape = (*inputs_shape[:2], self.embedding.d_model)
        self.dropout.build(x_shape)
        for part in (self.norm, self.relative_positions):
            if part is not None and not part.built:
                part.build(x_shape)

    def call(self, inputs, mask=None, return_attention_scores=False, training=None):
        x = self.embed(inputs, training)  # [batch, length, d_model]
        mask = self.compute_mask(inputs, mask)
        relations = self.relate_all(x)
        all_scores = []
        for layer in self.layers:
            y = layer(
                x,
                mask=mask,
                return_attention_scores=return_attention_scores,
                relations=relations,
                training=training,
            )
            x, scores = y if return_attention_scores else (y, None)
            all_scores.append(scores)
        x = self.finish(x)
        return (x, all_scores) if return_attention_scores else x

    def embed(self, inputs, training=None):
        """Token ids `[batch, length]` → embeddings with dropout `[batch, length, d_model]`."""
        return self.dropout(self.embedding(inputs), training=training)

    def relate(self, query_positions, key_positions):
        """The `Relations` of positions, int32 `[query]` and `[key]`, or None."""
        if self.relative_positions is None:
            return None
        return Relations(
            self.relative_positions.rotation(query_positions),
            self.relative_positions.bias(query_positions, key_positions),
        )

    def relate_all(self, x):
        """`relate` for all positions of `x` `[batch, length, d_model]`."""
        positions = ops.arange(ops.shape(x)[1], dtype="int32")
        return self.relate(positions, positions)

    def finish(self, x):
        """The last normalisation, for pre-norm layers."""
        return x if self.norm is None else self.norm(x)

    def compute_mask(self, inputs, previous_mask=None):
        return self.embedding.compute_mask(inputs, previous_mask)

    def compute_output_spec(self, inputs, mask=None, return_attention_scores=False, training=None):
        if return_attention_scores:
            return super().compute_output_spec(inputs, return_attention_scores=True)
        x = self.embedding.compute_output_spec(inputs)  # faster than tracing the call
        return keras.KerasTensor(x.shape, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            **self.layers[0].arguments(),
            "embedding": shared(self.embedding),
            "relative_positions": described(self.relative_positions),
        }

    @classmethod
    def from_config(cls, config):
        config = {**config, "embedding": unbuilt(config["embedding"])}
        if config["relative_positions"] is not None:
            config["relative_positions"] = unbuilt(config["relative_positions"])
        return cls(**config)


class CausalStack(Stack):
    """A stack that can also decode token by token: the base of `Decoder` and `DecoderOnly`."""

    def caches(self, batch, size):
        """Empty caches of self-attention, a list over layers: see `MultiHeadAttention.cache`.

        Args:
            batch: Number of examples.
            size: Number of places: positions times beams.
        """
        return [layer.self_attention.attention.cache(batch, size) for layer in self.layers]

    def pack(self, max_length):
        """What is the same in all steps, to be computed once: see `step`.

        Args:
            max_length: Number of positions; with None, each step computes their vectors.

        Returns:
            The position vectors `[max_length, d_model]`, and a list over layers of what
            `packed_projections` gives.
        """
        positions = None
        if max_length is not None:
            positions = self.embedding.positions(np.arange(max_length, dtype="int32"))
        return positions, [
            packed_projections(layer.self_attention.attention) for layer in self.layers
        ]

    def step(self, inputs, caches, at, packed=None, memory=None):
        """The stack for new tokens only.

        Args:
            inputs: int tensor `[rows]`, the new tokens of an example side by side; vectors
                `[rows, width]` where the embedding takes vectors.
            caches: What `caches` or the previous step gave.
            at: The `StepPosition`.
            packed: What `pack` gave; None computes it here.
            memory: What a decoder's `memory` gave for its context, a list over layers.

        Returns:
            Tensor `[rows, d_model]` and the caches with the new positions written.
        """
        packed = self.pack(None) if packed is None else packed
        x = self._embed_step(inputs, at, packed[0])  # [rows, d_model]
        if self.relative_positions is not None:
            keys = ops.arange(ops.shape(caches[0][0])[2], dtype="int32") // at.beams
            relations = self.relate(_new_positions(at), keys)
            mask = biased(at.mask, relations.bias)
            at = at._replace(rotation=relations.rotation, mask=mask)
        new_caches = []
        memory = [None] * self.num_layers if memory is None else memory
        for layer, cache, pack, context in zip(self.layers, caches, packed[1], memory, strict=True):
            x, cache = layer.step(x, cache, at, pack, context)
            new_caches.append(cache)
        return self.finish(x), new_caches

    def _embed_step(self, inputs, at, table):
        """The embeddings `[rows, d_model]` of `inputs`; `table` holds the position vectors."""
        if isinstance(at.new, int) and at.new == 1 and table is not None:
            return self.embedding.at(inputs, ops.slice(table, (at.index, 0), (1, table.shape[1])))
        positions = _new_positions(at)
        vectors = (
            self.embedding.positions(positions)
            if table is None
            else ops.take(table, positions, axis=0)
        )
        by_position = ops.reshape(inputs, (-1, at.new, at.beams, *inputs.shape[1:]))
        x = self.embedding.at(by_position, vectors[:, None])  # [batch, new, beams, d_model]
        return ops.reshape(x, (-1, self.embedding.d_model))


def _new_positions(at):
    """The positions of a step's new tokens, int32 `[new]`."""
    return at.index + ops.arange(at.new, dtype="int32")
