"""Cross-entropy over token IDs, label-smoothed, averaged over real tokens."""

import math
from typing import Any

import keras
from keras import backend, ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor

# Labels may have these dtypes: under a `tf.distribute` strategy, Keras builds a loss on the mean of
# the replicas' labels, a float. Smaller floats would round ids.
WHOLE_FLOATS = ("float32", "float64")


def smoothed_cross_entropy(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The label-smoothed cross-entropy of each token; no one-hot tensor is built.

    (1 - ε) · NLL(label) + ε · mean over the vocabulary of NLL.

    Args:
        labels: int tensor `[...]`, or whole numbers in float32 or float64.
        logits: Tensor `[..., vocab]`; the computation is in float32.
        label_smoothing: ε, in [0, 1).

    Returns:
        float32 tensor `[...]`, in nats. In a graph and on an accelerator, where no error is raised,
        that of a label out of its range is NaN, and its gradient zero.

    Raises:
        ValueError: If `label_smoothing` is not in [0, 1), a label is no integer, negative or not
            below the vocabulary, or the shapes do not fit.

    Reference: Szegedy et al. 2016, Rethinking the Inception Architecture (arXiv 1512.00567).

    >>> logits = np.log(np.array([[0.5, 0.25, 0.25]], "float32"))
    >>> round(float(smoothed_cross_entropy(np.array([0]), logits)[0]), 4)  # log 2
    0.6931
    """
    labels = check_labels(labels, logits)
    label_smoothing = _checks.rate("label_smoothing", label_smoothing)
    shape, vocab = ops.shape(labels), logits.shape[-1]
    labels = ops.reshape(labels, (-1,))  # [tokens]
    ids = ops.clip(labels, 0, vocab - 1)
    known = ops.equal(labels, ids)  # all of them, but where no error was raised

    def loss_of(label_log_probs, mean_log_probs):  # [tokens]
        loss = -(1 - label_smoothing) * label_log_probs
        if label_smoothing:  # the mean is minus infinity if one of them is
            loss = loss - label_smoothing * mean_log_probs
        return ops.reshape(ops.where(known, loss, float("nan")), shape)

    def taken(rows):  # [tokens, vocab] -> [tokens]
        return ops.take_along_axis(rows, ids[:, None], axis=-1)[:, 0]

    def cross_entropy(logits):
        # As few passes over [tokens, vocab] as possible, forward and backward: it is by far the
        # largest tensor of a step, and the derivative of a gather would be another of its size.
        # The likeliest token has what makes a logit a log-probability: with `log_softmax`, the
        # loss takes half as long again on TensorFlow and twice as long on JAX, on a CPU.
        probs = ops.softmax(logits, axis=-1)
        top, log_top = ops.max(logits, axis=-1), ops.log(ops.max(probs, axis=-1))  # [tokens]
        label_log_probs = taken(logits) - top + log_top
        loss = loss_of(label_log_probs, ops.mean(logits, axis=-1) - top + log_top)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            upstream = ops.where(known, ops.reshape(upstream, (-1,)), 0.0)  # [tokens]
            at_label = ops.exp(label_log_probs) - (1 - label_smoothing)
            rows = ops.stack([ops.arange(ops.shape(ids)[0], dtype="int32"), ids], -1)
            difference = ops.scatter_update(probs, rows, at_label)
            if label_smoothing:
                difference = difference - label_smoothing / vocab
            return difference * upstream[:, None]

        return loss, gradient

    logits = ops.reshape(ops.cast(logits, "float32"), (-1, vocab))  # [tokens, vocab]
    if backend.backend() == "torch":  # whose custom gradient has no second derivative
        log_probs = ops.log_softmax(logits, axis=-1)
        return loss_of(taken(log_probs), ops.mean(log_probs, axis=-1))
    return ops.custom_gradient(cross_entropy)(logits)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy of integer labels, the mean over real tokens.

    Keras's `SparseCategoricalCrossentropy` has no label smoothing, and `CategoricalCrossentropy`
    wants one-hot labels, which are as large as the logits.

    The loss is over the positions whose label is not 0, whatever Keras mask the logits carry, and
    so are `TokenAccuracy` and `Perplexity`: to ignore a label, make it 0. A token with sample
    weight w counts as w tokens. A batch without real tokens has loss 0. In a graph and on an
    accelerator, where no error is raised, a label out of its range makes the loss NaN and trains
    nothing.

    Args:
        label_smoothing: Fraction of the probability spread evenly over the vocabulary.
        nominal_tokens: If given, the sum over real tokens is divided by this constant, whatever
            the number of real tokens is. The gradients of several batches or replicas then add up
            to those of all their tokens together, up to a constant factor; a mean would count the
            tokens of small batches for more. A good value is the usual number of tokens in a
            batch: then the loss is still about that of one token.
        dtype: Dtype of the result, `keras.config.floatx()` by default; the computation is in
            float32.

    Call arguments:
        y_true: int tensor `[batch, length]`, padded with 0; or whole numbers in float32 or float64.
        y_pred: float32 logits `[batch, length, vocab]`.
        sample_weight: Optional, not negative: `[batch]`, or broadcasts to `[batch, length]`.

    Returns:
        scalar, in nats per token.

    Raises:
        ValueError: If `label_smoothing` is not in [0, 1), `nominal_tokens` is not positive, a label
            is no integer, a label or a weight is out of its range, or the shapes do not fit.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 5.4.

    >>> loss = LabelSmoothedCrossEntropy(label_smoothing=0.1)
    >>> round(float(loss(np.array([[1, 2, 0]]), np.zeros((1, 3, 4), "float32"))), 4)  # log 4
    1.3863
    """

    def __init__(
        self, label_smoothing: float = 0.0, nominal_tokens: float | None = None,
        name: str = "label_smoothed_cross_entropy", dtype: Any = None,
    ) -> None:  # fmt: skip
        reduction = "mean_with_sample_weight" if nominal_tokens is None else "sum"
        # Keras casts the labels to this dtype too, and bfloat16 cannot hold the id 257.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.result_dtype = backend.standardize_dtype(dtype or backend.floatx())
        self.label_smoothing = _checks.rate("label_smoothing", label_smoothing)
        if nominal_tokens is not None:
            _checks.number("nominal_tokens", nominal_tokens, positive=True)
        self.nominal_tokens = nominal_tokens

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        y_true = check_labels(y_true, y_pred)
        weight = real_tokens(y_true, sample_weight)
        # As other tensors, because Keras would leave out what the mask of `y_pred` leaves out.
        y_true, weight = ops.reshape(y_true, (-1,)), ops.reshape(weight, (-1,))  # [tokens]
        y_pred = ops.reshape(y_pred, (-1, y_pred.shape[-1]))  # [tokens, vocab]
        loss = super().__call__(y_true, y_pred, weight)
        if self.nominal_tokens is not None:
            loss = loss / self.nominal_tokens
        return ops.cast(loss, self.result_dtype)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Nested:
        labels = ops.cast(y_true, "int32")  # Keras casts all inputs to the dtype of the loss
        return smoothed_cross_entropy(labels, y_pred, self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "label_smoothing": self.label_smoothing,
            "nominal_tokens": self.nominal_tokens,
            "dtype": self.result_dtype,
        }


def check_labels(labels, logits):
    """Returns int32 labels `[...]`, ids that fit `logits` `[..., vocab]`, or raises a ValueError.

    Where numbers are not at hand, a fraction becomes -1, which is out of range.
    """
    labels = ops.convert_to_tensor(labels)
    _checks.same_shape("labels", labels, logits.shape[:-1])
    dtype = backend.standardize_dtype(labels.dtype)
    if backend.is_float_dtype(dtype) and dtype not in WHOLE_FLOATS:
        raise ValueError(f"`labels` must hold integers. Received: dtype {dtype}, which rounds ids")
    ids = _checks.values("labels", labels, "int32", 0, logits.shape[-1] - 1)
    return ops.where(labels == ops.floor(labels), ids, -1) if dtype in WHOLE_FLOATS else ids


def real_tokens(labels, sample_weight=None):
    """The float32 weight of each label: 0 for padding, else the sample weight or 1."""
    weight = ops.cast(ops.not_equal(labels, 0), "float32")
    if sample_weight is not None:
        _checks.in_range("sample_weight", sample_weight, 0, math.inf)
        sample_weight = ops.cast(sample_weight, "float32")
        if getattr(sample_weight.shape, "rank", 0) is None:  # TensorFlow, after another rank
            sample_weight = ops.reshape(sample_weight, (*ops.shape(labels)[:-1], -1))
        while len(sample_weight.shape) < len(weight.shape):
            sample_weight = sample_weight[..., None]
        _checks.broadcasts("sample_weight", sample_weight, labels.shape)
        weight = weight * sample_weight
    return weight
