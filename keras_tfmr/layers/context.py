"""Inputs of self-attention beside `x`, passed on whole from a stack to its attention."""

from typing import Any, NamedTuple, Self

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Tensor


class AttentionContext(NamedTuple):
    """The call arguments of self-attention, under their names; see `MultiHeadAttention`."""

    mask: Any = None
    attention_mask: Any = None
    position_bias: Any = None
    rotation: Any = None
    cache: Any = None
    cache_index: Any = None
    return_attention_scores: bool = False

    def of(self, x: Tensor) -> Self:
        """The context of `x` `[batch, length, width]`: its mask is by default its Keras mask."""
        _checks.sequence_of_vectors("x", x.shape)
        self.check_cache()
        # Read before a norm, which may not pass it on.
        mask = keras_mask(x) if self.mask is None else self.mask
        return self._replace(mask=_checks.sequence_mask("mask", mask, x))

    def check_cache(self) -> None:
        """Raises a ValueError if there is a `cache_index` alone."""
        if self.cache is None and self.cache_index is not None:
            raise ValueError("`cache_index` needs a `cache`. Received: cache=None")

    def given(self) -> dict[str, Any]:
        """The arguments that are given."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def gathered(x, *more):
    """Result of a call: `x`, or a tuple if there is more."""
    return (x, *more) if more else x


def together(outputs):
    """Result of a call, always as a tuple."""
    return outputs if isinstance(outputs, tuple) else (outputs,)
