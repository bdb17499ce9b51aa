"""The decoder: the right half of the paper's Figure 1, and the same one token at a time."""

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.layers.attention_sublayers import CausalSelfAttention, CrossAttention
from keras_tfmr.layers.encoder import Stack
from keras_tfmr.layers.feed_forward import FeedForward


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderLayer(keras.layers.Layer):
    """Causal self-attention, attention to the context, then the feed-forward sublayer.

    Args:
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Share dropped in training, in the three sublayers.
        key_dim: Width of a query and of a key in one head; `d_model // num_heads` by default.
        value_dim: Width of a value in one head; `key_dim` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).

    Call arguments:
        x: Tensor `[batch, target, d_model]`.
        context: Tensor `[batch, source, width]`, what the encoder made.
        x_mask: bool tensor `[batch, target]`, True = valid; by default the Keras mask of `x`.
        context_mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of
            `context`. No position attends to one that is not valid, nor to a later one of `x`.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, target, d_model]`; with scores, a triple of it, the self-attention's
        `[batch, heads, target, target]` and the cross-attention's
        `[batch, heads, target, source]`.

    Raises:
        ValueError: If `key_dim` is not given and `num_heads` does not divide `d_model`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> layer = DecoderLayer(d_model=16, num_heads=2, dff=64)
    >>> x, context = np.ones((3, 5, 16), "float32"), np.ones((3, 7, 16), "float32")
    >>> layer(x, context).shape
    TensorShape([3, 5, 16])
    """

    attention_class = CausalSelfAttention
    cross_attention_class = CrossAttention
    feed_forward_class = FeedForward

    def __init__(
        self,
        *,
        d_model,
        num_heads,
        dff,
        dropout_rate=0.1,
        key_dim=None,
        value_dim=None,
        norm_first=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = _checks.positive_int("d_model", d_model)
        self.dropout_rate = dropout_rate
        key_dim = _checks.head_width(d_model, num_heads) if key_dim is None else key_dim
        attention = {
            "num_heads": num_heads,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "dropout": dropout_rate,
            "norm_first": norm_first,
            "dtype": self.dtype_policy,
        }
        self.causal_attention = self.attention_class(**attention, name="causal_attention")
        self.cross_attention = self.cross_attention_class(**attention, name="cross_attention")
        self.feed_forward = self.feed_forward_class(
            d_model,
            dff,
            dropout_rate,
            norm_first=norm_first,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.supports_masking = True

    def build(self, x_shape, context_shape):
        self.causal_attention.build(x_shape)
        self.cross_attention.build(x_shape, context_shape)
        self.feed_forward.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        context,
        x_mask=None,
        context_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        x, self_scores = self.causal_attention(
            x, mask=x_mask, return_attention_scores=True, training=training
        )
        x, cross_scores = self.cross_attention(
            x,
            context,
            context_mask=context_mask,
            return_attention_scores=True,
            training=training,
        )
        x = self.feed_forward(x, training=training)
        return (x, self_scores, cross_scores) if return_attention_scores else x

    def step(self, x, cache, index, memory, context_mask=None):
        """The layer for new positions only: see `CausalSelfAttention.step`.

        Args:
            x: Tensor `[rows, new, d_model]`, positions index … index + new - 1.
            cache: Keys and values `[rows, heads, max_length, …]` of the positions before.
            index: int scalar, how many positions the cache holds.
            memory: Keys and values `[batch, heads, source, …]` of the context.
            context_mask: bool tensor `[batch, source]`, True = valid.

        Returns:
            Tensor `[rows, new, d_model]` and the cache with the new positions written.
        """
        x, cache = self.causal_attention.step(x, cache, index)
        x = self.cross_attention.step(x, memory, context_mask)
        return self.feed_forward(x), cache

    def compute_output_spec(
        self,
        x,
        context,
        x_mask=None,
        context_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        y, self_scores = self.causal_attention.compute_output_spec(x, x_mask, True)
        _, cross_scores = self.cross_attention.compute_output_spec(x, context, context_mask, True)
        return (y, self_scores, cross_scores) if return_attention_scores else y

    def get_config(self):
        attention = self.causal_attention.attention
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": attention.num_heads,
            "dff": self.feed_forward.dff,
            "dropout_rate": self.dropout_rate,
            "key_dim": attention.key_dim,
            "value_dim": attention.value_dim,
            "norm_first": self.feed_forward.norm_first,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Decoder(Stack):
    """Token ids and a context in, vectors out: embedding, dropout, a stack of decoder layers.

    Args:
        num_layers: Number of layers.
        d_model: Width of the vectors.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layers.
        vocab_size: Number of token ids, for an embedding of its own.
        dropout_rate: Share dropped in training, of the embedding and in every sublayer.
        key_dim: Width of a query and of a key in one head; `d_model // num_heads` by default.
        value_dim: Width of a value in one head; `key_dim` by default.
        norm_first: Pre-norm, with a last normalisation after the stack, instead of post-norm.
        embedding: A `PositionalEmbedding` to use instead, e.g. one shared with an encoder.

    Call arguments:
        token_ids: int tensor `[batch, target]`, padded with 0, which makes the mask.
        context: Tensor `[batch, source, width]`, what the encoder made.
        context_mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of
            `context`.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, target, d_model]` with the mask `token_ids != 0`; with scores, a triple
        of it and two lists over layers: self-attention `[batch, heads, target, target]` and
        cross-attention `[batch, heads, target, source]`.

    Raises:
        ValueError: If not exactly one of `vocab_size` and `embedding` is given.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> decoder = Decoder(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> decoder(np.array([[5, 7, 0]]), np.ones((1, 4, 16), "float32")).shape
    TensorShape([1, 3, 16])
    """

    layer_class = DecoderLayer

    def build(self, token_ids_shape, context_shape):
        self.build_around(token_ids_shape)
        for layer in self.layers:
            layer.build((*token_ids_shape, self.embedding.d_model), context_shape)
        self.built = True

    def call(
        self,
        token_ids,
        context,
        context_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        x = self.embed(token_ids, training)  # [batch, target, d_model]
        mask = self.compute_mask(token_ids)
        all_self_scores, all_cross_scores = [], []
        for layer in self.layers:
            x, self_scores, cross_scores = layer(
                x,
                context,
                x_mask=mask,
                context_mask=context_mask,
                return_attention_scores=True,
                training=training,
            )
            all_self_scores.append(self_scores)
            all_cross_scores.append(cross_scores)
        x = self.finish(x)
        return (x, all_self_scores, all_cross_scores) if return_attention_scores else x

    def memory(self, context):
        """What every step reads of the context, computed once: a list over layers of
        keys `[batch, heads, source, key_dim]` and values `[batch, heads, source, value_dim]`."""
        return [layer.cross_attention.attention.project(context) for layer in self.layers]

    def caches(self, rows, max_length):
        """Empty self-attention caches, a list over layers: see `MultiHeadAttention.cache`."""
        return [layer.causal_attention.attention.cache(rows, max_length) for layer in self.layers]

    def step(self, token_ids, caches, index, memory, context_mask=None):
        """The decoder for new tokens only.

        Args:
            token_ids: int tensor `[rows, new]`, positions index … index + new - 1.
            caches: What `caches` or the step before gave.
            index: int scalar, how many positions the caches hold.
            memory: What `memory` gave for the context; rows is a multiple of its batch.
            context_mask: bool tensor `[batch, source]`, True = valid.

        Returns:
            Tensor `[rows, new, d_model]` and the caches with the new positions written.
        """
        positions = self.embedding.positions(index + ops.arange(ops.shape(token_ids)[1]))
        x = self.embedding.at(token_ids, positions)  # [rows, new, d_model]
        new_caches = []
        for layer, cache, layer_memory in zip(self.layers, caches, memory, strict=True):
            x, cache = layer.step(x, cache, index, layer_memory, context_mask)
            new_caches.append(cache)
        return self.finish(x), new_caches

    def compute_output_spec(
        self,
        token_ids,
        context,
        context_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        _checks.sequence_of_vectors("context", context.shape)
        x = self.vectors_spec(token_ids)
        if not return_attention_scores:
            return x
        specs = [
            layer.compute_output_spec(x, context, return_attention_scores=True)
            for layer in self.layers
        ]
        return x, [own for _, own, _ in specs], [cross for _, _, cross in specs]
