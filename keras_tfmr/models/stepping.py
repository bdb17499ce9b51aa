"""The decoding step of a functional model, derived from the model's own graph.

The graph is walked once, with the model's own layers and weights:

- What does not depend on the target ids becomes `encode`, a model that is called once. It also
  makes what the layers read of a context, such as keys and values, and the position vectors.
- What depends on them becomes `step`, a model that is called on one token after the other. A layer
  that mixes positions is called by its `step`, with a cache. A layer that treats each position
  alone is called as it is.

A layer takes part by one of two declarations:

- `position_wise = True`, an attribute of its class;
- or `empty_cache(rows, room)` and `step(x, cache, index)`, as `CausalSelfAttention` has them. One
  that is called with a context has `read_context(context, context_mask)`, and its step takes what
  that gives, and `num_beams`: see `CrossAttention`. One that knows positions has
  `position_vectors(positions)` instead of a cache: see `PositionalEmbedding`.
"""

from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_tfmr import compat
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.layers.base import MaskingLayer, serialize

# Keras's layers that treat each position of `[batch, length, ...]` alone.
KERAS_LAYERS = {
    keras.layers.Activation, keras.layers.ActivityRegularization, keras.layers.Add,
    keras.layers.AlphaDropout, keras.layers.Average, keras.layers.Dense, keras.layers.Dropout,
    keras.layers.ELU, keras.layers.Embedding, keras.layers.GaussianDropout,
    keras.layers.GaussianNoise, keras.layers.Identity, keras.layers.InputLayer,
    keras.layers.LeakyReLU, keras.layers.Maximum, keras.layers.Minimum, keras.layers.Multiply,
    keras.layers.ReLU, keras.layers.Rescaling, keras.layers.ReversibleEmbedding,
    keras.layers.Subtract, keras.layers.TimeDistributed,
}  # fmt: skip
# Of these, only along the last axis.
ALONG_THE_LAST_AXIS = {
    keras.layers.BatchNormalization, keras.layers.Concatenate, keras.layers.LayerNormalization,
    keras.layers.RMSNormalization, keras.layers.Softmax, keras.layers.UnitNormalization,
}  # fmt: skip
# Functions of `keras.ops` that compute each element alone.
ELEMENTWISE = {
    "Absolute", "Add", "Cast", "Divide", "Elu", "Equal", "Exp", "Gelu", "Greater", "Less", "Log",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Multiply", "Negative",
    "NotEqual", "Power", "Relu", "Sigmoid", "Silu", "Softplus", "Sqrt", "Square", "Subtract",
    "Tanh", "TrueDivide", "Where",
}  # fmt: skip


class NoStepError(ValueError):
    """Why a model has no step with caches."""


class Call(NamedTuple):
    """One call of a layer or operation in a graph."""

    operation: Any
    args: tuple
    kwargs: dict
    outputs: list


class DerivedStep(NamedTuple):
    """The two models of a decoding step.

    Fields:
        encode: From the list of the inputs other than the target ids and, at its end, the positions
            int32 `[length]`, to two lists: what the steps read of each example, `[batch, ...]`, and
            position vectors `[length, ...]`. None if the steps read nothing.
        step: From `[ids, index, caches, examples, vectors]` to `[logits, caches]`: token ids int32
            `[rows, length]` after `index` others, and logits `[rows, length, vocab]`.
        cached: The layers of the caches.
    """

    encode: keras.Model | None
    step: keras.Model
    cached: list

    def empty_caches(self, rows: Any, room: int | None) -> list:
        """The caches of no tokens: see `keras_tfmr.layers.cache`."""
        return self.of_any_size([layer.empty_cache(rows, room) for layer in self.cached])

    def of_any_size(self, caches: list) -> list:
        """The caches; TensorFlow forgets each size that a loop may change."""
        inputs = self.step.input[2]
        return tree.map_structure(
            lambda x, like: compat.forget_sizes(x, like.shape), caches, inputs
        )


def calls_of(model: keras.Model) -> tuple[list, list, list[Call]]:
    """The graph of a model, called anew: its inputs, its outputs, and all calls in their order."""
    calls: list[Call] = []

    def call(operation, *args, **kwargs):
        outputs = operation(*args, **kwargs)
        calls.append(Call(operation, args, kwargs, tree.flatten(outputs)))
        return outputs

    inputs = tree.map_structure(
        lambda x: keras.Input(batch_shape=x.shape, dtype=x.dtype, name=x.name), model.input
    )
    graph = keras.models.clone_model(
        as_plain_model(model), inputs, clone_function=lambda layer: layer, call_function=call
    )
    return tree.flatten(inputs), graph.outputs, calls


def as_plain_model(model):
    """The same graph as a `keras.Model`: a clone of it is one too, and nothing more."""
    return keras.Model(model.input, model.output)


def tensors_in(nested):
    """The symbolic tensors among nested arguments."""
    return [leaf for leaf in tree.flatten(nested) if isinstance(leaf, keras.KerasTensor)]


def derived_step(
    model: keras.Model, target: int, logits: int, num_beams: int, room: int | None
) -> DerivedStep:
    """The step of a functional model.

    Args:
        model: The model.
        target: The place of the target ids among its inputs.
        logits: The place of the logits among its outputs.
        num_beams: Number of hypotheses of an example, which stand side by side.
        room: None for caches that grow; any number for caches of fixed shapes.

    Raises:
        NoStepError: If a layer may look at other positions; the error names it.
    """
    inputs, outputs, calls = calls_of(model)
    build = Derivation(inputs[target], num_beams, room)
    for call in calls:
        build.add(call)
    sources = [x for place, x in enumerate(inputs) if place != target]
    return build.finish(sources, outputs[logits])


class Derivation:
    """A walk over the calls of a graph, which builds the two models of a `DerivedStep`.

    Args:
        target: The target ids of the graph.
        num_beams, room: As for `derived_step`.
    """

    def __init__(self, target, num_beams, room):
        self.target, self.num_beams, self.room = target, num_beams, room
        self.ids = keras.Input((None,), dtype="int32", name="ids")
        self.index = keras.Input(batch_shape=(), dtype="int32", name="index")
        self.positions = keras.Input(batch_shape=(None,), dtype="int32", name="positions")
        # By id of a tensor of the graph that depends on the target ids, that of the step.
        self.stepped = {id(target): self.ids}
        self.padding = set()  # ids of tensors `target != 0`, the mask that Keras gives target ids
        self.cached, self.caches, self.new_caches = [], [], []
        self.examples, self.vectors = [], []  # pairs: what `encode` gives, and an input of `step`

    def add(self, call):
        """One call of the graph, after those that made its inputs."""
        if not any(id(x) in self.stepped for x in tensors_in((call.args, call.kwargs))):
            return  # nothing of it depends on the target ids
        kwargs = self._without_padding_mask(call)
        operation = call.operation
        if compat.operation_name(operation) == "NotEqual" and call.args[0] is self.target:
            self.padding.update(map(id, call.outputs))
        if is_reversed(call):
            outputs = operation(self.stepped[id(call.args[0])], reverse=True)
        elif hasattr(operation, "position_vectors"):
            outputs = self._embedded(call)
        elif hasattr(operation, "step"):
            outputs = self._stepped(call, kwargs)
        else:
            outputs = self._position_wise(call, kwargs)
        for of_graph, of_step in zip(call.outputs, tree.flatten(outputs), strict=True):
            self.stepped[id(of_graph)] = of_step

    def finish(self, sources, logits):
        """The `DerivedStep`, from these inputs of the graph to these logits of it."""
        if id(logits) not in self.stepped:
            raise NoStepError("the logits do not depend on the target ids")
        encode, read = None, [[x for x, _ in pairs] for pairs in (self.examples, self.vectors)]
        if tree.flatten(read):
            encode = keras.Model([*sources, self.positions], read, name="encode")
        given = [[x for _, x in pairs] for pairs in (self.examples, self.vectors)]
        step = keras.Model(
            [self.ids, self.index, self.caches, *given],
            [self.stepped[id(logits)], self.new_caches],
            name="step",
        )
        return DerivedStep(encode, step, self.cached)

    def _without_padding_mask(self, call):
        """The keyword arguments of a call without a padding mask of the target ids.

        All tokens so far are valid: a search produces no padding before the end.
        """
        kwargs = {name: value for name, value in call.kwargs.items() if value is not None}
        if "mask" in kwargs:
            if not all(id(x) in self.padding for x in tree.flatten(kwargs["mask"])):
                raise NoStepError(f"{call.operation.name} has a mask of its own")
            del kwargs["mask"]
        return kwargs

    def _embedded(self, call):
        """A `PositionalEmbedding` or `AddPositions`."""
        layer = call.operation
        check_inside(layer)
        vectors = self._read(self.vectors, PositionVectorsOf(layer)(self.positions))
        return EmbeddingStepOf(layer)(self.stepped[id(call.args[0])], vectors, self.index)

    def _stepped(self, call, kwargs):
        """A layer that has a `step`."""
        layer, (x, *others) = call.operation, call.args
        check_inside(layer)
        named = dict(zip(("context", "context_mask"), others, strict=False))
        given = {**named, **{name: value for name, value in kwargs.items() if value is not False}}
        context, mask = given.pop("context", None), given.pop("context_mask", None)
        given.pop("training", None)
        if given or len(others) > 2:
            raise NoStepError(f"{layer.name} is called with {', '.join(given) or 'more tensors'}")
        if any(id(tensor) in self.stepped for tensor in tensors_in((context, mask))):
            raise NoStepError(f"{layer.name} attends to a context that depends on the target ids")
        read = None
        if context is not None:
            # While Keras traces a layer, a tensor has no mask.
            mask = compat.keras_mask(context) if mask is None else mask
            of_graph = ContextOf(layer)(context, mask)
            read = tree.map_structure(lambda tensor: self._read(self.examples, tensor), of_graph)
        cache = tree.map_structure(cache_input, layer.empty_cache(1, self.room and 0))
        [like] = call.outputs
        step = StepOf(layer, self.num_beams, like.shape[2:], like.dtype)
        x, new_cache = step(self.stepped[id(x)], cache, self.index, read)
        self.cached.append(layer)
        self.caches.append(cache)
        self.new_caches.append(new_cache)
        return x

    def _position_wise(self, call, kwargs):
        """A layer or operation that treats each position alone."""
        operation = call.operation
        rank = max(len(x.shape) for x in (*call.outputs, *tensors_in(call.args)))
        if not is_position_wise(operation, rank):
            raise NoStepError(
                f"{operation.name} ({type(operation).__name__}) may look at other positions: it "
                "has neither a `step` nor `position_wise = True`"
            )

        def argument(x):
            if not isinstance(x, keras.KerasTensor):
                return x
            if id(x) in self.stepped:
                return self.stepped[id(x)]
            if len(x.shape) != rank or x.shape[1] != 1:
                raise NoStepError(
                    f"{operation.name} joins target positions to {x.name} of shape {x.shape}, "
                    "which must have one position"
                )
            read = self._read(self.examples, x)
            return ops.repeat(read, self.num_beams, axis=0) if self.num_beams > 1 else read

        args, kwargs = tree.map_structure(argument, (call.args, kwargs))
        return operation(*args, **kwargs)

    def _read(self, pairs, x):
        """The input of `step` for what `encode` gives."""
        for of_graph, of_step in pairs:
            if of_graph is x:
                return of_step
        of_step = keras.Input(batch_shape=(None, *x.shape[1:]), dtype=x.dtype)
        pairs.append((x, of_step))
        return of_step


def is_reversed(call):
    """Whether an embedding is called to make logits."""
    embeds = hasattr(call.operation, "position_vectors")
    if not embeds and type(call.operation) is not keras.layers.ReversibleEmbedding:
        return False
    return call.kwargs.get("reverse") is True or True in call.args[1:]


def is_position_wise(operation, rank=3):
    """Whether a layer or operation treats each position of `[batch, length, ...]` alone.

    Args:
        operation: A layer, model or operation.
        rank: The number of axes of what it is called with.
    """
    if isinstance(operation, keras.Sequential):
        return all(is_position_wise(layer, rank) for layer in operation.layers)
    if isinstance(operation, keras.Model):
        inside = getattr(operation, "operations", None)  # of a functional one
        return bool(inside) and all(is_position_wise(each, rank) for each in inside)
    if type(operation) in ALONG_THE_LAST_AXIS:
        axes = tree.flatten(operation.axis)
        return all(axis in (-1, rank - 1) for axis in axes)
    if type(operation) in KERAS_LAYERS or compat.operation_name(operation) in ELEMENTWISE:
        return True
    return getattr(operation, "position_wise", False) and not overridden(operation, "position_wise")


def check_inside(layer):
    """Raises an error if a layer, or one inside one of ours, does not state how it decodes.

    The step of another's layer knows what is inside it.
    """
    of_ours = isinstance(layer, MaskingLayer)
    for inside in compat.flatten_layers(layer) if of_ours else [layer]:
        states_it = hasattr(inside, "step") and not overridden(inside, "step")
        if not states_it and not is_position_wise(inside):
            where = "" if inside is layer else f", inside {layer.name},"
            raise NoStepError(
                f"{inside.name}{where} is a {type(inside).__name__}, whose `call` may look at "
                "other positions: it has neither a `step` of its own nor `position_wise = True`"
            )


def overridden(layer, statement):
    """Whether a subclass has a `call` of its own, for which its base class cannot speak."""
    bases = type(layer).__mro__
    called = next(base for base in bases if "call" in vars(base))
    stated = next(base for base in bases if statement in vars(base))
    return not issubclass(stated, called)


def cache_input(leaf):
    """The input of `step` for a tensor of an empty cache; an axis of size 0 may have any size."""
    shape = [size or None for size in leaf.shape]
    return keras.Input(batch_shape=(None, *shape[1:]) if shape else (), dtype=leaf.dtype)


class OfLayer(keras.layers.Layer):
    """The base of the layers that call a method of another one."""

    def __init__(self, layer, **kwargs):
        if isinstance(layer, dict):
            layer = keras.saving.deserialize_keras_object(layer)
        super().__init__(autocast=False, **{"dtype": layer.dtype_policy, **kwargs})
        self.layer = layer
        self.supports_masking = True  # else Keras warns of masks that end here

    def compute_mask(self, *tensors, **masks):
        return None

    def build(self, *shapes, **more_shapes):
        pass  # the layer is built

    def get_config(self):
        return {**super().get_config(), "layer": serialize(self.layer)}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class StepOf(OfLayer):
    """The `step` of a layer.

    Args:
        layer: The layer.
        num_beams: Number of hypotheses of an example.
        axes, output_dtype: The axes of its output after `[batch, length]`, and the dtype.
    """

    def __init__(self, layer, num_beams, axes, output_dtype, **kwargs):
        super().__init__(layer, **kwargs)
        self.num_beams, self.axes, self.output_dtype = num_beams, tuple(axes), output_dtype

    def compute_output_spec(self, x, cache, index, context=None):
        # Stated, because rows and examples are different numbers, which no tracing can know.
        y = keras.KerasTensor((*x.shape[:2], *self.axes), self.output_dtype)
        return y, tree.map_structure(lambda leaf: keras.KerasTensor(leaf.shape, leaf.dtype), cache)

    def call(self, x: Tensor, cache: Nested, index: Tensor, context: Nested = None) -> Nested:
        if context is None:
            return self.layer.step(x, cache, index)
        return self.layer.step(x, cache, index, context, self.num_beams)

    def get_config(self):
        return {
            **super().get_config(),
            "num_beams": self.num_beams,
            "axes": self.axes,
            "output_dtype": self.output_dtype,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class ContextOf(OfLayer):
    """The output of a layer's `read_context`."""

    def call(self, context: Tensor, context_mask: Tensor | None = None) -> Nested:
        return self.layer.read_context(context, context_mask)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class PositionVectorsOf(OfLayer):
    """The position vectors of an embedding."""

    def call(self, positions: Tensor) -> Tensor:
        return self.layer.position_vectors(positions)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class EmbeddingStepOf(OfLayer):
    """The `step` of an embedding."""

    def call(self, inputs: Tensor, vectors: Tensor, index: Tensor) -> Tensor:
        return self.layer.step(inputs, vectors, index)
