"""The operations a function consists of, on either backend: what it builds, and from what."""

from typing import NamedTuple

import keras
import numpy as np


class Operation(NamedTuple):
    kind: str  # "Softmax", "exp", ...
    shape: tuple  # of its first output; None for what is unknown
    dtype: str
    sources: frozenset  # positions of the arguments it depends on


def operations(function, *arrays):
    """Traces `function(*arrays)`; returns its operations in order of execution."""
    if keras.backend.backend() == "jax":
        return _operations_jax(function, arrays)
    return _operations_tensorflow(function, arrays)


def _operations_tensorflow(function, arrays):
    import tensorflow as tf

    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    graph = tf.function(function).get_concrete_function(*specs).graph
    sources = {tensor.name: frozenset([i]) for i, tensor in enumerate(graph.inputs)}
    found = []
    for operation in graph.get_operations():
        if operation.type == "Placeholder":
            continue
        depends = frozenset().union(*(sources[tensor.name] for tensor in operation.inputs))
        sources.update((tensor.name, depends) for tensor in operation.outputs)
        for tensor in operation.outputs[:1]:
            found.append(Operation(operation.type, tuple(tensor.shape), tensor.dtype.name, depends))
    return found


def _operations_jax(function, arrays):
    import jax

    closed = jax.make_jaxpr(function)(*arrays)
    found = []
    _walk(closed.jaxpr, [frozenset([i]) for i in range(len(arrays))], found)
    return found


def _walk(jaxpr, arguments, found):
    """Adds the operations of `jaxpr`, whose inputs depend on `arguments`; returns the outputs'."""
    sources = dict.fromkeys(jaxpr.constvars, frozenset())
    sources.update(zip(jaxpr.invars, arguments, strict=True))

    def of(variable):
        return frozenset() if hasattr(variable, "val") else sources[variable]

    for equation in jaxpr.eqns:
        inputs = [of(variable) for variable in equation.invars]
        inner = next((p for p in equation.params.values() if hasattr(p, "eqns")), None)
        closed = next((p.jaxpr for p in equation.params.values() if hasattr(p, "jaxpr")), inner)
        if closed is not None and len(closed.invars) == len(inputs):
            outputs = _walk(closed, inputs, found)
        else:
            outputs = [frozenset().union(*inputs)] * len(equation.outvars)
            aval = equation.outvars[0].aval
            dtype = str(np.dtype(aval.dtype)) if hasattr(aval, "dtype") else ""
            found.append(Operation(equation.primitive.name, aval.shape, dtype, outputs[0]))
        sources.update(zip(equation.outvars, outputs, strict=True))
    return [of(variable) for variable in jaxpr.outvars]
