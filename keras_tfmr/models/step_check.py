"""Whether a derived step is the model itself, seen on a few random ids.

With the model's own weights, two things are compared:

- The model on a target, and on the beginning of this target. A layer whose output at the first
  positions differs looks at later tokens: such a model cannot be decoded token by token.
- The model, and its step on one token after the other.

Every output of every layer is compared, so that the first layer that differs is named.
"""

import functools

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr import compat
from keras_tfmr.models.graph import calls_that_depend_on
from keras_tfmr.models.position_wise import NoStepError
from keras_tfmr.models.step_derivation import in_one_line

EXAMPLES, BEAMS = 2, 2  # of each example, a step decodes this many targets
SHORT, LONG = 3, 5  # tokens of a target
FEATURES = 16  # positions of a source that is no text
SMALL = 10  # of half of the ids, so that what treats some ids otherwise, such as a mask, meets them
# The part of the greatest element by which rounding may change an output, by dtype.
TOLERANCE = {"float64": 3e-3, "float32": 3e-3, "bfloat16": 0.1, "float16": 0.05}


class LookAheadError(ValueError):
    """Why a model cannot be decoded token by token."""


def compare(model, graph, step, fixed_shapes):
    """Compares a model with itself on fewer tokens and, if it has one, with its step.

    Args:
        model: A `NextTokenModel`.
        graph: What `calls_of` gives of it.
        step: A `DerivedStep` of `BEAMS` hypotheses for each example; or None.
        fixed_shapes: Whether its caches have fixed shapes.

    Raises:
        LookAheadError: If a layer looks at later tokens.
        NoStepError: If a layer's step gives other vectors than its call, or the model cannot be
            called on random ids.
    """
    inputs, _, calls = graph
    target = inputs[model.target_place]
    outputs = [
        (call.operation.name, x)
        for call in calls_that_depend_on(target, calls)
        for x in call.outputs
    ]
    # Of which each must have a position.
    length = min(LONG, model.learned_positions() or LONG)
    with compat.outside_traces():
        sources, ids = random_inputs(inputs, target, model.vocab_size, length)
        values = functools.partial(outputs_of, inputs, target, outputs, sources)
        try:
            found, shorter = values(ids), values(shortened(ids, target))
        except Exception as error:
            raise NoStepError(
                "the model fails on random ids, by which it is compared with its step: "
                f"{in_one_line(error)}"
            ) from error
        if name := first_different(outputs, shorter, found):
            if first_different(outputs, found, values(ids)) == name:
                raise NoStepError(f"{name} gives other vectors at each call")
            raise LookAheadError(
                f"{name} looks at later tokens: a model with such a layer on its target side "
                "cannot be decoded token by token"
            )
        if step is not None:
            by_tensor = {id(x): value for (_, x), value in zip(outputs, found, strict=True)}
            compare_step(step, sources, ids, by_tensor, fixed_shapes)


def random_inputs(inputs, target, vocab_size, length):
    """Random values of the sources of `EXAMPLES`, and target ids of all their hypotheses."""
    draw = np.random.default_rng(0)
    length = target.shape[1] or length
    ids = draw.integers(1, vocab_size, (EXAMPLES * BEAMS, length))
    few = draw.permutation(np.arange(1, min(SMALL, vocab_size)))
    ids[::2] = np.resize(few, ids[::2].shape)
    sources = [random_source(x, length, draw) for x in inputs if x is not target]
    return sources, ids.astype("int32")


def random_source(x, length, draw):
    """Random values of a source: of ids 1, with padding, as it is not known how many there are."""
    if "float" in x.dtype:
        shape = [size or FEATURES for size in x.shape[1:]]
        return draw.normal(size=(EXAMPLES, *shape)).astype(x.dtype)
    value = np.ones((EXAMPLES, *(size or length for size in x.shape[1:])), x.dtype)
    if value.shape[1:] == (length,):
        value[-1, -1] = 0
    return value


def shortened(ids, target):
    """The first tokens of ids; where their number is fixed, the first ones before others."""
    if target.shape[1] is None:
        return ids[:, : min(SHORT, ids.shape[1] - 1)]
    others = np.flip(ids, axis=0)
    return np.where(np.arange(ids.shape[1]) < ids.shape[1] // 2 + 1, ids, others)


def outputs_of(inputs, target, outputs, sources, ids):
    """The values of these tensors of a graph, one for each of the target ids, as arrays."""
    values = iter(np.repeat(source, BEAMS, axis=0) for source in sources)
    values = [ids if x is target else next(values) for x in inputs]
    found = keras.Model(inputs, [x for _, x in outputs])(values)
    return [as_array(x) for x in tree.flatten(found)]


def compare_step(step, sources, ids, expected, fixed_shapes):
    """Compares the outputs of a step with arrays by the ids of the tensors of the graph."""
    rows, length = ids.shape
    examples, vectors = [], []
    if step.encode is not None:
        sources = [ops.convert_to_tensor(source) for source in sources]
        examples, vectors = step.encode([*sources, ops.arange(length, dtype="int32")])
    caches = step.empty_caches(rows, length if fixed_shapes else None)
    stepped = [x for _, _, x in step.stepped]
    inside = keras.Model(step.step.input, [stepped, step.step.output[1]])
    for t in range(length):
        now, index = (ops.convert_to_tensor(x, "int32") for x in (ids[:, t : t + 1], t))
        values = [now, index, caches, examples, vectors]
        try:
            found, caches = inside(values)
        except Exception as error:
            raise NoStepError(f"{failing(step, values)}: {in_one_line(error)}") from error
        for (name, of_graph, _), value in zip(step.stepped, found, strict=True):
            if differ(expected[id(of_graph)][:, t : t + 1], as_array(value)):
                raise NoStepError(
                    f"the step of {name} gives other vectors than its call, at token {t + 1}"
                )


def failing(step, values):
    """The first layer whose step fails on these inputs of the step."""
    for name, _, of_step in step.stepped:
        try:
            keras.Model(step.step.input, of_step)(values)
        except Exception:
            return f"the step of {name} fails"
    return "a cache that a step gives fails"


def first_different(outputs, arrays, others):
    """The name of the first output whose array is not the beginning of the other one, or None."""
    for (name, _), x, other in zip(outputs, arrays, others, strict=True):
        if differ(x, other[tuple(slice(size) for size in x.shape)]):
            return name
    return None


def as_array(x):
    """A tensor as an array, of the dtype that it has."""
    return np.asarray(ops.convert_to_numpy(x))


def differ(x, y):
    """Whether two arrays differ by more than rounding."""
    if x.shape != y.shape:
        return True
    tolerance = TOLERANCE.get(x.dtype.name, 0.0)
    x, y = x.astype("float32"), y.astype("float32")
    return x.size > 0 and np.abs(x - y).max() > tolerance * (1 + np.abs(x).max())
