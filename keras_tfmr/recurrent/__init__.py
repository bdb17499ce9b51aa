"""Recurrent and convolutional models from before the Transformer, after their papers' equations."""

from keras_tfmr.recurrent.aligned_decoder import AlignedDecoder, Alignment, Maxout
from keras_tfmr.recurrent.config import (
    ConvolutionalConfig,
    LSTMNConfig,
    MemoryNetworkConfig,
    RNNSearchConfig,
    Seq2SeqConfig,
)
from keras_tfmr.recurrent.convolutional import (
    ConvolutionalDecoder,
    ConvolutionalEncoder,
    ConvolutionalModel,
    ConvolutionStack,
)
from keras_tfmr.recurrent.gated_unit import BidirectionalEncoder, GatedUnit
from keras_tfmr.recurrent.lstmn import LSTMN, LSTMNLanguageModel
from keras_tfmr.recurrent.memory_network import (
    AdjacentMemories,
    LayerwiseMemories,
    MemoryHop,
    MemoryNetwork,
)
from keras_tfmr.recurrent.rnnsearch import RNNSearchModel
from keras_tfmr.recurrent.sentence_embedding import SentenceEmbedding, position_weights
from keras_tfmr.recurrent.seq2seq import Seq2SeqModel, SummaryDecoder, SummaryEncoder

__all__ = [
    "LSTMN",
    "AdjacentMemories",
    "AlignedDecoder",
    "Alignment",
    "BidirectionalEncoder",
    "ConvolutionStack",
    "ConvolutionalConfig",
    "ConvolutionalDecoder",
    "ConvolutionalEncoder",
    "ConvolutionalModel",
    "GatedUnit",
    "LSTMNConfig",
    "LSTMNLanguageModel",
    "LayerwiseMemories",
    "Maxout",
    "MemoryHop",
    "MemoryNetwork",
    "MemoryNetworkConfig",
    "RNNSearchConfig",
    "RNNSearchModel",
    "SentenceEmbedding",
    "Seq2SeqConfig",
    "Seq2SeqModel",
    "SummaryDecoder",
    "SummaryEncoder",
    "position_weights",
]
