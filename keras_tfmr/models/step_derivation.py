"""The decoding step of a functional model, derived from the model's own graph.

The graph is walked once, with the model's own layers and weights:

- What does not depend on the target ids becomes `encode`, a model that is called once. It also
  makes what the layers read of a context, such as keys and values, and the position vectors.
- What depends on them becomes `step`, a model that is called on one token after the other. A layer
  that mixes positions is called by its `step`, with a cache. A layer that treats each position
  alone is called as it is.

What a layer has to state to take part is on the page docs/guide/from_layers.md. A call that these
rules do not know is a `NoStepError`, which names the layer.
"""

import contextlib
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_tfmr import compat
from keras_tfmr.layers import MultiHeadAttention
from keras_tfmr.models.graph import (
    arguments_of,
    calls_that_depend_on,
    has_method,
    is_given,
    is_padding_mask,
    is_reversed,
    takes_mask,
    tensors_in,
)
from keras_tfmr.models.position_wise import (
    NoStepError,
    check_constants,
    check_inside,
    check_position_wise,
    check_training,
    ranks_of,
)


class DerivedStep(NamedTuple):
    """The two models of a decoding step.

    Fields:
        encode: From the list of the inputs other than the target ids and, at its end, the positions
            int32 `[length]`, to two lists: what the steps read of each example, `[batch, ...]`, and
            position vectors `[length, ...]`. None if the steps read nothing.
        step: From `[ids, index, caches, examples, vectors]` to `[logits, caches]`: token ids int32
            `[rows, length]` after `index` others, and logits `[rows, length, vocab]`.
        cached: The layers of the caches.
        stepped: For each tensor of the graph that depends on the target ids, the name of the layer
            that made it, the tensor, and that of the step.
        masks_padding: Whether layers are given the mask `target ids != 0`.
    """

    encode: keras.Model | None
    step: keras.Model
    cached: list
    stepped: list
    masks_padding: bool

    def empty_caches(self, rows: Any, room: int | None) -> list:
        """The caches of no tokens: see `keras_tfmr.layers.cache`."""
        return self.of_any_size([layer.empty_cache(rows, room) for layer in self.cached])

    def of_any_size(self, caches: list) -> list:
        """The caches; TensorFlow forgets each size that a loop may change."""
        inputs = self.step.input[2]
        return tree.map_structure(
            lambda x, like: compat.forget_sizes(x, like.shape), caches, inputs
        )


def derived_step(graph, target: int, num_beams: int, room: int | None) -> DerivedStep:
    """The step of a functional model.

    Args:
        graph: What `calls_of` gives of the model with the logits as its only output.
        target: The place of the target ids among its inputs.
        num_beams: Number of hypotheses of an example, which stand side by side.
        room: None for caches that grow; any number for caches of fixed shapes.

    Raises:
        NoStepError: If a layer may look at other positions; the error names it.
    """
    inputs, [logits], calls = graph
    build = Derivation(inputs[target], num_beams, room)
    for call in calls_that_depend_on(inputs[target], calls):
        build.add(call)
    return build.finish([x for place, x in enumerate(inputs) if place != target], logits)


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
        self.of_step = {id(target): self.ids}
        self.stepped, self.masks_padding = [], False
        self.cached, self.caches, self.new_caches = [], [], []
        self.examples, self.vectors = [], []  # pairs: what `encode` gives, and an input of `step`

    def add(self, call):
        """One call that depends on the target ids, after those that made its inputs."""
        layer = call.operation
        check_training(call)
        if is_reversed(call):
            check_inside(layer)
            outputs = layer(self.of_step[id(next(iter(arguments_of(call).values())))], reverse=True)
        elif has_method(layer, "position_vectors"):
            outputs = self._embedded(call)
        elif has_method(layer, "step"):
            outputs = self._stepped(call)
        else:
            outputs = self._position_wise(call)
        for of_graph, of_step in zip(call.outputs, tree.flatten(outputs), strict=True):
            self.of_step[id(of_graph)] = of_step
            self.stepped.append((layer.name, of_graph, of_step))

    def finish(self, sources, logits):
        """The `DerivedStep`, from these inputs of the graph to these logits of it."""
        if id(logits) not in self.of_step:
            raise NoStepError("the logits do not depend on the target ids")
        encode, read = None, [[x for x, _ in pairs] for pairs in (self.examples, self.vectors)]
        if tree.flatten(read):
            encode = keras.Model([*sources, self.positions], read, name="encode")
        given = [[x for _, x in pairs] for pairs in (self.examples, self.vectors)]
        step = keras.Model(
            [self.ids, self.index, self.caches, *given],
            [self.of_step[id(logits)], self.new_caches],
            name="step",
        )
        return DerivedStep(encode, step, self.cached, self.stepped, self.masks_padding)

    def _check_masks(self, layer, masks):
        """All tokens so far are valid, as a search produces no padding before the end."""
        for mask in tree.flatten(masks):
            if mask is None:
                continue
            if not is_padding_mask(mask, self.target):
                raise NoStepError(f"{layer.name} has a mask other than `{self.target.name} != 0`")
            self.masks_padding = True

    def _embedded(self, call):
        """A layer that adds position vectors, such as a `PositionalEmbedding`."""
        layer = call.operation
        check_methods(layer, "position_vectors", "step")
        check_inside(layer)
        given = arguments_of(call)
        x = given.pop(next(iter(given)))
        check_nothing_else(layer, given)
        with naming(layer, "position_vectors"):
            vectors = OfLayer(layer, layer.position_vectors)(self.positions)
        vectors = self._read(self.vectors, vectors)
        return OfLayer(layer, layer.step)(self.of_step[id(x)], vectors, self.index)

    def _stepped(self, call):
        """A layer that has a `step`."""
        layer, given = call.operation, arguments_of(call)
        check_methods(layer, "step", "empty_cache")
        check_inside(layer)
        if isinstance(layer, MultiHeadAttention):
            given = as_sublayer(layer, given)
        x = given.pop(next(iter(given)))
        context, context_mask = given.pop("context", None), given.pop("context_mask", None)
        mask = given.pop("mask", None)
        self._check_masks(layer, compat.keras_mask(x) if mask is None else mask)
        check_nothing_else(layer, given)
        if id(x) not in self.of_step or any(
            id(tensor) in self.of_step for tensor in tensors_in((context, context_mask))
        ):
            raise NoStepError(f"{layer.name} attends to a context that depends on the target ids")
        read = None
        if context is not None:
            check_methods(layer, "read_context")
            read = self._read_context(layer, context, context_mask)
        return self._step_of(layer, self.of_step[id(x)], read, call.outputs)

    def _read_context(self, layer, context, mask):
        """The inputs of `step` for what a layer reads of a context."""
        # While Keras traces a layer, a tensor has no mask.
        mask = compat.keras_mask(context) if mask is None else mask
        with naming(layer, "read_context"):
            of_graph = OfLayer(layer, layer.read_context)(context, mask)
        return tree.map_structure(lambda tensor: self._read(self.examples, tensor), of_graph)

    def _step_of(self, layer, x, read, outputs):
        """The output of a layer's `step`, whose cache is an input and an output of the model."""
        if len(outputs) != 1:
            raise NoStepError(f"{layer.name} gives {len(outputs)} tensors")
        [like] = outputs
        with naming(layer, "empty_cache"):
            cache = tree.map_structure(cache_input, layer.empty_cache(1, self.room and 0))

        def step(x, cache, index, context):
            if context is None:
                return layer.step(x, cache, index)
            return layer.step(x, cache, index, context, self.num_beams)

        def spec(x, cache, index, context):
            # Stated, because rows and examples are different numbers, which no tracing can know.
            y = keras.KerasTensor((*x.shape[:2], *like.shape[2:]), like.dtype)
            return y, tree.map_structure(lambda x: keras.KerasTensor(x.shape, x.dtype), cache)

        y, new_cache = OfLayer(layer, step, spec)(x, cache, self.index, read)
        self.cached.append(layer)
        self.caches.append(cache)
        self.new_caches.append(new_cache)
        return y

    def _position_wise(self, call):
        """A layer or operation that treats each position alone."""
        operation, kwargs = call.operation, dict(call.kwargs)
        if isinstance(operation, keras.layers.Layer) and takes_mask(operation):
            self._check_masks(operation, kwargs.pop("mask", None))
            mine = [x for x in tensors_in((call.args, kwargs)) if id(x) in self.of_step]
            self._check_masks(operation, [compat.keras_mask(x) for x in mine])
        call = call._replace(kwargs=kwargs)
        check_position_wise(operation, ranks_of(call))
        check_constants(call)
        rank = max(ranks_of(call))

        def argument(x):
            if not isinstance(x, keras.KerasTensor):
                return x
            if id(x) in self.of_step:
                return self.of_step[id(x)]
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


def as_sublayer(layer, given):
    """The arguments of a call of `MultiHeadAttention` as those of a layer with a `step`.

    Raises:
        NoStepError: If it attends neither to the earlier positions alone nor to one context.
    """
    given = dict(given)
    query, value, key = given.pop("query"), given.pop("value", None), given.pop("key", None)
    value = query if value is None else value
    if key is not None and key is not value:
        raise NoStepError(f"{layer.name} has keys and values of different vectors")
    causal = given.pop("use_causal_mask", False)
    masks, context = [given.pop("query_mask", None)], {}
    if value is query:
        if causal is not True:
            raise NoStepError(f"{layer.name} is called without `use_causal_mask=True`")
        masks += [given.pop("value_mask", None), given.pop("key_mask", None)]
    elif is_given(causal):
        raise NoStepError(f"{layer.name} is called with `use_causal_mask` and a context")
    else:
        context = {"context": value, "context_mask": given.pop("value_mask", None)}
    masks = [mask for mask in masks if mask is not None] or None
    return {"x": query, "mask": masks, **context, **given}


def check_methods(layer, *names):
    """Raises a `NoStepError` unless the class of a layer has these methods."""
    for name in names:
        if not has_method(layer, name):
            raise NoStepError(f"{layer.name} ({type(layer).__name__}) lacks a method `{name}`")


def check_nothing_else(layer, given):
    """Raises a `NoStepError` if a layer is called with arguments that its step does not know."""
    if unknown := [name for name, argument in given.items() if is_given(argument)]:
        raise NoStepError(f"{layer.name} is called with {', '.join(unknown)}")


@contextlib.contextmanager
def naming(layer, method):
    """Raises a `NoStepError` with the names of a layer and its method for any error in it."""
    try:
        yield
    except Exception as error:
        raise NoStepError(f"`{method}` of {layer.name} fails: {in_one_line(error)}") from error


def in_one_line(error):
    """The beginning of an error's message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def cache_input(leaf):
    """The input of `step` for a tensor of an empty cache; an axis of size 0 may have any size."""
    shape = [size or None for size in leaf.shape]
    return keras.Input(batch_shape=(None, *shape[1:]) if shape else (), dtype=leaf.dtype)


class OfLayer(keras.layers.Layer):
    """A call of another layer's method, such as its `step`, in a graph.

    Args:
        layer: The layer, whose weights these are.
        method: The function to call.
        spec: The symbolic outputs of symbolic arguments; by default, Keras traces the method.
    """

    def __init__(self, layer, method, spec=None):
        super().__init__(autocast=False, dtype=layer.dtype_policy)
        self.layer, self.method, self.spec = layer, method, spec
        self.supports_masking = True  # else Keras warns of masks that end here

    def build(self, *shapes):
        pass  # the layer is built

    def compute_mask(self, *tensors):
        return None

    def compute_output_spec(self, *args, **kwargs):
        trace = super().compute_output_spec if self.spec is None else self.spec
        return trace(*args, **kwargs)

    def call(self, *args):
        return self.method(*args)
