"""The simpler simple recurrent unit: a decoder whose self-attention is a recurrence of one vector.

A step of decoding takes as long at the end of a sentence as at its beginning, and a search carries
one vector for each hypothesis and layer instead of the keys and values of all positions.
"""

from typing import Any

import keras
from keras import backend, ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.cache import CachePosition, check_cache
from keras_tfmr.layers.context import AttentionContext, SublayerOutput
from keras_tfmr.layers.decoder import Decoder, DecoderLayer
from keras_tfmr.layers.dot_product import by_rows
from keras_tfmr.layers.over_time import over_time
from keras_tfmr.layers.residual import Sublayer


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SSRU(Sublayer):
    """max(0, c_t) with c_t = f_t ∘ c_{t-1} + (1 - f_t) ∘ W x_t and f_t = sigmoid(W_f x_t + b_f).

    It takes the place of `CausalSelfAttention`, with the same residual. Both products are of all
    positions at once; the sum over time is a loop, in float32. Forward and back, on a CPU, the loop
    takes about a third of the time of `ops.associative_scan` on JAX, and less than that on
    TensorFlow, where the scan also needs a known length.

    Args:
        use_bias: Whether there is a b_f.
        dropout_rate, norm_first, norm: As for `GlobalSelfAttention`.
        **kwargs: As for `MultiHeadAttention`.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: Mask `[batch, length]`, True = valid; by default the Keras mask of `x`. A position
            that is not valid leaves c as it is. Not used with a cache.
        cache: What `cache` or the previous call gave. `x` are then the new tokens: one for each of
            the hypotheses of an example, or several of one hypothesis.
        cache_index: Accepted as by `CausalSelfAttention`, without effect.

    Returns:
        Tensor `[batch, length, d_model]`; with a cache, also the next cache.

    Reference: Kim et al. 2019, From Research to Production and Back: Ludicrously Fast Neural
    Machine Translation (aclanthology.org/D19-5632).

    >>> SSRU()(np.ones((3, 5, 16), "float32")).shape
    TensorShape([3, 5, 16])
    """

    def __init__(
        self, *, dropout_rate: float = 0.1, norm_first: bool = False,
        norm: keras.layers.Layer | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(dropout_rate=dropout_rate, norm_first=norm_first, **kwargs)
        self.residual = self.make_residual(norm)

    def build(self, x_shape: Shape) -> None:
        _checks.sequence_of_vectors("x", x_shape)
        self.d_model = x_shape[-1]
        self.forget_dense = self.make_dense(self.d_model, "forget")
        self.candidate_dense = self.make_dense(self.d_model, "candidate", use_bias=False)
        self.forget_dense.build(x_shape)
        self.candidate_dense.build(x_shape)
        self.residual.build(x_shape)

    def call(
        self, x: Tensor, mask: Tensor | None = None, *, cache: Nested | None = None,
        cache_index: Nested | None = None, training: bool | None = None,
    ) -> Nested:  # fmt: skip
        context = AttentionContext(mask, cache=cache).of(x)
        return self.run(x, context, training=training).result()

    def branch(
        self, x: Tensor, context: AttentionContext, *, training: bool | None
    ) -> SublayerOutput:
        for name in ("attention_mask", "position_bias", "rotation"):
            if getattr(context, name) is not None:
                raise ValueError(f"An SSRU does not attend to positions. Received: `{name}`")
        mask, cache = context.mask, context.cache
        y = by_rows(self.project, x)  # [batch, length, 2 * d_model]
        dtype = backend.result_type(y.dtype, "float32")
        forget, candidate = ops.split(ops.cast(y, dtype), 2, axis=-1)
        forget = ops.sigmoid(forget)
        new = (1 - forget) * candidate  # [batch, length, d_model]
        if cache is not None:
            check_cache(cache, x.shape[0], (1, self.d_model))
        if cache is None:
            if mask is not None:
                forget = ops.where(mask[:, :, None], forget, 1)
                new = ops.where(mask[:, :, None], new, 0)
            states = recurrence(forget, new, ops.zeros((ops.shape(new)[0], self.d_model), dtype))
        elif cache[0].shape[2] == 1 and x.shape[1] != 1:
            states = recurrence(forget, new, cache[0][:, 0, 0])
            cache = (states[:, None, -1:],)
        else:
            states = forget * cache[0][:, 0] + new
            cache = (states[:, None],)
        return SublayerOutput(ops.cast(ops.relu(states), self.compute_dtype), cache=cache)

    def project(self, x: Tensor) -> Nested:
        """`[rows, d_model]` → `[rows, 2 * d_model]`: W_f x + b_f, then W x."""
        return ops.concatenate([self.forget_dense(x), self.candidate_dense(x)], axis=-1)

    def cache(self, batch: Any, beams: Any = 1) -> Nested:
        """c before the first token: a tuple of float32 zeros `[batch, 1, beams, d_model]`."""
        dtype = backend.result_type(self.compute_dtype, "float32")
        return (ops.zeros((batch, 1, beams, self.d_model), dtype),)


def recurrence(forget, new, state):
    """c_t = forget_t ∘ c_{t-1} + new_t.

    Args:
        forget, new: Tensors `[batch, length, d_model]`.
        state: `[batch, d_model]`, c before the first position.

    Returns:
        Tensor `[batch, length, d_model]`, c at each position.
    """

    def step(inputs, states):
        forget, new = ops.split(inputs, 2, axis=-1)
        state = forget * states[0] + new
        return state, [state]

    policy = keras.DTypePolicy(backend.standardize_dtype(state.dtype))
    return over_time(step, ops.concatenate([forget, new], axis=-1), [state], policy)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SSRUDecoderLayer(DecoderLayer):
    """An `SSRU`, attention to the context, then the feed-forward sublayer.

    The arguments are those of `EncoderLayer`.

    Call arguments:
        x: Tensor `[batch, target, d_model]`.
        context, mask, context_mask, context_cache: As for `DecoderLayer`.
        return_attention_scores: Whether to return the scores of the cross-attention too.
        cache, cache_index: As for `SSRU`.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, also `[batch, heads, target, source]`; with
        a cache, last, the next cache.

    Reference: Kim et al. 2019 (aclanthology.org/D19-5632).

    >>> layer = SSRUDecoderLayer(d_model=16, num_heads=2, dff=64)
    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> layer(x, context).shape
    TensorShape([3, 5, 16])
    """

    self_attention_class = SSRU
    self_attention_name = "ssru"


@keras.saving.register_keras_serializable(package="keras_tfmr")
class SSRUDecoder(Decoder):
    """A `Decoder` whose layers are of `SSRUDecoderLayer`, with a state of one vector in each.

    Arguments and call arguments are those of `Decoder`, but there are no `relative_positions` and
    no `attention_mask`, and the scores are those of the cross-attention alone.

    Reference: Kim et al. 2019 (aclanthology.org/D19-5632).

    >>> decoder = SSRUDecoder(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> decoder(np.array([[5, 7, 0]]), np.ones((1, 4, 16), "float32")).shape
    TensorShape([1, 3, 16])
    """

    layer_class = SSRUDecoderLayer

    def __init__(
        self, *args: Any, relative_positions: keras.layers.Layer | None = None, **kwargs: Any
    ) -> None:
        if relative_positions is not None:
            raise ValueError(
                "An SSRUDecoder has no `relative_positions`. "
                f"Received: relative_positions={relative_positions!r}"
            )
        super().__init__(*args, **kwargs)

    @staticmethod
    def position(cache_index: Nested, inputs: Tensor, cache: Nested) -> CachePosition:
        """Where the new tokens stand; a state has room for any number."""
        if isinstance(cache_index, CachePosition):
            return cache_index
        index = _checks.index("cache_index", cache_index, None)
        return CachePosition(index, index + ops.arange(ops.shape(inputs)[1], dtype="int32"), None)

    def cache(self, batch: Any, beams: Any = 1) -> Nested:
        """The states before the first token, a list over layers: see `SSRU.cache`.

        Args:
            batch: Number of examples.
            beams: Number of hypotheses of an example.
        """
        return [layer.ssru.cache(batch, beams) for layer in self.layers]
