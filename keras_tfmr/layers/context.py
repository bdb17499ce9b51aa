"""What self-attention takes beside `x`, and what a sublayer gives: whole, inside the layers.

A call takes and gives parts, as those of Keras's layers do. They are put together where a call
begins and taken apart where it ends, so that nothing between them depends on which are there.
"""

from typing import Any, NamedTuple, Self

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Tensor


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


class InContext:
    """Mixed into the layers over `x` alone: their call, with its arguments as Keras wants them."""

    def call(
        self, x: Tensor, mask: Tensor | None = None, *, attention_mask: Tensor | None = None,
        return_attention_scores: bool = False, position_bias: Tensor | None = None,
        rotation: Nested | None = None, cache: Nested | None = None,
        cache_index: Nested | None = None, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        context = AttentionContext(
            mask, attention_mask, position_bias, rotation, cache, cache_index,
            return_attention_scores,
        ).of(x)  # fmt: skip
        return self.run(x, context, training=training).result()


class SublayerOutput(NamedTuple):
    """What a sublayer, a layer or a stack gives.

    Fields:
        x: Tensor `[batch, query, width]`.
        scores: A tuple of scores `[batch, heads, query, key]`, first those of self-attention, or of
            lists over layers of them; empty if they were not asked for.
        cache: The new cache, or None.
    """

    x: Any
    scores: tuple[Any, ...] = ()
    cache: Any = None

    @classmethod
    def named(cls, result: Nested, cached: bool) -> Self:
        """The parts of a call's result, whose last is a new cache if it was `cached`."""
        x, *scores = result if isinstance(result, tuple) else (result,)
        cache = scores.pop() if cached else None
        return cls(x, tuple(scores), cache)

    def result(self) -> Nested:
        """The result of a call: a tuple of `x`, scores and cache, or `x` alone."""
        more = self.scores if self.cache is None else (*self.scores, self.cache)
        return (self.x, *more) if more else self.x
