"""A text model as a SavedModel that TensorFlow Serving loads, and the check of any SavedModel."""

import importlib

# `write` takes TensorFlow and Keras with it, which the check of a SavedModel does without.
_LAZY = {
    "METADATA_FILE": "write",
    "ExportError": "check",
    "check_in_fresh_process": "check",
    "check_saved_model": "check",
    "export_text_model": "write",
}

__all__ = list(_LAZY)


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(f"keras_tfmr.export.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'keras_tfmr.export' has no attribute {name!r}")
