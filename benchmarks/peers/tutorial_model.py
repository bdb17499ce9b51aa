"""A translator as the TensorFlow tutorial builds it, of Keras's own layers, for comparison.

It keeps the tutorial's properties on purpose: every head is as wide as the model, there is no
dropout on the output of an attention, and the loss is a function over whole batches.
"""

import keras
import numpy as np
from keras import ops


class Embedding(keras.layers.Layer):
    """Token embedding times √d_model plus a table of 2048 sinusoids."""

    def __init__(self, vocab, d_model):
        super().__init__()
        self.d_model = d_model
        self.tokens = keras.layers.Embedding(vocab, d_model, mask_zero=True)
        angles = np.arange(2048)[:, None] / 10000 ** (np.arange(d_model // 2) / (d_model / 2))
        self.table = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype("float32")

    def call(self, ids):
        x = self.tokens(ids) * ops.cast(self.d_model**0.5, self.compute_dtype)
        positions = ops.cast(self.table, self.compute_dtype)
        return x + positions[None, : ops.shape(ids)[1]]

    def compute_mask(self, ids, mask=None):
        return self.tokens.compute_mask(ids)


def attended(x, context, heads, key_dim, dropout, causal=False):
    """Attention, the sum and the norm."""
    attention = keras.layers.MultiHeadAttention(heads, key_dim, dropout=dropout)
    y = attention(x, context, use_causal_mask=causal)
    return keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))


def fed_forward(x, d_model, dff):
    y = keras.layers.Dense(dff, activation="relu")(x)
    y = keras.layers.Dropout(0.1)(keras.layers.Dense(d_model)(y))
    return keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))


def tutorial_model(config):
    """The functional model."""
    sizes = (config.num_heads, config.d_model, config.dropout_rate)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    context = keras.layers.Dropout(0.1)(Embedding(config.source_vocab, config.d_model)(source))
    for _ in range(config.encoder_layers):
        context = attended(context, context, *sizes)
        context = fed_forward(context, config.d_model, config.dff)
    x = keras.layers.Dropout(0.1)(Embedding(config.target_vocab, config.d_model)(target))
    for _ in range(config.decoder_layers):
        x = attended(x, x, *sizes, causal=True)
        x = attended(x, context, *sizes)
        x = fed_forward(x, config.d_model, config.dff)
    logits = keras.layers.Dense(config.target_vocab, dtype="float32")(x)
    return keras.Model([source, target], logits)


def masked_loss(labels, logits):
    """Mean over the real tokens of the batch."""
    each = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    mask = ops.cast(labels != 0, "float32")
    return ops.sum(each(labels, logits) * mask) / ops.sum(mask)
