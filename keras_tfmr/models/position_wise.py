"""Which layers and operations treat each position of `[batch, length, ...]` alone."""

import keras
from keras import activations, tree

from keras_tfmr import compat, layers
from keras_tfmr.layers.base import MaskingLayer
from keras_tfmr.layers.dense import Dense
from keras_tfmr.layers.feed_forward import gelu_tanh
from keras_tfmr.models.graph import (
    Call,
    arguments_of,
    calls_of,
    has_method,
    is_given,
    overridden,
    tensors_in,
)

# Keras's layers that treat each position of `[batch, length, width]` alone.
KERAS_LAYERS = {
    keras.layers.Activation, keras.layers.ActivityRegularization, keras.layers.Add,
    keras.layers.AlphaDropout, keras.layers.Average, keras.layers.Dense, keras.layers.Dropout,
    keras.layers.ELU, keras.layers.GaussianDropout, keras.layers.GaussianNoise,
    keras.layers.Identity, keras.layers.LeakyReLU, keras.layers.Maximum, keras.layers.Minimum,
    keras.layers.Multiply, keras.layers.ReLU, keras.layers.Rescaling, keras.layers.Subtract,
    keras.layers.TimeDistributed,
}  # fmt: skip
# Of these, only along the last axis.
ALONG_THE_LAST_AXIS = {
    keras.layers.BatchNormalization, keras.layers.Concatenate, keras.layers.LayerNormalization,
    keras.layers.RMSNormalization, keras.layers.Softmax, keras.layers.UnitNormalization,
}  # fmt: skip
# And these of ids `[batch, length]`.
EMBEDDINGS = {keras.layers.Embedding, keras.layers.ReversibleEmbedding}
# Functions of `keras.ops` that compute each element alone.
ELEMENTWISE = {
    "Absolute", "Add", "Cast", "Divide", "Elu", "Equal", "Exp", "Gelu", "Greater", "Less", "Log",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Multiply", "Negative",
    "NotEqual", "Power", "Relu", "Sigmoid", "Silu", "Softplus", "Sqrt", "Square", "Subtract",
    "Tanh", "TrueDivide", "Where",
}  # fmt: skip
# Activations of each element, or along the last axis.
ACTIVATIONS = {
    gelu_tanh, activations.celu, activations.elu, activations.exponential, activations.gelu,
    activations.glu, activations.hard_shrink, activations.hard_sigmoid, activations.hard_silu,
    activations.hard_tanh, activations.leaky_relu, activations.linear, activations.log_sigmoid,
    activations.log_softmax, activations.mish, activations.relu, activations.relu6,
    activations.selu, activations.sigmoid, activations.silu, activations.soft_shrink,
    activations.softmax, activations.softplus, activations.softsign, activations.sparse_plus,
    activations.sparse_sigmoid, activations.sparsemax, activations.squareplus, activations.tanh,
    activations.tanh_shrink, activations.threshold,
}  # fmt: skip
# Layers of this package that decode as they are called, and those inside them.
OURS = {
    layers.AddPositions, layers.ALiBi, layers.CausalDecoder, layers.CausalDecoderLayer,
    layers.CausalSelfAttention, layers.CrossAttention, layers.Decoder, layers.DecoderLayer, Dense,
    layers.Dropout, layers.FeedForward, layers.GatedFeedForward, layers.LayerNormalization,
    layers.LearnedPositions, layers.LMHead, layers.MultiHeadAttention, layers.NoPositions,
    layers.PositionalEmbedding, layers.PostNormResidual, layers.PreNormResidual,
    layers.RelativePositionBias, layers.RMSNormalization, layers.RotaryPositions,
    layers.SinusoidalPositions,
}  # fmt: skip


WITH_ACTIVATION = {
    keras.layers.Activation, keras.layers.Dense, Dense, layers.FeedForward, layers.GatedFeedForward,
}  # fmt: skip


class NoStepError(ValueError):
    """Why a model has no step with caches."""


def check_position_wise(operation, ranks):
    """Raises a `NoStepError` unless a layer, model or operation treats each position alone.

    Args:
        operation: The layer, model or operation.
        ranks: The numbers of axes of the tensors that it is called with.
    """
    name, kind = operation.name, type(operation)
    check_activation(operation)
    if compat.operation_name(operation) in ELEMENTWISE:
        check_same_rank(operation, ranks)
        return
    if kind in KERAS_LAYERS or kind in ALONG_THE_LAST_AXIS:
        check_same_rank(operation, ranks)
        along = tree.flatten(operation.axis) if kind in ALONG_THE_LAST_AXIS else [-1]
        if ranks[0] < 3 or any(axis not in (-1, ranks[0] - 1) for axis in along):
            raise NoStepError(f"{name} ({kind.__name__}) computes along the axis of positions")
        return
    if kind in EMBEDDINGS:
        return
    if isinstance(operation, keras.Model):
        check_model(operation)
        return
    if not getattr(kind, "position_wise", False) or overridden(operation, "position_wise"):
        raise NoStepError(
            f"{name} ({kind.__name__}) may look at other positions: its class has neither a method "
            "`step` nor `position_wise = True`"
        )


def check_same_rank(operation, ranks):
    """Raises a `NoStepError` if tensors of these numbers of axes would be broadcast."""
    if len(set(ranks)) > 1:
        raise NoStepError(f"{operation.name} joins tensors of {sorted(set(ranks))} axes")


def check_activation(layer):
    """Raises a `NoStepError` if the activation of a layer is none of `keras.activations`."""
    if type(layer) not in WITH_ACTIVATION:
        return
    if not any(layer.activation is known for known in ACTIVATIONS):
        raise NoStepError(
            f"{layer.name} has an activation that is none of `keras.activations`, and may look at "
            f"other positions: {layer.activation!r:.80}"
        )


def check_model(model):
    """Raises a `NoStepError` unless each call inside a nested model treats each position alone."""
    if isinstance(model, keras.Sequential):
        calls = calls_in_line(model)
    elif getattr(model, "operations", None) and not overridden(model, "compute_output_spec"):
        calls = calls_of(model)[2]
    else:
        raise NoStepError(
            f"{model.name} ({type(model).__name__}) may look at other positions: it is a model "
            "with a `call` of its own"
        )
    for call in calls:
        check_training(call)
        if any(compat.keras_mask(x) is not None for x in call.outputs):
            raise NoStepError(f"{call.operation.name}, inside {model.name}, makes a mask")
        check_constants(call)
        try:
            check_position_wise(call.operation, ranks_of(call))
        except NoStepError as error:
            raise NoStepError(f"inside {model.name}, {error}") from None


def calls_in_line(model):
    """The calls of a `keras.Sequential`."""
    [like], calls = model.inputs, []
    x = keras.Input(batch_shape=like.shape, dtype=like.dtype)
    for layer in model.layers:
        y = layer(x)
        calls.append(Call(layer, (x,), {}, [y]))
        x = y
    return calls


def check_training(call):
    """Raises a `NoStepError` if a layer is called as in training."""
    if isinstance(call.operation, keras.layers.Layer):
        training = arguments_of(call).get("training")
        if is_given(training):
            raise NoStepError(f"{call.operation.name} is called with training={training}")


def ranks_of(call):
    """The numbers of axes of the symbolic tensors that an operation is called with."""
    return [len(x.shape) for x in tensors_in((call.args, call.kwargs))]


def check_constants(call):
    """Raises a `NoStepError` if a constant argument has more than one position or example."""
    rank = max(ranks_of(call))
    for constant in tree.flatten((call.args, call.kwargs)):
        if isinstance(constant, keras.KerasTensor) or not hasattr(constant, "shape"):
            continue
        shape = (1,) * (rank - len(constant.shape)) + tuple(constant.shape)
        if len(shape) > rank or shape[:2] != (1, 1):
            raise NoStepError(
                f"{call.operation.name} joins target positions to a constant of shape "
                f"{tuple(constant.shape)}, which must have one position"
            )


def check_inside(layer):
    """Raises a `NoStepError` if a layer, or one inside one of ours, does not say how it decodes.

    The step of another's layer knows what is inside it.
    """
    of_ours = isinstance(layer, MaskingLayer)
    for inside in compat.flatten_layers(layer) if of_ours else [layer]:
        try:
            if not has_method(inside, "step") or overridden(inside, "step"):
                check_position_wise(inside, [3])
        except NoStepError as error:
            where = "" if inside is layer else f"inside {layer.name}, "
            raise NoStepError(f"{where}{error}") from None


def is_ours(layer):
    """Whether a layer and all inside it are of this package, or embeddings of Keras's inside it."""
    if type(layer) not in OURS:
        return False
    return all(type(each) in OURS | EMBEDDINGS for each in compat.flatten_layers(layer))
