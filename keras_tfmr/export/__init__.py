"""Exports of text models as SavedModels for TensorFlow Serving, and a check of any SavedModel."""

import importlib

# Imported on demand: `write` imports Keras, which the check does not need.
_LAZY = {
    "METADATA_FILE": "write",
    "ExportError": "check",
    "check_saved_model": "check",
    "export_text_model": "write",
}

__all__ = list(_LAZY)


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(f"keras_tfmr.export.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'keras_tfmr.export' has no attribute {name!r}")
