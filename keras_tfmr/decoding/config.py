"""The options of a search and their defaults; beam search and greedy decoding with them."""

import dataclasses
from collections.abc import Sequence
from typing import Required, TypedDict, Unpack

import numpy as np
from keras import ops

from keras_tfmr.config import Config, Nested, Tensor
from keras_tfmr.decoding.constraints import Constraints
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.search import BeamSearch, SingleSearch
from keras_tfmr.decoding.step import DecodingStep, StepFunction
from keras_tfmr.decoding.topk import most_probable


@dataclasses.dataclass(frozen=True)
class DecodingConfig(Config):
    """How a trained model is decoded. Exports and the runs of published models record it.

    Fields:
        num_beams, num_return_sequences, length_penalty, length_penalty_offset, max_length,
            min_length: As for `beam_search`; `num_beams` 1 decodes greedily.
        max_length_ratio: Limits a translation to this many tokens for each source token. It stops a
            model that repeats itself, and lets a search end sooner, because it bounds the length
            of the hypotheses that could still win.
        max_length_extra: Tokens in addition to these; room for the translations of very short
            sentences, whose length varies most.

    Raises:
        ValueError: If a value is out of range, or `num_return_sequences` is greater than
            `num_beams`.

    >>> DecodingConfig.from_json('{"num_beams": 1}').replace(max_length=64).max_length
    64
    """

    num_beams: int = 4
    num_return_sequences: int = 1
    length_penalty: float = 0.6
    length_penalty_offset: float = 5.0
    max_length: int = 128
    min_length: int = 0
    max_length_ratio: float = 3.0
    max_length_extra: int = 8

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1; received {self.max_length}")
        if not 0 <= self.min_length <= self.max_length:
            raise ValueError(
                f"min_length must lie between 0 and max_length={self.max_length}; "
                f"received {self.min_length}"
            )
        if not self.length_penalty >= 0:
            # The early exit relies on a length penalty that does not fall with the length.
            raise ValueError(f"length_penalty must not be negative; received {self.length_penalty}")
        if not 0 <= self.length_penalty_offset < np.inf:
            raise ValueError(
                "length_penalty_offset must be finite and not negative; "
                f"received {self.length_penalty_offset}"
            )
        if not 1 <= self.num_return_sequences <= self.num_beams:
            raise ValueError(
                f"num_return_sequences must lie between 1 and num_beams={self.num_beams}; "
                f"received {self.num_return_sequences}"
            )
        if not 0 < self.max_length_ratio < np.inf:
            raise ValueError(
                f"max_length_ratio must be finite and positive; received {self.max_length_ratio}"
            )

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """The maximum length of the translation of each source: int `[batch]` to int32 `[batch]`.

        >>> np.array(DecodingConfig(max_length=64).max_lengths(np.array([1, 10, 100]))).tolist()
        [11, 38, 64]
        """
        longest = ops.floor(self.max_length_ratio * ops.cast(source_lengths, "float32"))
        longest = longest + self.max_length_extra  # as floats, which do not overflow
        return ops.cast(ops.clip(longest, max(self.min_length, 1), self.max_length), "int32")

    def decode(
        self,
        step: DecodingStep | StepFunction,
        cache: Nested,
        *,
        bos_ids: Tensor,
        eos_id: int | Sequence[int],
        banned_ids: Sequence[int] = (),
        prefix: Tensor | None = None,
        max_lengths: Tensor | None = None,
        slot_ids: Sequence[int] = (),
        slots: Tensor | None = None,
        num_certain: Tensor | None = None,
    ) -> DecodingResult:
        """Decodes as configured; the arguments and the result are those of `beam_search`."""
        constraints = Constraints(
            self, bos_ids=bos_ids, eos_id=eos_id, banned_ids=banned_ids, prefix=prefix,
            max_lengths=max_lengths, slot_ids=slot_ids, slots=slots,
        )  # fmt: skip
        if self.num_beams == 1:  # needs neither a selection nor a list of finished hypotheses
            return SingleSearch(step, constraints, most_probable).decode(cache)
        return BeamSearch(step, constraints, num_certain).decode(cache)


class SearchOptions(TypedDict, total=False):
    """The arguments that all decoders have: see `beam_search`."""

    bos_ids: Required[Tensor]
    eos_id: Required[int | Sequence[int]]
    max_length: Required[int]
    min_length: int
    length_penalty: float
    length_penalty_offset: float
    banned_ids: Sequence[int]
    prefix: Tensor | None
    max_lengths: Tensor | None
    slot_ids: Sequence[int]
    slots: Tensor | None


def beam_search(
    step: DecodingStep | StepFunction,
    cache: Nested,
    *,
    bos_ids: Tensor,
    eos_id: int | Sequence[int],
    num_beams: int,
    num_return_sequences: int = 1,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_penalty_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    max_lengths: Tensor | None = None,
    slot_ids: Sequence[int] = (),
    slots: Tensor | None = None,
    num_certain: Tensor | None = None,
) -> DecodingResult:
    """Keeps the `num_beams` most probable unfinished hypotheses and the n best finished ones.

    The search stops as soon as no unfinished hypothesis can get among the n best. A hypothesis that
    reaches its limit without a stop id counts as finished. If the beam is wide enough to hold all
    hypotheses, the result is exactly the n best; with one beam, it is greedy decoding.

    Args:
        step: A `DecodingStep`, or a function `step(tokens, cache) -> (log_probs, cache)`. It takes
            the last token of each row, int32 `[rows]`, and returns the normalised log-probabilities
            of the next, float32 `[rows, vocab]`, where rows = batch * num_beams, the beams of an
            example side by side.
        cache: Nested tensors for `step`, each `[rows, ...]` or of rank 0, unless the step has its
            own `reorder`. What does not differ between beams belongs in the step.
        bos_ids: int32 `[batch]`, the first token fed to `step`; not part of the result.
        eos_id: The id that ends a hypothesis, or several such ids.
        num_beams: The number of unfinished hypotheses to keep.
        num_return_sequences: n, the number of hypotheses to return, at most `num_beams`.
        max_length: The maximum length in tokens, the end id included.
        min_length: The minimum length in tokens, the end id included.
        length_penalty: alpha; hypotheses are ranked by log-probability / ((5 + length) / 6)^alpha,
            arXiv 1609.08144.
        length_penalty_offset: The 5 in that formula; 0 makes it length^alpha, as in Marian.
        banned_ids: Ids that are never produced, such as start and unknown; padding, 0, is always
            banned.
        prefix: int32 `[batch, p]`, padded with 0: tokens that every hypothesis begins with.
        max_lengths: int32 `[batch]`, the maximum length of each example; 0 for one not to be
            decoded.
        slot_ids: Up to 31 ids that are produced only as `slots` says.
        slots: int32 `[batch]`: where bit i is set, every hypothesis of the example produces
            `slot_ids[i]` once before it ends; where it is not, never. A hypothesis that reaches its
            limit may lack some.
        num_certain: How many of the n must be certain to be the best, an int or an int32 scalar; n
            by default. The search ends as soon as these are certain; the others are the best that
            it found by then. One traced search can therefore serve calls for one hypothesis and
            calls for n.

    Returns:
        DecodingResult, distinct hypotheses in descending order of score.

    Raises:
        ValueError: If a number, id or rank is out of range.

    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, cache: (ops.take(bigrams, tokens, axis=0), cache)
    >>> result = beam_search(step, (), bos_ids=[0], eos_id=1, num_beams=3, num_return_sequences=2,
    ...     max_length=4)
    >>> np.array(result.ids).tolist()
    [[[2, 1, 0, 0], [2, 2, 1, 0]]]
    """
    config = DecodingConfig(
        num_beams, num_return_sequences, length_penalty, length_penalty_offset, max_length,
        min_length,
    )  # fmt: skip
    return config.decode(
        step, cache, bos_ids=bos_ids, eos_id=eos_id, banned_ids=banned_ids, prefix=prefix,
        max_lengths=max_lengths, slot_ids=slot_ids, slots=slots, num_certain=num_certain,
    )  # fmt: skip


def greedy(
    step: DecodingStep | StepFunction, cache: Nested, **options: Unpack[SearchOptions]
) -> DecodingResult:
    """Takes the most probable token at every step: `beam_search` with one beam.

    Args:
        step, cache: As for `beam_search`.
        **options: Those of `beam_search` but for `num_beams`, `num_return_sequences` and
            `num_certain`; `length_penalty` changes the returned scores only.

    Returns:
        DecodingResult with n = 1.

    Raises:
        ValueError: If a number, id or rank is out of range.

    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, cache: (ops.take(bigrams, tokens, axis=0), cache)
    >>> result = greedy(step, (), bos_ids=[0], eos_id=1, max_length=4)
    >>> np.array(result.ids).tolist(), int(result.lengths[0, 0])
    ([[[2, 1, 0, 0]]], 2)
    """
    return SingleSearch(step, constraints_of(**options), most_probable).decode(cache)


def constraints_of(
    *, bos_ids, eos_id, max_length, min_length=0, length_penalty=0.0, length_penalty_offset=5.0,
    **constraints,
):  # fmt: skip
    """The `Constraints` of `SearchOptions`."""
    config = DecodingConfig(1, 1, length_penalty, length_penalty_offset, max_length, min_length)
    return Constraints(config, bos_ids=bos_ids, eos_id=eos_id, **constraints)
