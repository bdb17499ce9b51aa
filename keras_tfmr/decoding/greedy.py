"""Greedy decoding: the most probable token at each step."""

from collections.abc import Sequence

from keras_tfmr._types import Nested, Tensor
from keras_tfmr.decoding.constraints import make_task
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.single import decode_single
from keras_tfmr.decoding.step import DecodingStep, StepFunction
from keras_tfmr.decoding.topk import argmax


def greedy(
    step: DecodingStep | StepFunction,
    state: Nested,
    *,
    start_ids: Tensor,
    end_id: int,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    limits: Tensor | None = None,
) -> DecodingResult:
    """Takes the most probable token at every step, until every example has ended.

    Args:
        step: A `DecodingStep`, or a function `step(tokens, state) -> (log_probs, state)`. It takes
            the last token of each row, int32 `[rows]`, and returns the normalised log-probabilities
            of the next, float32 `[rows, vocab]`.
        state: nested tensors for `step`; shapes and dtypes stay the same from step to step.
        start_ids: int32 `[batch]`, the first token fed to `step`; not part of the result.
        end_id: The id that ends a hypothesis.
        max_length: The maximum length in tokens, the end id included. A hypothesis that reaches it
            without the end id stops there.
        min_length: The minimum length in tokens, the end id included.
        length_penalty: alpha of the returned scores; it does not change the ids.
        length_offset: 5 by default; 0 for scores by length^alpha. See `length_penalty`.
        banned_ids: Ids that are never produced, such as start and unknown; padding, 0, is always
            banned.
        prefix: int32 `[batch, p]`, padded with 0: tokens that every hypothesis begins with.
        limits: int32 `[batch]`, the maximum length of each example; 0 for one not to be decoded.

    Returns:
        DecodingResult with n = 1.

    Raises:
        ValueError: If a number, id or rank is out of range.

    >>> import numpy as np; from keras import ops
    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, state: (ops.take(bigrams, tokens, axis=0), state)
    >>> result = greedy(step, (), start_ids=[0], end_id=1, max_length=4)
    >>> np.array(result.ids).tolist(), int(result.lengths[0, 0])
    ([[[2, 1, 0, 0]]], 2)
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
    return decode_single(step, state, most_probable, task)


def most_probable(log_probs, free, position, rows):
    """The choice of greedy decoding, for `decode_single`."""
    return argmax(free)
