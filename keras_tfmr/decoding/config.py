"""The config of a search: the only place of decoding defaults."""

import dataclasses
from collections.abc import Sequence

from keras import ops

from keras_tfmr._types import Nested, Tensor
from keras_tfmr.config import Config
from keras_tfmr.decoding.beam import beam_search
from keras_tfmr.decoding.constraints import check_options
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.step import DecodingStep, StepFunction

# `length_factor` stops a model that repeats itself, and lets a search end sooner, because it bounds
# the length of the hypotheses that could still win. These tokens leave room for the translations of
# very short sentences, whose length varies most.
EXTRA_LENGTH = 8


@dataclasses.dataclass(frozen=True)
class DecodingConfig(Config):
    """How a trained model is decoded. Exports and the runs of published models record it.

    Fields:
        beams: The number of unfinished hypotheses to keep; 1 decodes greedily.
        n: The number of hypotheses to return for each example, at most `beams`.
        length_penalty: alpha in ((5 + length) / 6)^alpha, arXiv 1609.08144.
        length_offset: The 5 in that formula; 0 makes it length^alpha, as in Marian.
        max_length: The maximum length in tokens, the end id included.
        min_length: The minimum length in tokens, the end id included.
        length_factor: Limits a translation to this many tokens for each source token, plus 8.

    Raises:
        ValueError: If a value is out of range, or `n` is greater than `beams`.

    >>> DecodingConfig.from_json('{"beams": 1}').replace(max_length=64).max_length
    64
    """

    beams: int = 4
    n: int = 1
    length_penalty: float = 0.6
    length_offset: float = 5.0
    max_length: int = 128
    min_length: int = 0
    length_factor: float = 3.0

    def __post_init__(self) -> None:
        check_options(
            end_id=1,
            max_length=self.max_length,
            min_length=self.min_length,
            length_penalty=self.length_penalty,
            length_offset=self.length_offset,
            banned_ids=(),
        )
        if not 1 <= self.n <= self.beams:
            raise ValueError(f"n must lie between 1 and beams={self.beams}; received {self.n}")
        if not self.length_factor > 0:
            raise ValueError(f"length_factor must be positive; received {self.length_factor}")

    def limits(self, source_lengths: Tensor) -> Tensor:
        """The maximum length of the translation of each source: int `[batch]` to int32 `[batch]`.

        >>> np.array(DecodingConfig(max_length=64).limits(np.array([1, 10, 100]))).tolist()
        [11, 38, 64]
        """
        longest = ops.floor(self.length_factor * ops.cast(source_lengths, "float32"))
        longest = ops.cast(longest, "int32") + EXTRA_LENGTH
        return ops.clip(longest, max(self.min_length, 1), self.max_length)

    def decode(
        self,
        step: DecodingStep | StepFunction,
        state: Nested,
        *,
        start_ids: Tensor,
        end_id: int,
        banned_ids: Sequence[int] = (),
        prefix: Tensor | None = None,
        limits: Tensor | None = None,
        enough: Tensor | None = None,
    ) -> DecodingResult:
        """Decodes as configured; the arguments and the result are those of `beam_search`."""
        return beam_search(
            step,
            state,
            start_ids=start_ids,
            end_id=end_id,
            beams=self.beams,
            n=self.n,
            max_length=self.max_length,
            min_length=self.min_length,
            length_penalty=self.length_penalty,
            length_offset=self.length_offset,
            banned_ids=banned_ids,
            prefix=prefix,
            limits=limits,
            enough=enough,
        )
