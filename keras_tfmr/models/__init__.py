"""Models built from the layers with the functional API, each from one config."""

from keras_tfmr.models.attention_scores import AttentionScores
from keras_tfmr.models.classification import (
    MeanOverTokens,
    SequenceClassifier,
    TokenClassifier,
)
from keras_tfmr.models.config import TransformerConfig
from keras_tfmr.models.language import LanguageModel
from keras_tfmr.models.translation import TranslationModel
from keras_tfmr.models.untying import untied

__all__ = [
    "AttentionScores",
    "LanguageModel",
    "MeanOverTokens",
    "SequenceClassifier",
    "TokenClassifier",
    "TransformerConfig",
    "TranslationModel",
    "untied",
]
