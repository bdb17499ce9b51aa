"""Transformer layers for Keras 3, and models of text built from them that can be served.

Names of dimensions, in comments and docstrings: batch, beam, rows
(= batch · beam, the beams of a sentence side by side), heads, query, key, length, source,
target, vocab, d_model, dff, key_dim, value_dim, units, n.

Masks are bool, True = valid / may attend. Padding is token id 0.
"""

import importlib
import sys

__version__ = "0.1.0"

# The module of each public name. Modules are imported on demand, so that the client does not import
# Keras, nor the layers TensorFlow. After `import keras`, those with Keras classes are imported at
# once, so that `keras.models.load_model` knows them.
_ON_KERAS = {
    "CausalSelfAttention": "layers",
    "CrossAttention": "layers",
    "Decoder": "layers",
    "DecoderLayer": "layers",
    "CausalDecoder": "layers",
    "CausalDecoderLayer": "layers",
    "Dropout": "layers",
    "Encoder": "layers",
    "EncoderLayer": "layers",
    "FeedForward": "layers",
    "GlobalSelfAttention": "layers",
    "LayerNormalization": "layers",
    "LearnedPositions": "layers",
    "LMHead": "layers",
    "MultiHeadAttention": "layers",
    "PositionalEmbedding": "layers",
    "PostNormResidual": "layers",
    "PreNormResidual": "layers",
    "SinusoidalPositions": "layers",
    "TiedLogits": "layers",
    "positional_encoding": "layers",
    "scaled_dot_product_attention": "layers",
    "AddPositions": "layers",
    "RotaryPositions": "layers",
    "RelativePositionBias": "layers",
    "RMSNormalization": "layers",
    "NoPositions": "layers",
    "GatedFeedForward": "layers",
    "ALiBi": "layers",
    "LanguageModel": "models",
    "MeanOverTokens": "models",
    "SequenceClassifier": "models",
    "TokenClassifier": "models",
    "TransformerConfig": "models",
    "TranslationModel": "models",
    "LabelSmoothedCrossEntropy": "losses",
    "NoamSchedule": "schedules",
    "Perplexity": "metrics",
    "TokenAccuracy": "metrics",
    "smoothed_cross_entropy": "losses",
}
# These need TensorFlow or Matplotlib, so `from keras_tfmr import *` leaves them out.
_ON_MORE = {
    "SubwordTokenizer": "text.tokenizer",
    "Classifier": "text.label_models",
    "Completer": "text.completer",
    "Tagger": "text.label_models",
    "Translator": "text.translator",
    "export_text_model": "export",
    "plot_attention": "plots",
    "plot_positional_encoding": "plots",
    "plot_word": "plots",
}
_HOMES = {**_ON_KERAS, **_ON_MORE}
_PACKAGES = ("client", "decoding", "layers", "models", "recurrent")

__all__ = [*_ON_KERAS, "recurrent"]


# Keras loads a model from a file only if its classes are known, and so these modules imported.
_REGISTERED = ("layers", "models", "recurrent", "losses", "schedules", "metrics")


def __getattr__(name):
    if name in _ON_KERAS:
        _register()
    if name in _HOMES:
        return getattr(importlib.import_module(f"keras_tfmr.{_HOMES[name]}"), name)
    if name in _PACKAGES:
        return importlib.import_module(f"keras_tfmr.{name}")
    raise AttributeError(f"module 'keras_tfmr' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_HOMES, *_PACKAGES})


def _register():
    for module in _REGISTERED:
        importlib.import_module(f"keras_tfmr.{module}")


if "keras" in sys.modules:
    _register()
