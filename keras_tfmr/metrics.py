"""Token accuracy and perplexity over an epoch, in which every real token counts once."""

from typing import Any

import keras
from keras import ops

from keras_tfmr.config import Tensor
from keras_tfmr.losses import check_labels, real_tokens, smoothed_cross_entropy


class TokenMean(keras.metrics.Mean):
    """The mean of `values(y_true, y_pred)` over real tokens.

    Keras's own metrics, such as `SparseCategoricalAccuracy`, average over the length first: a token
    of a long batch then counts for less than one of a short batch.

    Real tokens are those whose label is not 0, whatever Keras mask the logits carry. Labels and
    weights are checked as those of the loss: an error, or NaN where none is raised.
    """

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        y_true = check_labels(y_true, y_pred)
        weight = ops.reshape(real_tokens(y_true, sample_weight), (-1,))  # [batch * length]
        super().update_state(ops.reshape(self.values(y_true, y_pred), (-1,)), weight)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class TokenAccuracy(TokenMean):
    """Fraction of real tokens whose label has the largest logit, over all batches since the reset.

    Real tokens are those whose label is not 0, as for `LabelSmoothedCrossEntropy`.

    Call arguments:
        y_true: int tensor `[batch, length]`, padded with 0.
        y_pred: Logits `[batch, length, vocab]`.
        sample_weight: Optional, broadcasts to `[batch, length]`.

    Returns:
        float32 scalar in [0, 1].

    >>> accuracy = TokenAccuracy()
    >>> logits = np.eye(4, dtype="float32")[np.array([[1, 2, 3]])]
    >>> float(accuracy(np.array([[1, 3, 0]]), logits))
    0.5
    """

    def __init__(self, name: str = "accuracy", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        known = ops.equal(y_true, ops.clip(y_true, 0, y_pred.shape[-1] - 1))
        right = ops.cast(ops.equal(y_true, ops.argmax(y_pred, axis=-1)), "float32")
        return ops.where(known, right, float("nan"))  # where no error was raised


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Perplexity(TokenMean):
    """exp of the mean cross-entropy of real tokens, over all batches since the reset.

    Real tokens are those whose label is not 0, as for `LabelSmoothedCrossEntropy`.

    Call arguments:
        y_true: int tensor `[batch, length]`, padded with 0.
        y_pred: Logits `[batch, length, vocab]`.
        sample_weight: Optional, broadcasts to `[batch, length]`.

    Returns:
        float32 scalar, at least 1.

    >>> perplexity = Perplexity()
    >>> round(float(perplexity(np.array([[1, 3, 0]]), np.zeros((1, 3, 4), "float32"))), 4)
    4.0
    """

    def __init__(self, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return smoothed_cross_entropy(y_true, y_pred)

    def result(self) -> Tensor:
        return ops.exp(super().result())
