"""Exports as SavedModels for TensorFlow Serving, checked before they appear.

Enters: a text model, and texts like those of real requests. Leaves: the folder of a version, with
its warm-up file, batching parameters and metadata. It must not know the classes of text models, nor
presets: what is written are the signatures that a text model declares.
"""

import importlib

from keras_tfmr import _homes

# Imported on demand: `write` imports Keras, which the process that checks does not need.
_HOMES = _homes(__name__)

__all__ = list(_HOMES)


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'keras_tfmr.export' has no attribute {name!r}")


def __dir__():
    return __all__
