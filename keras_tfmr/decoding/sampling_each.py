"""Sampling with separate options for each example, such as requests from several callers."""

from collections.abc import Sequence

from keras import ops

from keras_tfmr._types import Nested, Tensor
from keras_tfmr.decoding.constraints import make_task
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.sampling import draw_place
from keras_tfmr.decoding.single import decode_single
from keras_tfmr.decoding.step import DecodingStep, StepFunction
from keras_tfmr.decoding.topk import LOWEST, argmax, picked, relative, threshold


def sample_each(
    step: DecodingStep | StepFunction,
    state: Nested,
    *,
    start_ids: Tensor,
    end_id: int,
    max_length: int,
    noise: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    limits: Tensor | None = None,
) -> DecodingResult:
    """Draws every token as `sample` does, with separate options and noise for each example.

    What is drawn for an example depends on its own options and noise, not on the rest of the batch.
    The returned log-probabilities are the model's own, without those of a forced prefix. If several
    tokens are as probable as the last one that `top_k` or `top_p` allows, all of them are allowed.

    Args:
        noise: float32 `[batch, n]`, uniform in [0, 1): one number for each token drawn after the
            example's prefix; the last one is used for all tokens beyond n.
        temperature: float32 `[batch]`, by which log-probabilities are divided; if it is not
            positive, the most probable token is taken.
        top_k: int32 `[batch]`: draw from the k most probable tokens only; from all if it is not
            positive.
        top_p: float32 `[batch]`: draw from the smallest set of most probable tokens whose
            probabilities, at this temperature, sum to p or more; from all if it is 1 or more.
            With `top_k`, the probabilities of the k tokens are renormalised first.

    The other arguments are those of `greedy`.

    Returns:
        DecodingResult with n = 1.

    Raises:
        ValueError: If a number, id or rank is out of range.

    Paper: "The Curious Case of Neural Text Degeneration" (arXiv 1904.09751), for `top_p`.

    >>> log_probs = ops.log(ops.array([[0.02, 0.5, 0.4, 0.08]]))
    >>> step = lambda tokens, state: (ops.repeat(log_probs, 2, axis=0), state)
    >>> result = sample_each(step, (), start_ids=[0, 0], end_id=3, max_length=2,
    ...     noise=ops.array([[0.9, 0.9], [0.9, 0.9]]), temperature=ops.array([0.0, 1.0]),
    ...     top_k=ops.array([0, 2]), top_p=ops.array([1.0, 1.0]))
    >>> np.array(result.ids).tolist()
    [[[1, 1]], [[2, 2]]]
    """
    task = make_task(
        start_ids=start_ids,
        end_id=end_id,
        max_length=max_length,
        min_length=min_length,
        length_penalty=length_penalty,
        length_offset=length_offset,
        banned_ids=banned_ids,
        prefix=prefix,
        limits=limits,
    )
    forced = ops.zeros_like(task.start_ids)
    if prefix is not None:
        forced = ops.sum(ops.cast(ops.not_equal(prefix, 0), "int32"), axis=1)  # [batch]
    last = noise.shape[1] - 1

    def choose(log_probs, free, position, rows):
        place = position - ops.take(forced, rows, axis=0)  # below 0 within the prefix
        drawn = ops.take_along_axis(
            ops.take(noise, rows, axis=0), ops.clip(place, 0, last)[:, None], axis=1
        )[:, 0]
        own = (ops.take(option, rows, axis=0) for option in (temperature, top_k, top_p))
        tokens = _draw(free, drawn, *own)
        return tokens, ops.where(place < 0, 0.0, picked(log_probs, tokens))

    return decode_single(step, state, choose, task)


def _draw(logits, noise, temperature, top_k, top_p):
    """One token per row of `[rows, vocab]`."""
    best, _ = argmax(logits)
    sampled = temperature > 0

    def draw():
        below = relative(logits, ops.where(sampled, temperature, 1.0)[:, None])
        probs = ops.where(below > LOWEST, ops.exp(below), 0.0)
        probs = ops.cond(
            ops.any(sampled & ((top_k > 0) | (top_p < 1))),
            lambda: _restricted(below, probs, top_k, top_p),
            lambda: probs,
        )
        return ops.where(sampled, draw_place(probs, noise), best)

    return ops.cond(ops.any(sampled), draw, lambda: best)


def _restricted(below, probs, top_k, top_p):
    """The probabilities `[rows, vocab]`, with 0 for tokens that must not be drawn."""
    tokens = ops.cast(probs > 0, "float32")
    # An unrestricted row wants more than it has, so that nothing lies below its threshold.
    wanted = ops.where(top_k > 0, ops.cast(top_k, "float32"), probs.shape[-1] + 1.0)
    probs = ops.where(below >= threshold(below, tokens, wanted)[:, None], probs, 0.0)
    mass = ops.sum(probs, axis=-1)
    lowest = threshold(below, probs, ops.where(top_p < 1, top_p * mass, 2 * mass))
    return ops.where(below >= lowest[:, None], probs, 0.0)
