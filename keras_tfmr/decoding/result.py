"""What every decoder returns, and the length penalty its scores are made with."""

from typing import NamedTuple

from keras import ops

from keras_tfmr._types import Tensor


class DecodingResult(NamedTuple):
    """Hypotheses of a batch, best first.

    Every length counts the end id where one was produced; the start id is never included. Fewer
    than `n` hypotheses can exist (a tiny vocabulary, a length limit of 1): the missing ones have
    length 0, padding for ids and minus infinity for both scores.

    Fields:
        ids: int32 `[batch, n, length]`, padded with 0; `length` is the `max_length` asked for.
        lengths: int32 `[batch, n]`.
        log_probs: float32 `[batch, n]`, the sum over the tokens of log p(token | tokens before).
        scores: float32 `[batch, n]`, `log_probs` divided by the length penalty.
    """

    ids: Tensor
    lengths: Tensor
    log_probs: Tensor
    scores: Tensor


def length_penalty(lengths: Tensor, alpha: float, offset: float = 5.0) -> Tensor:
    """The length penalty ((k + length) / (k + 1))^alpha, by which a log-probability is divided.

    Args:
        lengths: integers of any shape, counting the end id; 0, the length of a hypothesis that was
            not wanted, counts as 1.
        alpha: 0 for none; around 0.6 for translation.
        offset: k. 5 is the paper's; 0 makes it length^alpha, as Marian, transformers and
            CTranslate2 have it, which with alpha = 1 ranks by the mean over the tokens.

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
