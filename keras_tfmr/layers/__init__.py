"""The blocks of the paper's Figure 1 as Keras layers."""

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
