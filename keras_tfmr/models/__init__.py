"""Models combined from the layers through the functional API, and the config of the ready ones.

Keras can load a saved model, or rebuild one from its config, once this module is imported: Keras
then knows the models, the layers, the losses, metrics and schedules. Those of
`keras_tfmr.recurrent` need that module.
"""

# What a compiled model is saved with.
from keras_tfmr import losses, metrics, schedules  # noqa: F401
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
