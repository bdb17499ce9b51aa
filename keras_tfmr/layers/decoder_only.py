"""The decoder without an encoder: causal self-attention and feed-forward, for language models."""

import keras
from keras import ops

from keras_tfmr.layers.attention_sublayers import CausalSelfAttention
from keras_tfmr.layers.encoder import Encoder, EncoderLayer


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderOnlyLayer(EncoderLayer):
    """Causal self-attention, then the feed-forward sublayer: a decoder layer with no context.

    Args:
        d_model: Width of input and output.
        num_heads: Number of heads.
        dff: Width of the feed-forward hidden layer.
        dropout_rate: Share dropped in training, in both sublayers.
        key_dim: Width of a query and of a key in one head; `d_model // num_heads` by default.
        value_dim: Width of a value in one head; `key_dim` by default.
        norm_first: Normalise the sublayers' inputs (pre-norm) instead of the sums (post-norm).

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`. No
            position attends to one that is not valid, nor to a later one.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Reference: Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences
    (arXiv 1801.10198), section 4.2.3.

    >>> layer = DecoderOnlyLayer(d_model=16, num_heads=2, dff=64)
    >>> layer(np.ones((3, 5, 16), "float32")).shape
    TensorShape([3, 5, 16])
    """

    attention_class = CausalSelfAttention

    def step(self, x, cache, index):
        """The layer for new positions only: see `CausalSelfAttention.step`."""
        x, cache = self.self_attention.step(x, cache, index)
        return self.feed_forward(x), cache


@keras.saving.register_keras_serializable(package="keras_tfmr")
class DecoderOnly(Encoder):
    """Token ids in, vectors out, no position seeing a later one: the stack of a language model.

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
        embedding: A `PositionalEmbedding` to use instead.

    Call arguments:
        token_ids: int tensor `[batch, length]`, padded with 0, which makes the mask.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, length, d_model]` with the mask `token_ids != 0`; with scores, a pair of
        it and a list over layers of `[batch, heads, length, length]`.

    Reference: Liu et al. 2018 (arXiv 1801.10198), section 4.2.3.

    >>> stack = DecoderOnly(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> stack(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 16])
    """

    layer_class = DecoderOnlyLayer

    def caches(self, rows, max_length):
        """Empty self-attention caches, a list over layers: see `MultiHeadAttention.cache`."""
        return [layer.self_attention.attention.cache(rows, max_length) for layer in self.layers]

    def step(self, token_ids, caches, index):
        """The stack for new tokens only: see `Decoder.step`, without a context.

        Returns:
            Tensor `[rows, new, d_model]` and the caches with the new positions written.
        """
        positions = self.embedding.positions(index + ops.arange(ops.shape(token_ids)[1]))
        x = self.embedding.at(token_ids, positions)  # [rows, new, d_model]
        new_caches = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer.step(x, cache, index)
            new_caches.append(cache)
        return self.finish(x), new_caches
