"""The options of a search and their defaults."""

import dataclasses

from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Config, Tensor


@dataclasses.dataclass(frozen=True)
class DecodingConfig(Config):
    """The options of decoding. Exports and the runs of published models record them.

    Fields:
        num_beams: The number of unfinished hypotheses to keep. 1 decodes greedily: the most
            probable token is taken at every step.
        num_return_sequences: n, the number of hypotheses to return, at most `num_beams`.
        length_penalty: alpha; hypotheses are ranked by log-probability / ((5 + length) / 6)^alpha,
            arXiv 1609.08144.
        length_penalty_offset: The 5 in that formula; 0 makes it length^alpha, as in Marian.
        max_length: The maximum length in tokens, the end id included.
        min_length: The minimum length in tokens, the end id included.
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
        beams, longest = self.num_beams, self.max_length
        checked = {  # Python's own numbers
            "num_beams": _checks.integer("num_beams", beams),
            "num_return_sequences": _checks.integer(
                "num_return_sequences", self.num_return_sequences, 1, beams, "num_beams"
            ),
            "max_length": _checks.integer("max_length", longest),
            "min_length": _checks.integer("min_length", self.min_length, 0, longest, "max_length"),
            "max_length_extra": _checks.integer("max_length_extra", self.max_length_extra, 0),
            # The early exit relies on a length penalty that does not fall with the length.
            "length_penalty": _checks.number("length_penalty", self.length_penalty),
            "length_penalty_offset": _checks.number(
                "length_penalty_offset", self.length_penalty_offset
            ),
            "max_length_ratio": _checks.number(
                "max_length_ratio", self.max_length_ratio, positive=True
            ),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)  # the way to set a field of a frozen dataclass

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """The maximum length of the translation of each source: int `[batch]` to int32 `[batch]`.

        >>> np.array(DecodingConfig(max_length=64).max_lengths(np.array([1, 10, 100]))).tolist()
        [11, 38, 64]
        """
        lengths = _checks.tensor(
            "source_lengths", source_lengths, "int32", 0, _checks.LARGEST, batch=None
        )
        longest = ops.floor(self.max_length_ratio * ops.cast(lengths, "float32"))
        longest = longest + self.max_length_extra  # as floats, which do not overflow
        return ops.cast(ops.clip(longest, max(self.min_length, 1), self.max_length), "int32")
