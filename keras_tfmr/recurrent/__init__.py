"""The models the Transformer replaced, each from its paper's equations."""

from keras_tfmr.recurrent.aligned_decoder import AlignedDecoder, Alignment, Maxout
from keras_tfmr.recurrent.config import LSTMNConfig, MemoryNetworkConfig, RNNSearchConfig
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

__all__ = [
    "LSTMN",
    "AdjacentMemories",
    "AlignedDecoder",
    "Alignment",
    "BidirectionalEncoder",
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
    "position_weights",
]
