"""The result of every decoder, the length penalty, and scores of given sequences."""

from typing import NamedTuple

from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Tensor


class DecodingResult(NamedTuple):
    """Hypotheses of a batch, best first.

    A length includes the end id if it was produced, and never the start id. There can be fewer than
    n = `num_return_sequences` hypotheses, for example with a tiny vocabulary, a maximum length of 1
    or tokens of which none is possible. The missing ones have length 0, ids of padding, and minus
    infinity for `log_probs` and `scores`.

    Fields:
        ids: int32 `[batch, n, length]`, padded with 0; `length` is the given `max_length`.
        lengths: int32 `[batch, n]`.
        log_probs: float32 `[batch, n]`, the sum of log p(token | tokens before), in nats.
        scores: float32 `[batch, n]`, `log_probs` divided by the length penalty.
    """

    ids: Tensor
    lengths: Tensor
    log_probs: Tensor
    scores: Tensor


def lengths_of(ids: Tensor) -> Tensor:
    """The lengths `[...]` of ids `[..., length]` that are padded with 0."""
    return ops.sum(ops.cast(ids != 0, "int32"), axis=-1)


def length_penalty(lengths: Tensor, alpha: float, offset: float = 5.0) -> Tensor:
    """The length penalty ((k + length) / (k + 1))^alpha, by which a log-probability is divided.

    Args:
        lengths: integers of any shape, the end id included; 0, the length of a missing hypothesis,
            counts as 1.
        alpha: The exponent: 0 for no penalty; around 0.6 for translation.
        offset: k, 5 in the paper. 0 makes it length^alpha, as in Marian, transformers and
            CTranslate2; with alpha = 1 this ranks by the mean over the tokens.

    Returns:
        float32 of the shape of `lengths`.

    Raises:
        ValueError: If `alpha` or `offset` is negative or not finite, or a known length negative.

    Reference: "Google's Neural Machine Translation System" (arXiv 1609.08144), section 7.

    >>> float(length_penalty([7], alpha=1.0)[0])
    2.0
    >>> float(length_penalty([7], alpha=1.0, offset=0.0)[0])
    7.0
    """
    alpha, offset = _checks.number("alpha", alpha), _checks.number("offset", offset)
    lengths = _checks.values("lengths", lengths, "int32", 0, _checks.LARGEST)
    lengths = ops.maximum(ops.cast(lengths, "float32"), 1.0)
    return ops.power((offset + lengths) / (offset + 1.0), alpha)


def score(logits: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Sums the log-probabilities of given tokens.

    The result agrees with the `log_probs` of the decoders: it includes the end id, and not padding.

    Args:
        logits: `[batch, target, vocab]`, of any float dtype; position t predicts token t of
            `target_ids`.
        target_ids: int32 `[batch, target]` without the start id, padded with 0.

    Returns:
        float32 `[batch]` log-probabilities and int32 `[batch]` numbers of tokens.

    Raises:
        ValueError: If the shapes do not fit, or a known id is not in the vocabulary.

    >>> log_prob, length = score(ops.zeros((1, 3, 4)), ops.array([[2, 1, 0]]))
    >>> round(float(log_prob[0]), 4), int(length[0])
    (-2.7726, 2)
    """
    logits = ops.cast(logits, "float32")
    _checks.shaped("logits", logits, batch=None, target=None, vocab=None)
    batch, target, vocab = logits.shape
    last = vocab - 1 if isinstance(vocab, int) else _checks.LARGEST
    target_ids = _checks.tensor(
        "target_ids", target_ids, "int32", 0, last, batch=batch, target=target
    )
    log_probs = ops.log_softmax(logits, axis=-1)
    picked = ops.take_along_axis(log_probs, target_ids[:, :, None], axis=-1)[:, :, 0]
    real = ops.not_equal(target_ids, 0)  # [batch, target]
    log_prob = ops.sum(ops.where(real, picked, 0.0), axis=-1)
    return log_prob, ops.sum(ops.cast(real, "int32"), axis=-1)
