"""Transformer layers for Keras 3, and models of text built from them that can be served.

Names of dimensions, in comments and docstrings: batch, beam, rows
(= batch · beam, the beams of a sentence side by side), heads, query, key, length, source,
target, vocab, d_model, dff, key_dim, value_dim, units, n.

Masks are bool, True = valid / may attend. Padding is token id 0.
"""

import importlib
import sys

__version__ = "0.1.0"

# The public names of each module. Modules are imported on demand, so that the client does not
# import Keras, nor the layers TensorFlow. After `import keras`, those with Keras classes are
# imported at once, so that `keras.models.load_model` knows them.
_ON_KERAS = {
    "layers": """
        AddPositions ALiBi CausalDecoder CausalDecoderLayer CausalSelfAttention CrossAttention
        Decoder DecoderLayer Dropout Encoder EncoderLayer FeedForward GatedFeedForward
        GlobalSelfAttention LayerNormalization LearnedPositions LMHead MultiHeadAttention
        NoPositions positional_encoding PositionalEmbedding PostNormResidual PreNormResidual
        RelativePositionBias RMSNormalization RotaryPositions scaled_dot_product_attention
        SinusoidalPositions SSRU SSRUDecoder SSRUDecoderLayer TiedLogits
    """,
    "models": """
        LanguageModel MeanOverTokens SequenceClassifier TokenClassifier TransformerConfig
        TranslationModel
    """,
    "losses": "LabelSmoothedCrossEntropy smoothed_cross_entropy",
    "schedules": "NoamSchedule",
    "metrics": "Perplexity TokenAccuracy",
}
# These need TensorFlow or Matplotlib, so `from keras_tfmr import *` leaves them out.
_ON_MORE = {
    "text.tokenizer": "SubwordTokenizer",
    "text.label_models": "Classifier Tagger",
    "text.completer": "Completer",
    "text.translator": "Translator",
    "export": "export_text_model",
    "plots": "plot_attention plot_positional_encoding plot_word",
}
_HOMES = {
    name: module for module, names in (_ON_KERAS | _ON_MORE).items() for name in names.split()
}
_PACKAGES = ("client", "decoding", "layers", "models", "recurrent")

__all__ = ["recurrent", *(name for name, module in _HOMES.items() if module in _ON_KERAS)]


# Keras loads a model from a file only if its classes are known, and so these modules imported.
_REGISTERED = ("layers", "models", "recurrent", "losses", "schedules", "metrics")


def __getattr__(name):
    if _HOMES.get(name) in _ON_KERAS:
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
