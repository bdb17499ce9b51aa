"""Searches of a model, compiled once for their options and sizes.

JAX compiles by `jax.jit`, with the weights as arguments, and TensorFlow by XLA. Where XLA cannot,
TensorFlow makes one graph for all sizes, and JAX runs a search as it is, as PyTorch does.

Programs of fixed shapes are few: a batch is padded to the next power of two, with copies of its
last example that have ended before they begin, and ids to the next of a few lengths.
"""

import contextlib
import operator
import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr import _checks, compat
from keras_tfmr.decoding import DecodingConfig, DecodingResult

SHORTEST = 8  # ids are padded to this length, or its next double


class SearchOptions(NamedTuple):
    """What a program is compiled for, apart from the sizes."""

    config: DecodingConfig
    eos_ids: tuple[int, ...]
    fixed_shapes: bool | None  # as for `TranslationModel.start`


class Programs:
    """The compiled searches of a model.

    It is not a layer, so that Keras neither saves nor copies what it holds.

    Args:
        model: A `NextTokenModel`. Its `search_of(tensors, options)` returns a `DecodingResult`, and
            its `wider(tensors, options)` the same tensors, with ids padded to a length of few.
    """

    def __init__(self, model):
        self.model = model
        self.compiled = {}
        self.variables = []  # those of the model when the programs were compiled
        self.not_compiled = None  # why XLA does not compile the model, once that is known

    def run(
        self, tensors: dict[str, Any], options: SearchOptions, jit_compile: Any, run_eagerly: bool
    ) -> DecodingResult:
        """The result of a search.

        Args:
            tensors: Nested tensors `[batch, ...]`.
            options: The `SearchOptions`.
            jit_compile, run_eagerly: As for `TranslationModel.generate`.
        """
        backend = keras.backend.backend()
        check_choice(backend, jit_compile, run_eagerly, options.fixed_shapes)
        is_empty = tree.flatten(tensors)[0].shape[0] == 0
        inside = backend == "tensorflow" and compat.is_traced_or_stateless()
        if inside and jit_compile is True:
            raise ValueError(
                "`generate` is a part of the graph that calls it: give jit_compile=True to that "
                "tf.function, and fixed_shapes=True here. Received: jit_compile=True"
            )
        if run_eagerly or backend == "torch" or is_empty or inside:
            return self._as_it_is(backend, tensors, options)
        self._forget_old_programs()
        compiles = self._compiles(jit_compile, options.fixed_shapes)
        if backend == "jax":
            if not compiles:
                return self._as_it_is(backend, tensors, options)
            fixed = options._replace(fixed_shapes=True)
            return self._padded(self._jitted(fixed), tensors, fixed)
        if compiles:
            fixed = options._replace(fixed_shapes=True)
            try:
                return self._padded(self._traced(fixed, xla=True), tensors, fixed)
            except compat.xla_errors() as error:
                if jit_compile is True:
                    raise
                self._refuse(str(error))
        options = options._replace(fixed_shapes=bool(options.fixed_shapes))
        return self._traced(options, xla=False)(tensors)

    def _as_it_is(self, backend, tensors, options):
        with without_gradients(backend):
            return self.model.search_of(tensors, options)

    def _forget_old_programs(self):
        """LoRA and quantisation give a model other variables."""
        now = self.model.variables
        if len(now) != len(self.variables) or any(map(operator.is_not, now, self.variables)):
            self.compiled, self.variables = {}, now

    def _compiles(self, jit_compile, fixed_shapes):
        """Whether to compile for fixed shapes."""
        if jit_compile != "auto":
            return jit_compile
        if self.not_compiled is None:
            layers = compat.flatten_layers(self.model)
            if names := [layer.name for layer in layers if not layer.supports_jit]:
                self._refuse(f"{', '.join(names)} has supports_jit=False")
        return self.not_compiled is None and fixed_shapes is not False

    def _refuse(self, reason):
        """Warns once that the model is not compiled."""
        self.not_compiled = reason
        warnings.warn(f"{self.model.name} decodes without XLA: {reason:.500}", stacklevel=5)

    def _padded(self, program, tensors, options):
        """The result of a program of fixed shapes."""
        batch = tree.flatten(tensors)[0].shape[0]
        rows = 1 << (batch - 1).bit_length()  # the next power of two
        tensors = self.model.wider(tensors, options)
        if rows > batch:
            tensors = tree.map_structure(lambda x: repeat_last(x, rows - batch), tensors)
        longest = options.config.max_length
        limits = np.where(np.arange(rows) < batch, longest, 0).astype("int32")
        result = program({**tensors, "max_lengths": ops.convert_to_tensor(limits)})
        return tree.map_structure(lambda x: x[:batch], result) if rows > batch else result

    def _jitted(self, options):
        """The search under `jax.jit`."""
        import jax

        if options not in self.compiled:
            variables = self.variables

            def search(weights, tensors):
                with keras.StatelessScope(list(zip(variables, weights, strict=True))):
                    return self.model.search_of(tensors, options)

            self.compiled[options] = jax.jit(search)
        program, variables = self.compiled[options], self.variables
        return lambda tensors: program([variable.value for variable in variables], tensors)

    def _traced(self, options, xla):
        """The search as a graph of TensorFlow: by XLA for its sizes, or for any once it saw two."""
        import tensorflow as tf

        key = options, xla
        if key not in self.compiled:
            self.compiled[key] = tf.function(
                lambda tensors: self.model.search_of(tensors, options),
                jit_compile=xla,
                autograph=False,
                reduce_retracing=not xla,
            )
        return self.compiled[key]


def check_choice(backend, jit_compile, run_eagerly, fixed_shapes):
    """Raises a ValueError if these choices contradict each other or have no effect."""
    if jit_compile not in ("auto", True, False):
        raise ValueError(
            f"`jit_compile` must be 'auto', True or False. Received: jit_compile={jit_compile!r}"
        )
    _checks.flag("run_eagerly", run_eagerly)
    if jit_compile is True and (run_eagerly or backend == "torch" or fixed_shapes is False):
        but = "with PyTorch, which runs it as it is"
        if backend != "torch":
            but = "with run_eagerly=True" if run_eagerly else "with fixed_shapes=False"
        raise ValueError(f"`generate` cannot compile {but}. Received: jit_compile=True")


def without_gradients(backend):
    """A scope in which PyTorch keeps nothing for gradients."""
    if backend != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def repeat_last(x, times):
    """`x` `[batch, ...]` with its last row repeated: `[batch + times, ...]`."""
    return ops.concatenate([x, ops.repeat(x[-1:], times, axis=0)], axis=0)


def padded_ids(ids, most=None):
    """Ids `[batch, length]`, padded with 0 to the next of a few lengths, of at most `most`."""
    length, width = ids.shape[1], SHORTEST
    while width < length:
        width *= 2
    width = width if most is None else max(min(width, most), length)
    return ops.pad(ids, [[0, 0], [0, width - length]]) if width > length else ids
