"""The blocks of the paper's Figure 1 as Keras layers.

Masks are bool, True = valid / may attend. Padding is token ID 0.

You can build other kinds of Transformer from parts: another `norm`, a `qk_norm`, another
`activation`, a gated feed-forward sublayer, fewer heads of keys and values (`num_kv_heads`),
relative positions. `TransformerConfig` has a field for each. A layer of your own stands in the
graph like any other of Keras's; a subclass of a decoder decodes by its own code, without caches.
"""

from keras_tfmr.layers.attention import MultiHeadAttention
from keras_tfmr.layers.attention_sublayers import (
    CausalSelfAttention,
    CrossAttention,
    GlobalSelfAttention,
)
from keras_tfmr.layers.decoder import CausalDecoder, CausalDecoderLayer, Decoder, DecoderLayer
from keras_tfmr.layers.dot_product import scaled_dot_product_attention
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.embedding import AddPositions, PositionalEmbedding
from keras_tfmr.layers.encoder import Encoder, EncoderLayer
from keras_tfmr.layers.feed_forward import FeedForward, GatedFeedForward
from keras_tfmr.layers.logits import LMHead
from keras_tfmr.layers.normalization import LayerNormalization, RMSNormalization
from keras_tfmr.layers.positions import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    positional_encoding,
)
from keras_tfmr.layers.relative_positions import ALiBi, RelativePositionBias, RotaryPositions
from keras_tfmr.layers.residual import PostNormResidual, PreNormResidual

__all__ = [
    "ALiBi",
    "AddPositions",
    "CausalDecoder",
    "CausalDecoderLayer",
    "CausalSelfAttention",
    "CrossAttention",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "GatedFeedForward",
    "GlobalSelfAttention",
    "LMHead",
    "LayerNormalization",
    "LearnedPositions",
    "MultiHeadAttention",
    "NoPositions",
    "PositionalEmbedding",
    "PostNormResidual",
    "PreNormResidual",
    "RMSNormalization",
    "RelativePositionBias",
    "RotaryPositions",
    "SinusoidalPositions",
    "positional_encoding",
    "scaled_dot_product_attention",
]
