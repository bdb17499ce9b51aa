"""The blocks of the paper's Figure 1 as Keras layers, in the figure's order."""

from keras_tfmr.layers.attention import MultiHeadAttention
from keras_tfmr.layers.attention_sublayers import (
    CausalSelfAttention,
    CrossAttention,
    GlobalSelfAttention,
)
from keras_tfmr.layers.decoder import Decoder, DecoderLayer
from keras_tfmr.layers.decoder_only import DecoderOnly, DecoderOnlyLayer
from keras_tfmr.layers.dropout import Dropout
from keras_tfmr.layers.encoder import Encoder, EncoderLayer
from keras_tfmr.layers.feed_forward import FeedForward
from keras_tfmr.layers.logits import Logits, TiedLogits
from keras_tfmr.layers.normalization import LayerNormalization
from keras_tfmr.layers.positions import (
    LearnedPositions,
    PositionalEmbedding,
    SinusoidalPositions,
    positional_encoding,
)
from keras_tfmr.layers.residual import PostNormResidual, PreNormResidual

__all__ = [
    "CausalSelfAttention",
    "CrossAttention",
    "Decoder",
    "DecoderLayer",
    "DecoderOnly",
    "DecoderOnlyLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "GlobalSelfAttention",
    "LayerNormalization",
    "LearnedPositions",
    "Logits",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "PostNormResidual",
    "PreNormResidual",
    "SinusoidalPositions",
    "TiedLogits",
    "positional_encoding",
]
