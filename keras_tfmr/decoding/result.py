"""What every decoder returns, and the length penalty of its scores."""

from typing import NamedTuple

from keras import ops

from keras_tfmr._types import Tensor


class DecodingResult(NamedTuple):
    """Hypotheses of a batch, best first.

    A length includes the end id if it was produced, and never the start id. There can be fewer than
    `n` hypotheses, for example with a tiny vocabulary or a maximum length of 1. The missing ones
    have length 0, ids of padding, and minus infinity for `log_probs` and `scores`.

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

    Paper: "Google's Neural Machine Translation System" (arXiv 1609.08144), section 7.

    >>> float(length_penalty([7], alpha=1.0)[0])
    2.0
    >>> float(length_penalty([7], alpha=1.0, offset=0.0)[0])
    7.0
    """
    lengths = ops.maximum(ops.cast(lengths, "float32"), 1.0)
    return ops.power((offset + lengths) / (offset + 1.0), float(alpha))
