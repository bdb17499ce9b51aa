"""Transformer layers for Keras 3, models combined from them, and a translator to serve.

The alphabet of dimension names, in comments and docstrings alike: batch, beam, rows
(= batch · beam, the beams of a sentence side by side), heads, query, key, length, source,
target, vocab, d_model, dff, key_dim, value_dim, units, n.

One mask convention: bool, True = valid / may attend. Padding is token id 0.
"""

import importlib

from keras_tfmr.layers import *  # noqa: F403
from keras_tfmr.layers import __all__ as _layers
from keras_tfmr.losses import LabelSmoothedCrossEntropy, smoothed_cross_entropy
from keras_tfmr.metrics import Perplexity, TokenAccuracy
from keras_tfmr.models import *  # noqa: F403
from keras_tfmr.models import __all__ as _models
from keras_tfmr.schedules import NoamSchedule, WarmupCosine

from keras_tfmr import recurrent  # isort: skip  (registers its layers, so that files of them load)

__version__ = "0.1.0"

# These need TensorFlow or Matplotlib, which `import keras_tfmr` must not cost.
_LAZY = {
    "SubwordTokenizer": "keras_tfmr.tokenizer",
    "Translator": "keras_tfmr.translator",
    "export_translator": "keras_tfmr.export",
    "plot_attention": "keras_tfmr.plots",
    "plot_positional_encoding": "keras_tfmr.plots",
}

__all__ = [
    *_layers,
    *_models,
    "LabelSmoothedCrossEntropy",
    "NoamSchedule",
    "Perplexity",
    "TokenAccuracy",
    "WarmupCosine",
    "recurrent",
    "smoothed_cross_entropy",
    *_LAZY,
]


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'keras_tfmr' has no attribute {name!r}")
