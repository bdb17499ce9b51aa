"""The names of classes, which take the place of subwords on the target side of a corpus."""

from collections.abc import Iterable
from typing import Any, Self

import keras
import numpy as np

from keras_tfmr.errors import PresetError

MOST_LABELS = 1000  # more are probably free text, given by mistake


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Labels:
    """Names of classes, in the form of a tokenizer for the target side of a corpus.

    Class c has id c + 1, because 0 is padding.

    Args:
        names: list of str.

    >>> Labels(["bad", "good"]).encode_lines(["good", "bad"])
    (array([2, 1], dtype=int32), array([0, 1, 2]))
    """

    model_bytes = b""  # unlike a tokenizer, they have no SentencePiece model

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.vocab_size = len(self.names) + 1
        self._ids = {name: number for number, name in enumerate(self.names, 1)}

    @classmethod
    def learn(cls, lines: Iterable[str]) -> Self:
        """The labels that occur in lines, in alphabetical order."""
        names = sorted({*lines})
        if not 2 <= len(names) <= MOST_LABELS:
            raise PresetError(
                f"Expected 2 to {MOST_LABELS} classes, named without spaces. Received "
                f"{len(names)}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
            )
        return cls(names)

    def get_config(self) -> dict[str, Any]:
        """The names."""
        return {"names": self.names}

    @classmethod
    def from_config(cls, config: dict[str, Any], model_bytes: bytes = b"") -> Self:
        """The labels of a config."""
        return cls(**config)

    def encode_lines(self, lines: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """`(values, offsets)` of lines, as `SubwordTokenizer.encode_lines` gives."""
        lines = list(lines)
        for line in lines:
            if line not in self._ids:
                raise PresetError(
                    f"expected known labels, found one that no other line has: {line[:80]!r}"
                )
        ids = np.array([self._ids[line] for line in lines], np.int32)
        return ids, np.arange(len(lines) + 1)
