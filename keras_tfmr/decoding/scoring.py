"""The log-probability of given sequences, by teacher forcing."""

from keras import ops

from keras_tfmr._types import Tensor


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
        ValueError: If the ranks are not 3 and 2.

    >>> log_prob, length = score(ops.zeros((1, 3, 4)), ops.array([[2, 1, 0]]))
    >>> round(float(log_prob[0]), 4), int(length[0])
    (-2.7726, 2)
    """
    logits = ops.cast(logits, "float32")
    target_ids = ops.cast(target_ids, "int32")
    if len(logits.shape) != 3 or len(target_ids.shape) != 2:
        raise ValueError(
            "score expects logits [batch, target, vocab] and target_ids [batch, target]; received "
            f"{tuple(logits.shape)} and {tuple(target_ids.shape)}"
        )
    log_probs = ops.log_softmax(logits, axis=-1)
    picked = ops.take_along_axis(log_probs, target_ids[:, :, None], axis=-1)[:, :, 0]
    real = ops.not_equal(target_ids, 0)  # [batch, target]
    log_prob = ops.sum(ops.where(real, picked, 0.0), axis=-1)
    return log_prob, ops.sum(ops.cast(real, "int32"), axis=-1)
