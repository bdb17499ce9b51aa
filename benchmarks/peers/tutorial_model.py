"""A translator as the TensorFlow tutorial builds it, of Keras's own layers, for comparison.

It keeps the tutorial's properties on purpose: every head is as wide as the model, there is no
dropout on the output of an attention, and loss and accuracy are functions over whole batches.
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


def attended(x, context, d_model, heads, dropout, key_dim, causal=False):
    """Attention, the sum and the norm."""
    attention = keras.layers.MultiHeadAttention(heads, key_dim, dropout=dropout)
    y = attention(x, context, use_causal_mask=causal)
    return keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))


def fed_forward(x, d_model, dff):
    y = keras.layers.Dense(dff, activation="relu")(x)
    y = keras.layers.Dropout(0.1)(keras.layers.Dense(d_model)(y))
    return keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))


def tutorial_model(config, key_dim=None):
    """The functional model; `key_dim` is the width of a head, d_model as in the tutorial."""
    sizes = (config.d_model, config.num_heads, config.dropout_rate, key_dim or config.d_model)
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


def train(args):
    """Rows of BLEU by minutes of the tutorial's recipe: its layers, schedule and batches.

    Its own vocabularies were a download that no longer exists. Text stays cased, so that BLEU means
    the same on every side. Decoding recomputes the prefix for every token, as the tutorial does,
    but for a batch at a time; its time is not counted.
    """
    import tensorflow as tf

    from keras_tfmr import NoamSchedule, TransformerConfig
    from peers.corpus import END, START, Task

    keras.utils.set_random_seed(1)
    task = Task(args)
    config = TransformerConfig.preset(
        "tutorial", source_vocab=task.vocab, target_vocab=task.vocab, joint_vocab=False
    )
    model = tutorial_model(config)
    rate = NoamSchedule(config.d_model, 4000)
    model.compile(keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9), masked_loss)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def decode(source):
        def extend(target):
            logits = model([source, target], training=False)[:, -1]
            chosen = tf.argmax(logits, axis=-1, output_type=tf.int32)
            return (tf.concat([target, chosen[:, None]], axis=1),)

        def unfinished(target):
            ended = tf.reduce_any(target == END, axis=1)
            return (tf.shape(target)[1] < 48) & ~tf.reduce_all(ended)

        first = tf.fill([tf.shape(source)[0], 1], START)
        shape = (tf.TensorShape([None, None]),)
        return tf.while_loop(unfinished, extend, (first,), shape_invariants=shape)[0][:, 1:]

    def update(source, fed, expected):
        model.train_on_batch([source, fed], expected)

    return task.timed(update, decode, by_length=False)
