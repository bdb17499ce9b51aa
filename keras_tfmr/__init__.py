"""Transformer layers for Keras 3, and models of text built from them that can be served.

Names of dimensions, in comments and docstrings: batch, beam, rows
(= batch · beam, the beams of a sentence side by side), heads, query, key, length, source,
target, vocab, d_model, dff, key_dim, value_dim, units, n.

Masks are bool, True = valid / may attend. Padding is token id 0.
"""

import functools
import importlib
import importlib.abc
import pkgutil
import re
import sys

__version__ = "0.1.0"

# The modules with Keras classes. Keras loads a model from a file only if its classes are known.
_ON_KERAS = [
    f"keras_tfmr.{name}"
    for name in ("layers", "models", "recurrent", "losses", "schedules", "metrics")
]


def _homes(package):
    """{public name: its module} of a package, as the stub beside its `__init__.py` lists them."""
    stub = pkgutil.get_data(package, "__init__.pyi").decode("utf-8")
    return {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.M)}


# Modules are imported on demand, so that the client does not import Keras, nor the layers
# TensorFlow.
_HOMES = _homes(__name__)

# `from keras_tfmr import *` leaves out what needs TensorFlow or Matplotlib.
__all__ = ["recurrent", *(name for name, home in _HOMES.items() if home in _ON_KERAS)]


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'keras_tfmr' has no attribute {name!r}")
    if _HOMES[name] == "keras_tfmr":
        return importlib.import_module(f"keras_tfmr.{name}")
    if _HOMES[name] in _ON_KERAS:
        _register()
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__():
    return ["__version__", *_HOMES]


def _register():
    for module in _ON_KERAS:
        importlib.import_module(module)


class _OnImportOfKeras(importlib.abc.MetaPathFinder):
    """Finds modules as the others do, and registers the classes as soon as Keras is imported.

    If a module of this package imports it, that module is whole first, because the classes may need
    it.
    """

    _is_in_one = False

    def find_spec(self, name, path=None, target=None):
        if self._is_in_one or not (name == "keras" or name.startswith("keras_tfmr.")):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(self._execute, spec.loader.exec_module)
        return spec

    def _execute(self, execute, module):
        self._is_in_one = True
        try:
            execute(module)
        finally:
            self._is_in_one = False
        if sys.modules.get("keras") and self in sys.meta_path:
            sys.meta_path.remove(self)
            _register()


# With Keras, whichever is imported first, so that `keras.models.load_model` knows the classes.
if "keras" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _OnImportOfKeras())
