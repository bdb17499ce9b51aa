"""Recurrent and convolutional models from before the Transformer, after their papers' equations."""

from keras_tfmr.recurrent.configured import dtype_policy
from keras_tfmr.recurrent.convolutional import (
    ConvolutionalDecoder,
    ConvolutionalEncoder,
    ConvolutionalModel,
    ConvolutionStack,
)
from keras_tfmr.recurrent.gru import GRU, BidirectionalEncoder, GRUCell
from keras_tfmr.recurrent.lstmn import LSTMN, LSTMNLanguageModel
from keras_tfmr.recurrent.memory_network import (
    AdjacentMemories,
    LayerwiseMemories,
    MemoryNetwork,
    SentenceEmbedding,
    position_weights,
)
from keras_tfmr.recurrent.recurrent_configs import (
    ConvolutionalConfig,
    LSTMNConfig,
    MemoryNetworkConfig,
    RNNSearchConfig,
    Seq2SeqConfig,
)
from keras_tfmr.recurrent.rnnsearch import AdditiveAttention, AlignedDecoder, RNNSearchModel
from keras_tfmr.recurrent.seq2seq import GRUEncoder, Maxout, Seq2SeqModel, SummaryDecoder

__all__ = [
    "GRU",
    "LSTMN",
    "AdditiveAttention",
    "AdjacentMemories",
    "AlignedDecoder",
    "BidirectionalEncoder",
    "ConvolutionStack",
    "ConvolutionalConfig",
    "ConvolutionalDecoder",
    "ConvolutionalEncoder",
    "ConvolutionalModel",
    "GRUCell",
    "GRUEncoder",
    "LSTMNConfig",
    "LSTMNLanguageModel",
    "LayerwiseMemories",
    "Maxout",
    "MemoryNetwork",
    "MemoryNetworkConfig",
    "RNNSearchConfig",
    "RNNSearchModel",
    "SentenceEmbedding",
    "Seq2SeqConfig",
    "Seq2SeqModel",
    "SummaryDecoder",
    "dtype_policy",
    "position_weights",
]
