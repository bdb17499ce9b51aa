"""Sampling, and decoding with any other choice of the next token."""

from collections.abc import Callable
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding.config import SearchOptions, constraints_of
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.search import SingleSearch
from keras_tfmr.decoding.step import DecodingStep, StepFunction
from keras_tfmr.decoding.topk import most_probable

# The lowest difference, in nats, from the most probable token whose exp() is not 0 in float32.
_LOWEST = -104.0
# Halvings of that range until only rounding errors are left.
_HALVINGS = 30


def generate(
    step: DecodingStep | StepFunction,
    cache: Nested,
    get_next_token: Callable[[Tensor, Tensor, Tensor], Tensor],
    **options: Unpack[SearchOptions],
) -> DecodingResult:
    """Decodes with a choice of the next token that you give: `sample` is an example.

    Args:
        step, cache: As for `greedy`.
        get_next_token: A function `get_next_token(log_probs, position, examples)` that returns the
            next tokens, int32 `[rows]`. It takes the model's log-probabilities, float32 `[rows,
            vocab]`, with minus infinity for tokens that must not come; the number of tokens before,
            an int32 scalar; and for each row the index of its example, int32 `[rows]`, because
            examples that have ended may leave the batch.
        **options: As for `greedy`.

    Returns:
        DecodingResult with n = 1. Its log-probabilities are the model's own, those of a forced
        prefix left out; its scores divide them by the length penalty of the other tokens.

    Raises:
        ValueError: If a number, id or rank is out of range.

    >>> even = ops.log(ops.array([[0.02, 0.49, 0.49]]))
    >>> second_best = lambda log_probs, *_: ops.top_k(log_probs, 2)[1][:, 1]
    >>> result = generate(lambda tokens, cache: (even, cache), (), second_best, bos_ids=[0],
    ...     eos_id=1, max_length=3)
    >>> np.array(result.ids).tolist()
    [[[2, 2, 2]]]
    """
    constraints = constraints_of(**options)
    prefix_lengths = constraints.prefix_lengths()  # [batch]

    def choose(log_probs, position, examples):
        tokens = get_next_token(log_probs, position, examples)
        gained = ops.take_along_axis(log_probs, tokens[:, None], axis=1)[:, 0]
        counted = position >= ops.take(prefix_lengths, examples, axis=0)
        return tokens, ops.where(counted | (gained == -np.inf), gained, 0.0)

    result = SingleSearch(step, constraints, choose).decode(cache)
    penalty = constraints.penalty(result.lengths - prefix_lengths[:, None])
    return result._replace(scores=result.log_probs / penalty)


def sample(
    step: DecodingStep | StepFunction,
    cache: Nested,
    *,
    seed: int | keras.random.SeedGenerator | None = None,
    noise: Tensor | None = None,
    temperature: Tensor = 1.0,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    **options: Unpack[SearchOptions],
) -> DecodingResult:
    """Draws every token from the distribution that `step` gives, or from its most probable part.

    `temperature`, `top_k` and `top_p` are numbers, or tensors `[batch]` with one for each example.
    Given `noise`, what is drawn for an example depends on its own options and noise only, not on
    the rest of the batch. To draw several hypotheses for a source, repeat the source.

    Args:
        step, cache: As for `greedy`.
        seed: An int, or a `keras.random.SeedGenerator`, which advances with every call. The same
            seed gives the same ids for the same batch on the same backend. On TensorFlow, it gives
            different ids with XLA and without.
        noise: float32 `[batch, n]`, uniform in [0, 1), instead of a seed: one number for each token
            drawn after the example's prefix; the last one is used for all tokens beyond n.
        temperature: Log-probabilities are divided by it; below 1, probable tokens become more
            probable. If one in a tensor is not positive, the most probable token is taken.
        top_k: Draw from the k most probable tokens only; None, or not positive in a tensor, for
            all. Tokens as probable as the last one of them are allowed too.
        top_p: Draw from the smallest set of most probable tokens whose probabilities, at this
            temperature, sum to p or more; None or 1 for all. With `top_k`, the probabilities of the
            k tokens are renormalised first.
        **options: As for `greedy`.

    Returns:
        DecodingResult with n = 1. Its log-probabilities are the model's own, whatever the options
        are; with its scores, they are those of `generate`.

    Raises:
        ValueError: If a number, id or rank is out of range, or both or neither of `seed` and
            `noise` are given.

    Paper: "The Curious Case of Neural Text Degeneration" (arXiv 1904.09751), for `top_p`.

    >>> log_probs = ops.log(ops.array([[0.02, 0.5, 0.4, 0.08]]))
    >>> step = lambda tokens, cache: (ops.repeat(log_probs, 2, axis=0), cache)
    >>> result = sample(step, (), bos_ids=[0, 0], eos_id=3, max_length=2,
    ...     noise=ops.array([[0.9, 0.9], [0.9, 0.9]]), temperature=ops.array([0.0, 1.0]), top_k=2)
    >>> np.array(result.ids).tolist()
    [[[1, 1]], [[2, 2]]]
    """
    if isinstance(temperature, (int, float)) and not temperature > 0:
        raise ValueError(f"temperature must be positive (`greedy` is 0); received {temperature}")
    if isinstance(top_k, int) and top_k < 1:
        raise ValueError(f"top_k must be at least 1; received {top_k}")
    if isinstance(top_p, (int, float)) and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1]; received {top_p}")
    if (seed is None) == (noise is None):
        raise ValueError(f"Give either seed or noise; received seed={seed}, noise={noise}")
    constraints = constraints_of(**options)
    prefix_lengths = constraints.prefix_lengths()  # [batch]
    if noise is None:
        shape = (ops.shape(prefix_lengths)[0], options["max_length"])
        noise = keras.random.uniform(shape, dtype="float32", seed=seed)
    noise = ops.convert_to_tensor(noise)  # [batch, n]
    none = ops.cast(ops.zeros_like(prefix_lengths), "float32")  # [batch]
    per_example = [
        none + ops.cast(default if option is None else option, "float32")
        for option, default in ((temperature, 1.0), (top_k, 0.0), (top_p, 1.0))
    ]

    def get_next_token(log_probs, position, examples):
        drawn = position - ops.take(prefix_lengths, examples, axis=0)  # below 0 within the prefix
        column = ops.clip(drawn, 0, noise.shape[1] - 1)[:, None]
        numbers = ops.take_along_axis(ops.take(noise, examples, axis=0), column, axis=1)[:, 0]
        own = (ops.take(option, examples, axis=0) for option in per_example)  # [rows] each
        return _draw(log_probs, numbers, *own)

    return generate(step, cache, get_next_token, **options)


def _draw(log_probs, noise, temperature, top_k, top_p):
    """One token for each row of `[rows, vocab]`; the others are float32 `[rows]`."""
    best, _ = most_probable(log_probs)
    sampled = temperature > 0

    def draw():
        # Differences from the best, clipped where exp() is 0.
        below = log_probs - ops.max(log_probs, axis=-1, keepdims=True)  # [rows, vocab]
        below = ops.maximum(below / ops.where(sampled, temperature, 1.0)[:, None], 2 * _LOWEST)
        probs = ops.where(below > _LOWEST, ops.exp(below), 0.0)  # up to a factor
        probs = ops.cond(
            ops.any(sampled & ((top_k > 0) | (top_p < 1))),
            lambda: _restricted(below, probs, top_k, top_p),
            lambda: probs,
        )
        return ops.where(sampled, _drawn(noise, probs), best)

    return ops.cond(ops.any(sampled), draw, lambda: best)


def _restricted(below, probs, top_k, top_p):
    """The probabilities `[rows, vocab]`, with 0 for tokens that must not be drawn."""
    # An unrestricted row wants more than it has, so that nothing lies below its threshold.
    wanted = ops.where(top_k > 0, top_k, float("inf"))
    tokens = ops.cast(probs > 0, "float32")
    probs = ops.where(below >= threshold(below, tokens, wanted)[:, None], probs, 0.0)
    mass = ops.sum(probs, axis=-1)
    lowest = threshold(below, probs, ops.where(top_p < 1, top_p * mass, float("inf")))
    return ops.where(below >= lowest[:, None], probs, 0.0)


def threshold(below, weights, wanted):
    """The highest value such that the weights at and above it sum to `wanted` or more.

    Found by bisection, so that the vocabulary need not be sorted. Values that differ only by
    rounding count as equal.

    Args:
        below: float32 `[rows, n]`, at most 0.
        weights: float32 `[rows, n]`, at least 0.
        wanted: float32 `[rows]`.

    Returns:
        float32 `[rows]`; `_LOWEST` for rows whose weights do not sum to `wanted`.

    >>> below = np.log(np.array([[0.25, 1.0, 0.5]], "float32"))
    >>> lowest = threshold(below, np.exp(below), np.array([1.2], "float32"))
    >>> (np.array(below >= lowest[:, None])).tolist()
    [[False, True, True]]
    """

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        reached = ops.sum(ops.where(below >= middle[:, None], weights, 0.0), axis=-1)
        enough = reached >= wanted
        return ops.where(enough, middle, low), ops.where(enough, high, middle)

    low = ops.zeros_like(below[:, 0]) + _LOWEST
    return ops.fori_loop(0, _HALVINGS, halve, (low, ops.zeros_like(low)))[0]


def _drawn(noise, probs):
    """Where uniform `noise` `[rows]` falls in the sums of `probs` `[rows, vocab]`: int32 `[rows]`.

    The probabilities need not sum to 1. A token of probability 0 is never drawn.
    """
    cumulated = ops.cumsum(probs, axis=-1)
    # Rounding may lift noise * total to the total itself, past the last token that can be drawn.
    # The first token at which the sum reaches the total is therefore the last one allowed.
    reached = noise[:, None] * cumulated[:, -1:]
    passed = (cumulated <= reached) & (cumulated < cumulated[:, -1:])
    return ops.sum(ops.cast(passed, "int32"), axis=-1)
