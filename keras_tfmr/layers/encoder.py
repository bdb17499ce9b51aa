"""The encoder: the left half of the paper's Figure 1."""

import keras

from keras_tfmr import _checks
from keras_tfmr.layers._sharing import shared
from keras_tfmr.layers.attention_sublayers import GlobalSelfAttention
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.feed_forward import FeedForward
from keras_tfmr.layers.normalization import LayerNormalization
from keras_tfmr.layers.positions import PositionalEmbedding, unbuilt


@keras.saving.register_keras_serializable(package="keras_tfmr")
class EncoderLayer(keras.layers.Layer):
    """Self-attention over all real positions, then the feed-forward sublayer.

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
            position attends to one that is not valid.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, length, d_model]`; with scores, a pair of it and
        `[batch, heads, length, length]`.

    Raises:
        ValueError: If `key_dim` is not given and `num_heads` does not divide `d_model`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> layer = EncoderLayer(d_model=16, num_heads=2, dff=64)
    >>> layer(np.ones((3, 5, 16), "float32")).shape
    TensorShape([3, 5, 16])
    """

    attention_class = GlobalSelfAttention
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
        self.self_attention = self.attention_class(
            num_heads,
            _checks.head_width(d_model, num_heads) if key_dim is None else key_dim,
            value_dim=value_dim,
            dropout=dropout_rate,
            norm_first=norm_first,
            dtype=self.dtype_policy,
            name="self_attention",
        )
        self.feed_forward = self.feed_forward_class(
            d_model,
            dff,
            dropout_rate,
            norm_first=norm_first,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.supports_masking = True

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)
        self.built = True

    def call(self, x, mask=None, return_attention_scores=False, training=None):
        x, scores = self.self_attention(
            x, mask=mask, return_attention_scores=True, training=training
        )
        x = self.feed_forward(x, training=training)
        return (x, scores) if return_attention_scores else x

    def compute_output_spec(self, x, mask=None, return_attention_scores=False, training=None):
        return self.self_attention.compute_output_spec(x, mask, return_attention_scores)

    def get_config(self):
        attention = self.self_attention.attention
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


class Stack(keras.layers.Layer):
    """What encoder and decoder share: embedding, dropout, N layers, pre-norm's last norm."""

    layer_class = None
    norm_class = LayerNormalization

    def __init__(
        self,
        *,
        num_layers,
        d_model,
        num_heads,
        dff,
        vocab_size=None,
        dropout_rate=0.1,
        key_dim=None,
        value_dim=None,
        norm_first=False,
        embedding=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if (embedding is None) == (vocab_size is None):
            raise ValueError(
                "Give either `vocab_size` or `embedding`. "
                f"Received: vocab_size={vocab_size}, embedding={embedding}"
            )
        self.num_layers = _checks.positive_int("num_layers", num_layers)
        self.dropout_rate = _checks.rate("dropout_rate", dropout_rate)
        self.embedding = embedding or PositionalEmbedding(
            vocab_size, d_model, dtype=self.dtype_policy, name="embedding"
        )
        if self.embedding.d_model != d_model:
            raise ValueError(
                f"`embedding` must have d_model={d_model}. "
                f"Received: an embedding of d_model={self.embedding.d_model}"
            )
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")
        sizes = {"d_model": d_model, "num_heads": num_heads, "dff": dff, "key_dim": key_dim}
        sizes |= {"value_dim": value_dim, "dropout_rate": dropout_rate, "norm_first": norm_first}
        self.layers = [
            self.layer_class(**sizes, dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(num_layers)
        ]
        # Post-norm layers end in a normalisation of their own.
        self.norm = None
        if norm_first:
            self.norm = self.norm_class(dtype=self.dtype_policy, name="norm")
        self.supports_masking = True

    def build(self, token_ids_shape):
        self.build_around(token_ids_shape)
        for layer in self.layers:
            layer.build((*token_ids_shape, self.embedding.d_model))
        self.built = True

    def build_around(self, token_ids_shape):
        """Builds what stands before and after the layers."""
        if not self.embedding.built:
            self.embedding.build(token_ids_shape)
        x_shape = (*token_ids_shape, self.embedding.d_model)
        self.dropout.build(x_shape)
        if self.norm is not None:
            self.norm.build(x_shape)

    def embed(self, token_ids, training=None):
        """Token ids `[batch, length]` → dropped-out embeddings `[batch, length, d_model]`."""
        return self.dropout(self.embedding(token_ids), training=training)

    def finish(self, x):
        """The last normalisation, where the layers do not end in one."""
        return x if self.norm is None else self.norm(x)

    def compute_mask(self, token_ids, previous_mask=None):
        return self.embedding.compute_mask(token_ids)

    def vectors_spec(self, token_ids):
        """The symbolic output `[batch, length, d_model]`."""
        shape = (*token_ids.shape, self.embedding.d_model)
        return keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self):
        layer_config = self.layers[0].get_config()
        names = (
            "d_model", "num_heads", "dff", "dropout_rate", "key_dim", "value_dim", "norm_first",
        )  # fmt: skip
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            **{name: layer_config[name] for name in names},
            "embedding": shared(self.embedding),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "embedding": unbuilt(config["embedding"])})


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Encoder(Stack):
    """Token ids in, vectors out: embedding, dropout, a stack of encoder layers.

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
        embedding: A `PositionalEmbedding` to use instead, e.g. one shared with a decoder.

    Call arguments:
        token_ids: int tensor `[batch, length]`, padded with 0, which makes the mask.
        return_attention_scores: Whether to return the scores too.

    Returns:
        Tensor `[batch, length, d_model]` with the mask `token_ids != 0`; with scores, a pair of
        it and a list over layers of `[batch, heads, length, length]`.

    Raises:
        ValueError: If not exactly one of `vocab_size` and `embedding` is given.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1.

    >>> encoder = Encoder(num_layers=2, d_model=16, num_heads=2, dff=64, vocab_size=100)
    >>> encoder(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3, 16])
    """

    layer_class = EncoderLayer

    def call(self, token_ids, return_attention_scores=False, training=None):
        x = self.embed(token_ids, training)  # [batch, length, d_model]
        mask = self.compute_mask(token_ids)
        all_scores = []
        for layer in self.layers:
            x, scores = layer(x, mask=mask, return_attention_scores=True, training=training)
            all_scores.append(scores)
        x = self.finish(x)
        return (x, all_scores) if return_attention_scores else x

    def compute_output_spec(self, token_ids, return_attention_scores=False, training=None):
        x = self.vectors_spec(token_ids)
        if not return_attention_scores:
            return x
        specs = [
            layer.compute_output_spec(x, return_attention_scores=True) for layer in self.layers
        ]
        return x, [scores for _, scores in specs]
