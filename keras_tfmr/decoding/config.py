"""The config of a search: the only place of decoding defaults."""

import dataclasses
from collections.abc import Sequence

from keras import ops

from keras_tfmr.config import Config, Nested, Tensor
from keras_tfmr.decoding.beam import beam_search
from keras_tfmr.decoding.constraints import check_lengths, check_sequences
from keras_tfmr.decoding.result import DecodingResult
from keras_tfmr.decoding.search import DecodingStep, StepFunction


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
        check_lengths(self)
        check_sequences(self.num_return_sequences, self.num_beams)
        if not self.max_length_ratio > 0:
            raise ValueError(f"max_length_ratio must be positive; received {self.max_length_ratio}")

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """The maximum length of the translation of each source: int `[batch]` to int32 `[batch]`.

        >>> np.array(DecodingConfig(max_length=64).max_lengths(np.array([1, 10, 100]))).tolist()
        [11, 38, 64]
        """
        longest = ops.floor(self.max_length_ratio * ops.cast(source_lengths, "float32"))
        longest = ops.cast(longest, "int32") + self.max_length_extra
        return ops.clip(longest, max(self.min_length, 1), self.max_length)

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
        num_certain: Tensor | None = None,
    ) -> DecodingResult:
        """Decodes as configured; the arguments and the result are those of `beam_search`."""
        fields = self.to_dict()
        del fields["max_length_ratio"], fields["max_length_extra"]  # for `max_lengths`
        return beam_search(
            step, cache, bos_ids=bos_ids, eos_id=eos_id, banned_ids=banned_ids, prefix=prefix,
            max_lengths=max_lengths, num_certain=num_certain, **fields,
        )  # fmt: skip
