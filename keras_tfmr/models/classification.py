"""The encoder-only models: one label for each sequence, or one for each token."""

from typing import Any, Self

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers import Encoder, LMHead
from keras_tfmr.layers.base import dtype_policy
from keras_tfmr.models import _parts
from keras_tfmr.models.transformer_config import TransformerConfig


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MeanOverTokens(keras.layers.Layer):
    """The mean of the vectors at real positions; zero for a sequence that has none.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`.

    Returns:
        Tensor `[batch, d_model]`.

    >>> MeanOverTokens()(np.ones((2, 3, 8), "float32")).shape
    TensorShape([2, 8])
    """

    def call(self, x: Tensor, mask: Tensor | None = None) -> Nested:
        _checks.sequence_of_vectors("x", x.shape)
        mask = _checks.sequence_mask("mask", mask, x)
        x = ops.cast(x, "float32")
        if mask is None:
            return ops.cast(ops.mean(x, axis=1), self.compute_dtype)
        weights = ops.cast(mask, "float32")[:, :, None]
        total = ops.sum(x * weights, axis=1)
        count = ops.maximum(ops.sum(weights, axis=1), 1.0)
        return ops.cast(total / count, self.compute_dtype)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return None

    def compute_output_shape(self, x_shape: Shape) -> Any:
        return (x_shape[0], x_shape[-1])


class EncoderModel(_parts.ConfiguredModel, keras.Model):
    """Shared by the encoder-only models: an encoder, a head, and a number of classes."""

    def __init__(
        self, config: TransformerConfig, num_classes: int, name: str, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        _checks.instance("config", config, TransformerConfig)
        self.config = config
        self.num_classes = _checks.positive_int("num_classes", num_classes)
        layers = config.encoder_layers
        with dtype_policy(self.dtype_policy):
            embedding = _parts.embedding(config, config.source_vocab, "embedding")
            self.encoder = _parts.stack(Encoder, config, layers, embedding, "encoder")
            self.logits = LMHead(num_classes, name="logits")

    def call(self, inputs: Tensor, training: bool | None = None) -> Nested:
        (token_ids,) = _parts.tensors(inputs, "token_ids")
        return self.logits(self.pool(self.encoder(token_ids, training=training)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_classes": self.num_classes}

    @classmethod
    def build_from(cls, config: Any, rest: Any) -> Self:
        return cls(config, rest["num_classes"], name=rest["name"])


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SequenceClassifier(EncoderModel):
    """An encoder, the mean over its real positions, and one logit per class.

    Args:
        config: A `TransformerConfig`; `source_vocab` and `encoder_layers` are its vocabulary
            and depth.
        num_classes: Number of classes.

    Call arguments:
        inputs: `token_ids` int `[batch, length]`, padded with 0.

    Returns:
        float32 logits `[batch, num_classes]`.

    >>> from keras_tfmr import TransformerConfig
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> SequenceClassifier(config, num_classes=3)(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3])
    """

    def __init__(
        self, config: TransformerConfig, num_classes: int, name: str = "sequence_classifier",
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(config, num_classes, name, dtype)
        self.pool = MeanOverTokens(name="mean", dtype=self.dtype_policy)
        self.finish_building("token_ids")


@keras.saving.register_keras_serializable(package="keras_tfmr")
class TokenClassifier(EncoderModel):
    """An encoder and one logit per class at each position.

    Args:
        config: A `TransformerConfig`; `source_vocab` and `encoder_layers` are its vocabulary
            and depth.
        num_classes: Number of classes.

    Call arguments:
        inputs: `token_ids` int `[batch, length]`, padded with 0.

    Returns:
        float32 logits `[batch, length, num_classes]`.

    >>> from keras_tfmr import TransformerConfig
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> TokenClassifier(config, num_classes=3)(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 3])
    """

    def __init__(
        self, config: TransformerConfig, num_classes: int, name: str = "token_classifier",
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(config, num_classes, name, dtype)
        self.finish_building("token_ids")

    @staticmethod
    def pool(x: Tensor) -> Tensor:
        return x
