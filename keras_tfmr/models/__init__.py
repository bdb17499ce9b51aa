"""Models combined from the layers through the functional API, and the config of the ready ones."""

from keras_tfmr.models.explain import AttentionScores
from keras_tfmr.models.language import LanguageModel
from keras_tfmr.models.transformer import (
    MeanOverTokens,
    Transformer,
    TransformerClassifier,
    TransformerLanguageModel,
)
from keras_tfmr.models.transformer_config import TransformerConfig
from keras_tfmr.models.translation import TranslationModel

__all__ = [
    "AttentionScores",
    "LanguageModel",
    "MeanOverTokens",
    "Transformer",
    "TransformerClassifier",
    "TransformerConfig",
    "TransformerLanguageModel",
    "TranslationModel",
]
