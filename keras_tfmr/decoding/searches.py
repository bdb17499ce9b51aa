"""`search`, the entry point of greedy search, beam search and sampling."""

from collections.abc import Callable

import numpy as np

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding.beams import beam_search
from keras_tfmr.decoding.constraints import Constraints, limits_of
from keras_tfmr.decoding.decoding_config import DecodingConfig
from keras_tfmr.decoding.examples import Examples
from keras_tfmr.decoding.greedy import greedy_search
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.sampling import Sampling
from keras_tfmr.decoding.step import DecodingStep, FunctionStep, StepFunction


def search(
    step: DecodingStep | StepFunction,
    state: Nested,
    config: DecodingConfig,
    examples: Examples,
    *,
    choose: Sampling | Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    num_certain: Tensor | None = None,
) -> DecodingResult:
    """Decodes a batch of examples, one token after the other.

    With several beams, it keeps the `num_beams` most probable unfinished hypotheses and the n best
    finished ones, and stops as soon as no unfinished one can get among them. A hypothesis that
    reaches its limit without a stop id counts as finished. If the beam is wide enough to hold all
    hypotheses, the result is exactly the n best. With one beam, it takes the most probable token at
    every step, or another that `choose` chooses.

    Args:
        step: A `DecodingStep`, or a function `step(tokens, state) -> (log_probs, state)`. It takes
            the last token of each row, int32 `[rows]`, and returns the normalised log-probabilities
            of the next, float32 `[rows, vocab]`, where rows = batch * num_beams, the beams of an
            example side by side.
        state: Nested tensors for `step`, each `[rows, ...]` or of rank 0, unless the step has its
            own `reorder`, which leaves alone what the beams of an example share, such as its
            source `[batch, ...]`.
        config: A `DecodingConfig`: lengths, beams, length penalty. A search leaves its
            `max_length_ratio` and `max_length_extra` to `max_lengths` of the examples.
        examples: The `Examples`: where each begins, its limit, prefix and slots, and special ids.
        choose: A `Sampling`, or a function `choose(log_probs, position, examples)` that returns the
            next tokens, int32 `[batch]`. It takes the model's log-probabilities, float32 `[batch,
            vocab]`, with minus infinity for tokens that must not come; the number of tokens before,
            an int32 scalar; and for each row the index of its example, int32 `[batch]`, because
            examples that have ended may leave the batch. It needs `num_beams=1`.
        num_certain: How many of the n must be certain to be the best, an int or an int32 scalar; n
            by default. The search ends as soon as these are certain; the others are the best that
            it found by then. One traced search can therefore serve calls for one hypothesis and
            calls for n.

    Returns:
        DecodingResult, distinct hypotheses in descending order of score. Log-probabilities are the
        model's own. With `choose`, those of a prefix are left out, and the scores divide by the
        length penalty of the other tokens.

    Raises:
        ValueError: If a shape, or a number or id whose value is known, is out of range, the step
            was started for other beams or fewer tokens, or a known log-probability is NaN.
        TypeError: If `step`, `config` or `examples` is something else.

    >>> from keras import ops
    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, state: (ops.take(bigrams, tokens, axis=0), state)
    >>> config = DecodingConfig(num_beams=3, num_return_sequences=2, max_length=4)
    >>> examples = Examples(bos_ids=[0], eos_id=1)
    >>> np.array(search(step, (), config, examples).ids).tolist()
    [[[2, 1, 0, 0], [2, 2, 1, 0]]]
    >>> np.array(search(step, (), config.replace(num_beams=1, num_return_sequences=1), examples,
    ...     choose=lambda log_probs, *_: ops.top_k(log_probs, 2)[1][:, 1]).ids).tolist()
    [[[1, 0, 0, 0]]]
    """
    step = step if isinstance(step, DecodingStep) else FunctionStep(step)
    _checks.instance("config", config, DecodingConfig)
    _checks.instance("examples", examples, Examples)
    room = _checks.known(step.max_length)  # None for any number, and for one known in a run only
    if room is not None and room < config.max_length:
        raise ValueError(
            f"The step was started for max_length={room} tokens; "
            f"received max_length={config.max_length}"
        )
    if step.num_beams not in (None, config.num_beams):
        raise ValueError(
            f"The step was started for num_beams={step.num_beams}; "
            f"received num_beams={config.num_beams}"
        )
    n = config.num_return_sequences
    if num_certain is None:
        num_certain = n
    else:
        num_certain = _checks.tensor("num_certain", num_certain, "int32", 1, n)
    if choose is not None and config.num_beams > 1:
        raise ValueError(f"`choose` needs num_beams=1; received {config.num_beams}")
    constraints = Constraints(config, examples)
    if step.vocab_size is not None:
        constraints.check_ids(step.vocab_size)
    in_run = room is None or examples.prompt is not None  # known there, or less than the prompts
    limits = limits_of(config, examples, step.max_length if in_run else None)
    if config.num_beams == 1:  # needs neither a selection nor a list of finished hypotheses
        result = greedy_search(step, state, constraints, examples, limits, choose)
    else:
        result = beam_search(step, state, constraints, examples, limits, num_certain)
    check_numbers(result)
    return result


def check_numbers(result: DecodingResult) -> None:
    """Raises a ValueError if a log-probability of a result is known, and NaN."""
    log_probs = _checks.known(result.log_probs)
    if log_probs is not None and np.isnan(log_probs).any():
        examples = np.flatnonzero(np.isnan(log_probs).any(axis=1))
        raise ValueError(
            "The log-probabilities of the next token must be numbers. Received: NaN in the "
            f"examples {examples.tolist()!s:.100}"
        )
