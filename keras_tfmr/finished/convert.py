"""Converts a model's layers to finished ones: the same results in fewer operations."""

import math
from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from keras_tfmr import layers
from keras_tfmr.compat import flatten_layers, keras_mask
from keras_tfmr.finished.embedding import FinishedEmbedding, FinishedHead
from keras_tfmr.finished.products import KNOWN_NORMS, Norm, Part, matrix
from keras_tfmr.finished.stacks import (
    FinishedCausalDecoder,
    FinishedDecoder,
    FinishedEncoder,
    FinishedFeedForwardLayer,
)
from keras_tfmr.layers.base import optional_layer
from keras_tfmr.layers.dense import Dense
from keras_tfmr.layers.options import WeightOptions
from keras_tfmr.models.graph import as_plain_model, calls_of, is_given, is_reversed, tensors_in
from keras_tfmr.models.next_token_model import NextTokenModel
from keras_tfmr.precision import copy_weights, without_weights

DTYPES = ("float32", "bfloat16", "float16")
# The options that finished layers know, of each kind of layer. A layer with another one stays.
OF_LAYERS = {"name", "trainable", "dtype", "inside"}
OF_PROJECTIONS = OF_LAYERS | {"use_bias", *WeightOptions.__annotations__}
OF_SUBLAYERS = OF_PROJECTIONS | {"dropout_rate", "norm_first", "norm"}
OF_HEADS = {"num_heads", "key_dim", "num_kv_heads", "attention_dropout_rate", "qk_norm"}
OF_FEED_FORWARD = {"d_model", "dff", "activation"}
OF_BLOCKS = OF_SUBLAYERS | OF_HEADS | OF_FEED_FORWARD | {"gated"}
OF_STACKS = OF_BLOCKS | {"num_layers", "relative_positions"}
OF_EMBEDDINGS = OF_LAYERS | {
    "vocab_size", "d_model", "positions", "norm", "scaled", "mask_zero", "logits_bias",
}  # fmt: skip
RELATIVE = layers.RotaryPositions, layers.ALiBi, layers.RelativePositionBias


class Conversion(NamedTuple):
    """How a class of layers is converted.

    Fields:
        options: The known options.
        arguments: The known arguments of a call; at most two are positional.
        finish: Takes a `Kind`, a layer and its calls, and returns a finished layer.
    """

    options: set
    arguments: tuple
    finish: Callable


def of_layer(finished_class):
    """A function that finishes a layer, however it is called."""
    return lambda kind, layer, calls: finished_class(kind, layer)


def embedding(kind, layer, calls):
    """A finished `PositionalEmbedding`."""
    reverse = [is_reversed(call) for call in calls]
    return FinishedEmbedding(kind, layer, embeds=not all(reverse), reverse=any(reverse))


OF_ONE, OF_TWO = ("x", "mask"), ("x", "context", "mask", "context_mask")
ENCODES, DECODES = of_layer(FinishedEncoder), of_layer(FinishedDecoder)
OF_ATTENTION = OF_SUBLAYERS | OF_HEADS
DECODES_ALONE = of_layer(FinishedCausalDecoder)
FEED_FORWARD = Conversion(
    OF_SUBLAYERS | OF_FEED_FORWARD, ("x",), of_layer(FinishedFeedForwardLayer)
)
CONVERSIONS = {
    layers.Encoder: Conversion(OF_STACKS, OF_ONE, ENCODES),
    layers.EncoderLayer: Conversion(OF_BLOCKS, OF_ONE, ENCODES),
    layers.GlobalSelfAttention: Conversion(OF_ATTENTION, OF_ONE, ENCODES),
    layers.CausalDecoder: Conversion(OF_STACKS, OF_ONE, DECODES_ALONE),
    layers.CausalDecoderLayer: Conversion(OF_BLOCKS, OF_ONE, DECODES_ALONE),
    layers.CausalSelfAttention: Conversion(OF_ATTENTION, OF_ONE, DECODES_ALONE),
    layers.Decoder: Conversion(OF_STACKS, OF_TWO, DECODES),
    layers.DecoderLayer: Conversion(OF_BLOCKS, OF_TWO, DECODES),
    layers.CrossAttention: Conversion(OF_ATTENTION, ("x", "context", "context_mask"), DECODES),
    layers.FeedForward: FEED_FORWARD,
    layers.GatedFeedForward: FEED_FORWARD,
    layers.PositionalEmbedding: Conversion(OF_EMBEDDINGS, ("inputs", "reverse"), embedding),
    layers.LMHead: Conversion(OF_PROJECTIONS | {"units"}, ("x",), of_layer(FinishedHead)),
}
READ_CONTEXT = layers.Decoder, layers.DecoderLayer, layers.CrossAttention


def finished(model, kind):
    """A copy of a functional model with finished layers, where the layers are known.

    Others are copied, in the dtype of the kind, with LoRA merged into them.

    Args:
        model: The model.
        kind: The `Kind`.

    Returns:
        The copy, of the class of the model, and {layer of the model that stays: why}.
    """
    _, outputs_of_graph, calls = calls_of(model)
    copies, reasons = [], {}

    def converted(layer):
        if not isinstance(layer, keras.layers.Layer):
            return layer  # an operation, which has no weights
        own_calls = [call for call in calls if call.operation is layer]
        reason = why_not_converted(layer, own_calls)
        if reason is None:
            copy = CONVERSIONS[type(layer)].finish(kind, layer, own_calls)
            if isinstance(copy, FinishedEncoder):
                copy.leaves_out_padding = is_context(own_calls, calls, outputs_of_graph)
            return copy
        reasons[layer] = reason
        copies.append((layer, without_weights(layer, kind.dtype)))
        return copies[-1][1]

    graph = keras.models.clone_model(
        as_plain_model(model), clone_function=converted, call_function=called
    )
    copy_weights(copies)
    outputs = keras.tree.pack_sequence_as(model.output, graph.outputs)
    copy = type(model)(graph.input, outputs, name=model.name)
    copy.trainable = False
    copy.precision = kind.precision
    if isinstance(copy, NextTokenModel):
        copy.bounded = is_bounded(outputs_of_graph[model.logits_place], calls)
        copy.derived.follow(model.derived)
    return copy, reasons


def is_context(own_calls, calls, outputs):
    """Whether only attention to a context reads what calls give, and masks their padding."""
    made = {id(x) for call in own_calls for x in call.outputs}
    readers = [call for call in calls if made & {*map(id, tensors_in((call.args, call.kwargs)))}]
    # Keras gives a call the mask of its input by name.
    own_masks = all(
        value is keras_mask(call.args[0])
        for call in own_calls
        for value in call.kwargs.values()
        if is_given(value)
    )
    unread = not made & {*map(id, outputs)}
    return own_masks and unread and all(reads_as_context(call, made) for call in readers)


def reads_as_context(call, made):
    """Whether a call reads one of the tensors with these ids as its context, by Keras's mask."""
    if type(call.operation) not in READ_CONTEXT or "context_mask" in call.kwargs:
        return False
    return len(call.args) == 2 and id(call.args[0]) not in made


LEAST_OVERFLOW = 64.0  # of a logit whose exp() could overflow in a sum over a vocabulary


def is_bounded(logits, calls):
    """Whether no logit's exp() can overflow, as far as the norm and the head show it.

    A norm gives no vector longer than √width, times its gain.

    Args:
        logits: The logits of the graph.
        calls: The calls of the graph.
    """
    made_by = {id(out): call for call in calls for out in call.outputs}
    head = made_by[id(logits)]
    if type(head.operation) not in (layers.LMHead, layers.PositionalEmbedding):
        return False
    before = made_by.get(id(head.args[0]))
    norm = None if before is None else last_norm(before.operation)
    if norm is None:
        return False
    if isinstance(head.operation, layers.LMHead):
        kernel, bias = matrix(head.operation.dense)
    else:
        kernel = ops.transpose(ops.cast(head.operation.tokens.embeddings, "float32"))
        bias = ops.cast(head.operation.bias, "float32") if head.operation.logits_bias else None
    kernel, bias = Norm(norm, folded=True).fold(kernel, bias)
    lengths = ops.sqrt(ops.sum(ops.square(kernel), axis=0))  # [vocab]
    greatest = math.sqrt(kernel.shape[0]) * lengths
    greatest = greatest if bias is None else greatest + ops.abs(bias)
    return float(ops.max(greatest)) < LEAST_OVERFLOW


def last_norm(layer):
    """The normalisation that makes a layer's output, or None."""
    if type(layer) in KNOWN_NORMS:
        return layer
    if type(layer) not in (layers.Decoder, layers.CausalDecoder):
        return None
    norm = layer.norm or layer.layers[-1].feed_forward.residual.norm
    return norm if type(norm) in KNOWN_NORMS else None


def called(operation, *args, **kwargs):
    """Calls an operation with these arguments; a finished layer without None and False."""
    if isinstance(operation, Part):
        kwargs = {name: value for name, value in kwargs.items() if is_given(value)}
    return operation(*args, **kwargs)


def why_not_converted(layer, calls):
    """Why a layer stays as it is; None if it can be converted."""
    if type(layer) not in CONVERSIONS:
        return f"it is a {type(layer).__name__}, which has no finished form"
    conversion, config = CONVERSIONS[type(layer)], layer.get_config()
    if unknown := set(config) - conversion.options:
        return f"it has the options {sorted(unknown)}"
    for call in calls:
        given = {name for name, value in call.kwargs.items() if is_given(value)}
        if len(call.args) > 2 or given - {*conversion.arguments}:
            return f"it is called with {len(call.args)} arguments and {sorted(given)}"
    inside = flatten_layers(layer)
    of_config = {type(each) for each in flatten_layers(type(layer).from_config(config))}
    if others := {type(each) for each in inside} - of_config - {Dense}:
        return f"it holds other layers than its config says: {[each.__name__ for each in others]}"
    if any(each.quantization_mode for each in inside):
        return "it is quantised"
    for name in ("norm", "qk_norm"):
        norm = optional_layer(name, config.get(name), "RMSNormalization()")
        if norm is not None and type(norm) not in KNOWN_NORMS:
            return f"its {name} is a {type(norm).__name__}"
    relative = getattr(layer, "relative_positions", None)
    if relative is not None and type(relative) not in RELATIVE:
        return f"its relative positions are a {type(relative).__name__}"
    if layer.compute_dtype not in DTYPES:
        return f"it computes in {layer.compute_dtype}"
    return None
