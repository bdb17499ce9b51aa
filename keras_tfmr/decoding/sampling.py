"""Sampling from the model's distribution, or from its most probable part."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_tfmr._types import Nested, Tensor
from keras_tfmr.decoding.constraints import make_task
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.single import decode_single
from keras_tfmr.decoding.step import DecodingStep, StepFunction
from keras_tfmr.decoding.topk import picked, relative, threshold, top_sums


def sample(
    step: DecodingStep | StepFunction,
    state: Nested,
    *,
    start_ids: Tensor,
    end_id: int,
    max_length: int,
    seed: int | keras.random.SeedGenerator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    limits: Tensor | None = None,
) -> DecodingResult:
    """Draws every token from the distribution that `step` gives.

    The returned log-probabilities are the model's own, whatever `temperature`, `top_k` and `top_p`
    are. To draw several hypotheses for a source, repeat the source.

    Args:
        seed: An int, or a `keras.random.SeedGenerator`, which advances with every call. The same
            seed gives the same ids for the same batch on the same backend. On TensorFlow, it gives
            different ids with XLA and without.
        temperature: Log-probabilities are divided by it; below 1, probable tokens become more
            probable.
        top_k: Draw from the k most probable tokens only; None for all.
        top_p: Draw from the smallest set of most probable tokens whose probabilities, at this
            temperature, sum to p or more; None for all. With `top_k`, the probabilities of the k
            tokens are renormalised first.

    The other arguments are those of `greedy`.

    Returns:
        DecodingResult with n = 1.

    Raises:
        ValueError: If a number, id or rank is out of range.

    Paper: "The Curious Case of Neural Text Degeneration" (arXiv 1904.09751), for `top_p`.

    >>> even = ops.log(ops.array([[0.02, 0.49, 0.49]]))
    >>> result = sample(lambda tokens, state: (even, state), (), start_ids=[0], end_id=1,
    ...     max_length=5, seed=7, top_k=2)
    >>> tuple(result.ids.shape)
    (1, 1, 5)
    """
    _check_sampling(temperature, top_k, top_p)
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
    shape = (max_length, ops.shape(task.start_ids)[0])
    noise = keras.random.uniform(shape, dtype="float32", seed=seed)  # [length, batch]

    def choose(log_probs, free, position, rows):
        drawn = ops.take(ops.take(noise, position, axis=0), rows, axis=0)
        tokens = _draw(free, drawn, temperature, top_k, top_p)
        return tokens, picked(log_probs, tokens)

    return decode_single(step, state, choose, task)


def _check_sampling(temperature, top_k, top_p):
    if not temperature > 0:
        raise ValueError(f"temperature must be positive (`greedy` is 0); received {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1; received {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1]; received {top_p}")


def _draw(logits, noise, temperature, top_k, top_p):
    """One token for each row of `[rows, vocab]`, drawn with uniform `noise` `[rows]`."""
    vocab, order = logits.shape[-1], None
    if top_k is not None and top_k < vocab:
        logits, _, order = top_sums(ops.zeros_like(logits[:, :1]), logits, top_k)
    below = relative(logits, temperature)
    probs = ops.exp(below)  # up to a factor
    if top_p is not None:
        lowest = threshold(below, probs, top_p * ops.sum(probs, axis=-1))
        probs = ops.where(below >= lowest[:, None], probs, 0.0)
    place = draw_place(probs, noise)
    return place if order is None else picked(order, place)


def draw_place(probs, noise):
    """Where uniform `noise` `[rows]` falls in the sums of `probs` `[rows, vocab]`: int32 `[rows]`.

    The probabilities need not sum to 1. A place of probability 0 is never drawn.
    """
    cumulated = ops.cumsum(probs, axis=-1)
    # Rounding may lift noise * total to the total itself, past the last token that can be drawn.
    # The first place at which the sum reaches the total is therefore the last one allowed.
    reached = noise[:, None] * cumulated[:, -1:]
    passed = (cumulated <= reached) & (cumulated < cumulated[:, -1:])
    return ops.sum(ops.cast(passed, "int32"), axis=-1)
