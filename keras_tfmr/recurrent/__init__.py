"""The models the Transformer replaced, each from its paper's equations."""

from keras_tfmr.recurrent.aligned_decoder import AlignedDecoder, Alignment, Maxout
from keras_tfmr.recurrent.config import LSTMNConfig, RNNSearchConfig
from keras_tfmr.recurrent.gated_unit import BidirectionalEncoder, GatedUnit
from keras_tfmr.recurrent.lstmn import LSTMN, LSTMNLanguageModel
from keras_tfmr.recurrent.rnnsearch import RNNSearchModel

__all__ = [
    "LSTMN",
    "AlignedDecoder",
    "Alignment",
    "BidirectionalEncoder",
    "GatedUnit",
    "LSTMNConfig",
    "LSTMNLanguageModel",
    "Maxout",
    "RNNSearchConfig",
    "RNNSearchModel",
]
