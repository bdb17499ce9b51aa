"""Models built from the layers, each from one config."""

from keras_tfmr.models.classification import (
    MeanOverTokens,
    SequenceClassifier,
    TokenClassifier,
)
from keras_tfmr.models.language import LanguageModel
from keras_tfmr.models.transformer_config import TransformerConfig
from keras_tfmr.models.translation import AttentionScores, TranslationModel

__all__ = [
    "AttentionScores",
    "LanguageModel",
    "MeanOverTokens",
    "SequenceClassifier",
    "TokenClassifier",
    "TransformerConfig",
    "TranslationModel",
]


def __dir__():
    return __all__
