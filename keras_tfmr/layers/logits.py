"""From vectors to logits: the linear layer at the top of the paper's Figure 1."""

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers._sharing import shared
from keras_tfmr.layers.positions import unbuilt


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Logits(keras.layers.Layer):
    """A linear layer to one logit per class, float32 under every dtype policy.

    Args:
        units: Number of classes, e.g. token ids.

    Call arguments:
        x: Tensor `[..., d_model]`; its mask is passed on.

    Returns:
        float32 tensor `[..., units]`.

    >>> Logits(100)(np.ones((2, 3, 16), "float32")).shape
    TensorShape([2, 3, 100])
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.dense = keras.layers.Dense(units, dtype=self.dtype_policy, name="dense")
        self.supports_masking = True

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.built = True

    def call(self, x):
        return ops.cast(self.dense(x), "float32")

    def compute_output_spec(self, x):
        return keras.KerasTensor((*x.shape[:-1], self.units), dtype="float32")

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class TiedLogits(keras.layers.Layer):
    """Logits by the token embedding's own table, float32 under every dtype policy.

    Args:
        embedding: The `PositionalEmbedding` whose table is used; it owns the weights.

    Call arguments:
        x: Tensor `[..., d_model]`; its mask is passed on.

    Returns:
        float32 tensor `[..., vocab]`.

    Reference: Press and Wolf 2017, Using the Output Embedding to Improve Language Models
    (arXiv 1608.05859).

    >>> from keras_tfmr.layers import PositionalEmbedding
    >>> logits = TiedLogits(PositionalEmbedding(vocab_size=100, d_model=16))
    >>> logits(np.ones((2, 3, 16), "float32")).shape
    TensorShape([2, 3, 100])
    """

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding
        self.supports_masking = True

    def build(self, x_shape):
        if not self.embedding.built:
            self.embedding.build((None, None))
        self.built = True

    def call(self, x):
        return ops.cast(self.embedding.tokens(x, reverse=True), "float32")

    def compute_output_spec(self, x):
        shape = (*x.shape[:-1], self.embedding.vocab_size)
        return keras.KerasTensor(shape, dtype="float32")

    def get_config(self):
        return {**super().get_config(), "embedding": shared(self.embedding)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "embedding": unbuilt(config["embedding"])})
