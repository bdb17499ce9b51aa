"""The operations of a function's graph in TensorFlow: what it builds, and from what."""

from typing import NamedTuple


class Operation(NamedTuple):
    kind: str  # "Softmax", "Exp", ...
    shape: tuple  # of its first output; None for what is unknown
    dtype: str
    sources: frozenset  # positions of the arguments it depends on


def operations(function, *arrays):
    """Traces `function(*arrays)`; returns its operations in order of execution."""
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
