"""The graph of a functional model: its calls in their order, their arguments and their masks."""

import inspect
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import tree

from keras_tfmr import compat


class Call(NamedTuple):
    """One call of a layer or operation in a graph."""

    operation: Any
    args: tuple
    kwargs: dict
    outputs: list


def calls_of(model: keras.Model) -> tuple[list, list, list[Call]]:
    """The graph of a model: its inputs, its outputs, and all calls in their order."""
    calls = [
        Call(operation, arguments.args, arguments.kwargs, outputs)
        for operation, arguments, outputs in compat.nodes_of(as_plain_model(model))
    ]
    return model.inputs, model.outputs, calls


def as_plain_model(model):
    """The same graph as a `keras.Model`: a clone of it is one too, and nothing more."""
    return keras.Model(model.input, model.output)


def tensors_in(nested):
    """The symbolic tensors among nested arguments."""
    return [leaf for leaf in tree.flatten(nested) if isinstance(leaf, keras.KerasTensor)]


def calls_that_depend_on(x, calls):
    """Those of the calls of a graph whose outputs depend on one of its tensors."""
    depends, found = {id(x)}, []
    for call in calls:
        if any(id(tensor) in depends for tensor in tensors_in((call.args, call.kwargs))):
            depends.update(map(id, call.outputs))
            found.append(call)
    return found


def arguments_of(call):
    """The arguments of a layer's call by their names, whether given by place or by name."""
    kwargs = dict(call.kwargs)
    signature = inspect.signature(call.operation.call)
    # Keras takes it for layers that do not know it.
    training = {"training": kwargs.pop("training")} if "training" in kwargs else {}
    arguments = signature.bind(*call.args, **kwargs).arguments
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(name, {}))
    return {**arguments, **training}


def is_given(argument):
    """Whether an argument is neither None nor False."""
    return argument is not None and argument is not False


def takes_mask(layer):
    """Whether the `call` of a layer has an argument `mask`, which Keras fills in."""
    return "mask" in inspect.signature(layer.call).parameters


def is_reversed(call):
    """Whether an embedding is called to make logits."""
    embeds = has_method(call.operation, "position_vectors")
    if not embeds and type(call.operation) is not keras.layers.ReversibleEmbedding:
        return False
    return arguments_of(call).get("reverse") is True


def has_method(layer, name):
    """Whether the class of a layer has a method of this name."""
    return callable(getattr(type(layer), name, None))


def overridden(layer, statement):
    """Whether a subclass has a `call` of its own, for which its base class cannot speak."""
    bases = type(layer).__mro__
    called = next(base for base in bases if "call" in vars(base))
    stated = next(base for base in bases if statement in vars(base))
    return not issubclass(stated, called)


def is_padding_mask(mask, ids):
    """Whether a symbolic mask is `ids != 0`, or the "and" or "or" of several of these."""
    if not isinstance(mask, keras.KerasTensor):
        return False
    operation, args = compat.made_by(mask)
    name = compat.operation_name(operation)
    if name in ("LogicalAnd", "LogicalOr"):
        return all(is_padding_mask(x, ids) for x in args)
    if name != "NotEqual":
        return False
    others = [x for x in args if x is not ids]
    return len(others) == 1 and np.isscalar(others[0]) and others[0] == 0
