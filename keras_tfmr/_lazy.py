"""Registers the classes that saved models may contain, as soon as Keras is imported."""

import importlib
import importlib.abc
import importlib.util
import sys

# What `keras.models.load_model` may need, and what else of this package imports Keras.
REGISTERED = ("layers", "models", "recurrent", "losses", "schedules", "metrics")
ON_KERAS = (*REGISTERED, "_checks", "decoding", "precision", "text")


def register_with_keras():
    """Imports every registered class as soon as Keras is imported, or at once if it is.

    Keras loads a file only if its classes are registered, so `import keras_tfmr` has to register
    them. But importing the client, a part of this package, must not import Keras.
    """
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterKeras())


def _register():
    for module in REGISTERED:
        importlib.import_module(f"keras_tfmr.{module}")


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Runs the registration after the first import of Keras, or of a module that imports it.

    Not after imports within that one: their importer is not complete, so importing from it fails.
    """

    triggers = frozenset({"keras", *(f"keras_tfmr.{module}" for module in ON_KERAS)})

    def find_spec(self, name, path=None, target=None):
        if name not in self.triggers:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)  # a caller may ask for a spec without importing
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._followed(spec.loader.exec_module)
        return spec

    def _followed(self, run):
        def exec_module(module):
            first = self in sys.meta_path
            if first:
                sys.meta_path.remove(self)
            run(module)
            if first:
                _register()

        return exec_module
