"""Sampling: a way to choose the next token of a search."""

import dataclasses
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Tensor
from keras_tfmr.decoding.topk import most_probable

# The lowest difference, in nats, from the most probable token whose exp() is not 0 in float32.
_LOWEST = -104.0
# Halvings of that range until only rounding errors are left.
_HALVINGS = 30
_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
_FINITE = float(np.finfo("float32").max)


class Draws(NamedTuple):
    """The noise and the options of each example, which travel with its hypothesis."""

    noise: Tensor  # float32 [batch, n], uniform in [0, 1)
    temperature: Tensor  # float32 [batch]
    top_k: Tensor  # float32 [batch]
    top_p: Tensor  # float32 [batch]


@dataclasses.dataclass(frozen=True, eq=False)
class Sampling:
    """Draws every token from the distribution of the step, or from its most probable part.

    It is the `choose` of a `search`. `temperature`, `top_k` and `top_p` are numbers, or tensors
    `[batch]` with one for each example. Given `noise`, what is drawn for an example depends on its
    own options and noise only, not on the rest of the batch. To draw several hypotheses for a
    source, repeat the source.

    Args:
        seed: An int, or a `keras.random.SeedGenerator`, which advances with every search. The same
            seed gives the same ids for the same batch on the same backend. On TensorFlow, it gives
            different ids with XLA and without.
        noise: float32 `[batch, n]`, uniform in [0, 1), instead of a seed: one number for each token
            drawn after the example's prefix; the last one is used for all tokens beyond n.
        temperature: Log-probabilities are divided by it; below 1, probable tokens become more
            probable. If one in a tensor is not positive, the most probable token is taken.
        top_k: Draw from the k most probable tokens only; None, or not positive in a tensor, for
            all. Tokens as probable as the last one of them are allowed too.
        top_p: Draw from the smallest set of most probable tokens whose probabilities, at this
            temperature, sum to p or more; None or 1 for all. If one in a tensor is not positive,
            the most probable tokens are taken. With `top_k`, the probabilities of the k tokens are
            renormalised first.

    Raises:
        ValueError: If a shape, or a number whose value is known, is out of range, or both or
            neither of `seed` and `noise` are given.

    Reference: "The Curious Case of Neural Text Degeneration" (arXiv 1904.09751), for `top_p`.

    >>> from keras_tfmr.decoding import DecodingConfig, Examples, search
    >>> log_probs = ops.log(ops.array([[0.02, 0.5, 0.4, 0.08]]))
    >>> step = lambda tokens, state: (ops.repeat(log_probs, 2, axis=0), state)
    >>> noise, temperature = ops.array([[0.9, 0.9], [0.9, 0.9]]), ops.array([0.0, 1.0])
    >>> result = search(step, (), DecodingConfig(num_beams=1, max_length=2),
    ...     Examples(bos_ids=[0, 0], eos_id=3),
    ...     choose=Sampling(noise=noise, temperature=temperature, top_k=2))
    >>> np.array(result.ids).tolist()
    [[[1, 1]], [[2, 2]]]
    """

    seed: int | keras.random.SeedGenerator | None = None
    noise: Tensor | None = None
    temperature: Tensor = 1.0
    top_k: Tensor | None = None
    top_p: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.seed is None) == (self.noise is None):
            raise ValueError(
                f"Give either seed or noise; received seed={self.seed}, noise={self.noise}"
            )
        if self.seed is not None and not isinstance(self.seed, keras.random.SeedGenerator):
            _checks.integer("seed", self.seed, 0, 2**32 - 1)
        noise, top_k, top_p = self.noise, self.top_k, self.top_p
        if noise is not None:
            noise = _checks.tensor("noise", noise, "float32", 0.0, _BELOW_ONE, batch=None, n=None)
            if noise.shape[1] == 0:
                raise ValueError("noise must hold a number for each example; received none")
        number = {"dtype": "float32", "check": _checks.number, "positive": True}
        whole = {"dtype": "int32", "check": _checks.integer, "least": 1}
        temperature = _option("temperature", self.temperature, **number)
        top_k = 0.0 if top_k is None else _option("top_k", top_k, **whole)
        top_p = 1.0 if top_p is None else _option("top_p", top_p, **number, most=1)
        object.__setattr__(self, "noise", noise)  # the way to set a field of a frozen dataclass
        object.__setattr__(self, "temperature", temperature)
        object.__setattr__(self, "top_k", top_k)
        object.__setattr__(self, "top_p", top_p)

    def draws(self, zeros: Tensor, max_length: int) -> Draws:
        """The noise and the options of each example of a batch.

        Args:
            zeros: int32 `[batch]`, zeros.
            max_length: The maximum length in tokens.

        Raises:
            ValueError: If the noise or an option has another batch size.
        """
        batch, noise = zeros.shape[0], self.noise
        if noise is None:
            shape = (ops.shape(zeros)[0], max_length)
            noise = keras.random.uniform(shape, dtype="float32", seed=self.seed)
        _checks.shaped("noise", noise, batch=batch, n=None)
        given = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        options = {}
        for name, option in given.items():
            if len(np.shape(option)):
                _checks.shaped(name, option, batch=batch)
            options[name] = ops.cast(zeros, "float32") + option  # [batch]
        return Draws(noise, **options)


def _option(name, value, *, dtype, check, **span):
    """A number that the check accepts, or the tensor `[batch]` of numbers of any sign."""
    numbers = _checks.known(value)
    if numbers is not None and numbers.ndim == 0:
        return check(name, numbers.item(), **span)
    axes = {"batch": None} if len(np.shape(value)) else {}
    return ops.cast(_checks.tensor(name, value, dtype, -_FINITE, _FINITE, **axes), "float32")


def draw(log_probs: Tensor, count: Tensor, draws: Draws) -> Tensor:
    """Draws one token for each example, int32 `[batch]`.

    Args:
        log_probs: float32 `[batch, vocab]`.
        count: int32 `[batch]`, how many were drawn before; below 0 in the prefix.
        draws: The `Draws`.
    """
    noise, temperature, top_k, top_p = draws
    column = ops.clip(count, 0, noise.shape[1] - 1)[:, None]
    noise = ops.take_along_axis(noise, column, axis=1)[:, 0]  # [batch]
    best, _ = most_probable(log_probs)
    sampled = temperature > 0

    def sample():
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

    return ops.cond(ops.any(sampled), sample, lambda: best)


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
