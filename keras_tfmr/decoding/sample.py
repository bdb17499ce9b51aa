"""One hypothesis for each example, whose next token can be chosen in any way; sampling."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding.constraints import Task, forced_lengths
from keras_tfmr.decoding.result import DecodingResult, lengths_of
from keras_tfmr.decoding.search import DecodingStep, Search, StepFunction
from keras_tfmr.decoding.topk import LOWEST, argmax, relative, threshold


class _Hypotheses(NamedTuple):
    """One hypothesis for each example."""

    alive: Any  # bool [batch]
    tokens: Any  # int32 [batch], the last token
    ids: Any  # int32 [batch, length], padded with 0
    log_probs: Any  # float32 [batch]


class SingleSearch(Search):
    """The search that keeps one hypothesis for each example.

    Args:
        choose: A function `choose(log_probs, position, examples)` as in `generate`, which returns
            the next tokens and what they add to the log-probabilities, `[batch]` each. Greedy
            decoding knows the latter without looking it up.
    """

    def __init__(self, step, task, choose):
        self.choose, self.columns = choose, np.arange(task.max_length, dtype="int32")
        super().__init__(step, task)

    def start(self):
        none = ops.zeros_like(self.task.bos_ids)
        return _Hypotheses(
            alive=self.task.max_lengths > 0,
            tokens=self.task.bos_ids,
            ids=ops.add(none[:, None], np.zeros_like(self.columns)),
            log_probs=ops.cast(none, "float32"),
        )

    def unfinished(self, hypotheses):
        return hypotheses.alive

    def extend(self, position, cache, hypotheses):
        """One token more on every hypothesis that is alive."""
        alive, tokens, ids, total = hypotheses
        log_probs, cache = self.step.next(tokens, cache)  # [batch, vocab]
        log_probs = self.task.constrain(log_probs, position)
        tokens, gained = self.choose(log_probs, position, self.examples)  # [batch] each
        tokens = ops.where(alive, tokens, 0)
        total = ops.where(alive, total + gained, total)
        going = ~self.task.ends(tokens) & (position + 1 < self.task.max_lengths)
        hypotheses = _Hypotheses(
            alive=alive & going & (total > -np.inf),
            tokens=tokens,
            ids=ops.where(ops.equal(self.columns, position), tokens[:, None], ids),
            log_probs=total,
        )
        return position + 1, cache, hypotheses

    def result(self, hypotheses):
        return hypotheses.ids, hypotheses.log_probs

    def decode(self, cache):
        """The `DecodingResult` of the search that starts with this cache."""
        ids, log_probs = self.run(cache)
        ids = ops.where(log_probs[:, None] > -np.inf, ids, 0)  # no token was possible
        lengths = lengths_of(ids)  # [batch]
        fields = ids, lengths, log_probs, log_probs / self.task.penalty(lengths)
        return DecodingResult(*(field[:, None] for field in fields))


def generate(
    step: DecodingStep | StepFunction,
    cache: Nested,
    get_next_token: Callable[[Tensor, Tensor, Tensor], Tensor],
    *,
    bos_ids: Tensor,
    eos_id: int | Sequence[int],
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_penalty_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    max_lengths: Tensor | None = None,
) -> DecodingResult:
    """Decodes with a choice of the next token that you give: `sample` is an example.

    Args:
        get_next_token: A function `get_next_token(log_probs, position, examples)` that returns the
            next tokens, int32 `[rows]`. It takes the model's log-probabilities, float32 `[rows,
            vocab]`, with minus infinity for tokens that must not come; the number of tokens before,
            an int32 scalar; and for each row the index of its example, int32 `[rows]`, because
            examples that have ended may leave the batch.

    The other arguments are those of `beam_search`.

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
    task = Task(
        bos_ids=bos_ids, eos_id=eos_id, max_length=max_length, min_length=min_length,
        length_penalty=length_penalty, length_penalty_offset=length_penalty_offset,
        banned_ids=banned_ids, prefix=prefix, max_lengths=max_lengths,
    )  # fmt: skip
    forced = forced_lengths(task.bos_ids, prefix)

    def choose(log_probs, position, examples):
        tokens = get_next_token(log_probs, position, examples)
        gained = ops.take_along_axis(log_probs, tokens[:, None], axis=1)[:, 0]
        counted = position >= ops.take(forced, examples, axis=0)
        return tokens, ops.where(counted | (gained == -np.inf), gained, 0.0)

    result = SingleSearch(step, task, choose).decode(cache)
    penalty = task.penalty(result.lengths - forced[:, None])
    return result._replace(scores=result.log_probs / penalty)


def sample(
    step: DecodingStep | StepFunction,
    cache: Nested,
    *,
    bos_ids: Tensor,
    eos_id: int | Sequence[int],
    max_length: int,
    seed: int | keras.random.SeedGenerator | None = None,
    noise: Tensor | None = None,
    temperature: Tensor = 1.0,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_penalty_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    max_lengths: Tensor | None = None,
) -> DecodingResult:
    """Draws every token from the distribution that `step` gives, or from its most probable part.

    `temperature`, `top_k` and `top_p` are numbers, or tensors `[batch]` with one for each example.
    Given `noise`, what is drawn for an example depends on its own options and noise only, not on
    the rest of the batch. To draw several hypotheses for a source, repeat the source.

    Args:
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

    The other arguments are those of `beam_search`.

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
    _check_sampling(temperature, top_k, top_p)
    if (seed is None) == (noise is None):
        raise ValueError(f"Give either seed or noise; received seed={seed}, noise={noise}")
    bos_ids = ops.convert_to_tensor(bos_ids, dtype="int32")
    if noise is None:
        shape = (ops.shape(bos_ids)[0], max_length)
        noise = keras.random.uniform(shape, dtype="float32", seed=seed)
    noise = ops.convert_to_tensor(noise)  # [batch, n]
    forced = forced_lengths(bos_ids, prefix)
    none = ops.cast(ops.zeros_like(bos_ids), "float32")  # [batch]
    options = [
        none + ops.cast(default if option is None else option, "float32")
        for option, default in ((temperature, 1.0), (top_k, 0.0), (top_p, 1.0))
    ]

    def get_next_token(log_probs, position, examples):
        drawn = position - ops.take(forced, examples, axis=0)  # below 0 within the prefix
        column = ops.clip(drawn, 0, noise.shape[1] - 1)[:, None]
        numbers = ops.take_along_axis(ops.take(noise, examples, axis=0), column, axis=1)[:, 0]
        own = (ops.take(option, examples, axis=0) for option in options)  # [rows] each
        return _draw(log_probs, numbers, *own)

    return generate(
        step, cache, get_next_token, bos_ids=bos_ids, eos_id=eos_id, max_length=max_length,
        min_length=min_length, length_penalty=length_penalty,
        length_penalty_offset=length_penalty_offset, banned_ids=banned_ids, prefix=prefix,
        max_lengths=max_lengths,
    )  # fmt: skip


def _check_sampling(temperature, top_k, top_p):
    """Raises a ValueError if one that is a number is out of range."""
    if isinstance(temperature, (int, float)) and not temperature > 0:
        raise ValueError(f"temperature must be positive (`greedy` is 0); received {temperature}")
    if isinstance(top_k, int) and top_k < 1:
        raise ValueError(f"top_k must be at least 1; received {top_k}")
    if isinstance(top_p, (int, float)) and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1]; received {top_p}")


def _draw(logits, noise, temperature, top_k, top_p):
    """One token for each row of `[rows, vocab]`; the others are float32 `[rows]`."""
    best, _ = argmax(logits)
    sampled = temperature > 0

    def draw():
        below = relative(logits, ops.where(sampled, temperature, 1.0)[:, None])
        probs = ops.where(below > LOWEST, ops.exp(below), 0.0)  # up to a factor
        probs = ops.cond(
            ops.any(sampled & ((top_k > 0) | (top_p < 1))),
            lambda: _restricted(below, probs, top_k, top_p),
            lambda: probs,
        )
        return ops.where(sampled, _place_of(noise, probs), best)

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


def _place_of(noise, probs):
    """Where uniform `noise` `[rows]` falls in the sums of `probs` `[rows, vocab]`: int32 `[rows]`.

    The probabilities need not sum to 1. A place of probability 0 is never drawn.
    """
    cumulated = ops.cumsum(probs, axis=-1)
    # Rounding may lift noise * total to the total itself, past the last token that can be drawn.
    # The first place at which the sum reaches the total is therefore the last one allowed.
    reached = noise[:, None] * cumulated[:, -1:]
    passed = (cumulated <= reached) & (cumulated < cumulated[:, -1:])
    return ops.sum(ops.cast(passed, "int32"), axis=-1)
